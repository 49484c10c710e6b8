#include "driver/runtime.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace anyaccel::driver {

namespace {

constexpr int kMostDevices = 128;
constexpr std::size_t kLeastMemory = std::size_t{2} << 20;  ///< the smallest segment

Options checked(Options options) {
  if (options.devices < 1 || options.devices > kMostDevices) {
    throw InvalidArgument("Cannot simulate " + std::to_string(options.devices) + " devices: choose 1 to " + std::to_string(kMostDevices) +
                          ".");
  }
  if (options.memory_bytes < kLeastMemory) {
    throw InvalidArgument("Cannot simulate a device with " + std::to_string(options.memory_bytes) + " bytes of memory: give it at least " +
                          std::to_string(kLeastMemory) + " bytes (2 MiB).");
  }
  if (options.workers < 0) {
    throw InvalidArgument("Cannot run on " + std::to_string(options.workers) +
                          " worker threads: choose at least 1, or 0 for as many as there are cores.");
  }
  return options;
}

}  // namespace

void watch_forks() {
  static const int failed = pthread_atfork(nullptr, nullptr, [] { detail::fork_generation.fetch_add(1, std::memory_order_relaxed); });
  if (failed) throw std::system_error(failed, std::generic_category(), "Cannot watch for forks: pthread_atfork failed");
}

Runtime::Runtime(Options options) : options_(checked(std::move(options))) {
  watch_forks();
  scheduler_ = make_scheduler(options_.schedule, *this);
  pinned_ = std::make_unique<PinnedMemory>(*this);
  for (int index = 0; index < options_.devices; ++index) {
    devices_.push_back(std::make_unique<Device>(*this, index, options_.memory_bytes));
  }
}

Runtime::~Runtime() {
  if (forked()) {
    // Its threads do not exist here and its locks may be locked for ever: nothing of it can be taken apart.
    for (auto& device : devices_) (void)device.release();
    (void)pinned_.release();
    (void)scheduler_.release();
    return;
  }
  stop();
}

Device& Runtime::device(int index) {
  if (index < 0 || index >= device_count()) {
    throw InvalidArgument("There is no device " + std::to_string(index) + ": there " +
                          (device_count() == 1 ? "is only device 0." : "are devices 0 to " + std::to_string(device_count() - 1) + "."));
  }
  return *devices_[static_cast<std::size_t>(index)];
}

void Runtime::check_not_forked() const {
  if (forked()) {
    throw Stopped(
        "Cannot use simulated devices in a process that was forked after they had been used: their threads stayed in the parent. "
        "Start this process with the 'spawn' start method (multiprocessing.set_start_method('spawn')), or fork before the first use.");
  }
}

void Runtime::check_usable() const {
  check_not_forked();
  if (stopped())
    throw Stopped("The simulated devices were stopped, as at the end of the process: they take no more work. Finish it before that.");
}

void Runtime::use_first() {
  std::uint32_t unused = 0;
  used_in_.compare_exchange_strong(unused, fork_generation(), std::memory_order_relaxed);
  check_usable();
}

void Runtime::interrupt() const {
  if (on_host_wait) on_host_wait();
}

void Runtime::wait(Signal& signal) {
  check_usable();
  wait_quietly(signal);
  if (Trace* observer_now = observer()) observer_now->host_waited(signal);
  signal.stream().device().rethrow_error();
}

void Runtime::wait_quietly(Signal& signal) {
  if (signal.done()) return;
  if (Stream::inside_task()) {
    throw InvalidArgument(
        "A task cannot wait for a stream: it could wait for its own end. Wait on the host, or let a stream wait for an event.");
  }
  scheduler_->wait(signal, [this] { interrupt(); });
  if (!signal.done()) check_usable();
}

void Runtime::wait_for_room(Stream& stream) {
  scheduler_->wait_for_room(stream, [this] { interrupt(); });
  check_usable();
}

void Runtime::sleep_until(const void* about, const std::function<bool()>& over) {
  waiting_room_.wait(about, over, [this] { interrupt(); });
}

void Runtime::sleep_until_done(Signal& signal, const std::function<void()>& interrupt) {
  signal.expect_host();
  waiting_room_.wait(&signal, [this, &signal] { return signal.done() || stopped(); }, interrupt);
}

void Runtime::sleep_until_room(Stream& stream, const std::function<void()>& interrupt) {
  waiting_room_.wait(&stream, [this, &stream] { return stream.has_room() || stream.held() || stopped(); }, interrupt);
}

void Runtime::stop() noexcept {
  if (forked()) return;
  stopped_.store(true, std::memory_order_release);
  waiting_room_.wake_all();
  // A task cannot wait for its own end; the destructor does the rest.
  if (Stream::inside_task()) return;
  const std::lock_guard lock(stopping_);
  scheduler_->stop();
  for (auto& device : devices_) device->drop();
}

}  // namespace anyaccel::driver
