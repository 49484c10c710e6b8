#include "torch/runtime.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>

namespace anyaccel::sim {
namespace {

std::atomic<driver::Runtime*> the_runtime{nullptr};

// Indexed by c10::DeviceIndex; null, which means the default stream, where this thread has not asked yet.
constexpr std::size_t kMostDevices = std::numeric_limits<c10::DeviceIndex>::max() + std::size_t{1};
thread_local std::array<driver::Stream*, kMostDevices> current_streams{};
thread_local c10::DeviceIndex current_index = 0;

struct Waits {
  std::mutex mutex;
  std::unordered_map<std::string, std::int64_t> by_op;

  static Waits& get() {
    static auto* waits = new Waits;  // leaked: tensors that die with the process may still wait
    return *waits;
  }
};

void count_wait(const char* op) {
  auto& waits = Waits::get();
  std::lock_guard lock(waits.mutex);
  ++waits.by_op[op];
}

}  // namespace

void start(driver::Options options) {
  TORCH_CHECK(!started(), "The ", kDeviceName, " device was started already, and a process can start it only once.");
  TORCH_CHECK_VALUE(options.devices < static_cast<int>(kMostDevices), "torch counts at most ", kMostDevices - 1, " devices, not ",
                    options.devices, ".");
  auto runtime = driver_call([&] { return std::make_unique<driver::Runtime>(std::move(options)); });
  runtime->on_worker_start = prepare_worker;
  runtime->on_host_wait = check_signals;
  the_runtime.store(runtime.release(), std::memory_order_release);
}

bool started() noexcept { return the_runtime.load(std::memory_order_acquire) != nullptr; }

driver::Runtime& runtime() {
  auto* runtime = the_runtime.load(std::memory_order_acquire);
  TORCH_CHECK(runtime, "The ", kDeviceName, " device was not started: call anyaccel.sim.enable() first.");
  return *runtime;
}

driver::Device& device_at(c10::DeviceIndex index) {
  try {
    return runtime().device(index == -1 ? current_index : index);
  } catch (...) {
    translate();
  }
}

c10::DeviceIndex current_device() noexcept { return current_index; }

void unchecked_set_device(c10::DeviceIndex index) noexcept {
  if (index >= 0) current_index = index;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  if (index != current_index) return std::exchange(current_index, static_cast<c10::DeviceIndex>(device_at(index).index()));
  return index;
}

driver::Stream& current_stream(c10::DeviceIndex device) {
  const auto index = device == -1 ? current_index : device;
  if (index >= 0 && current_streams[index]) return *current_streams[index];
  auto& stream = device_at(index).default_stream();
  current_streams[index] = &stream;
  return stream;
}

driver::Stream& exchange_stream(driver::Stream& stream) {
  auto& device = stream.device();
  auto* previous = std::exchange(current_streams[device.index()], &stream);
  return previous ? *previous : device.default_stream();
}

driver::Stream& unwrap(const c10::Stream& stream) {
  TORCH_CHECK_VALUE(stream.device_type() == kDeviceType, "Expected a stream of a ", kDeviceName, " device, not of ", stream.device(), ".");
  auto& device = device_at(stream.device_index());
  auto* current = current_streams[device.index()];
  if (current && current->id() == stream.id()) return *current;
  try {
    return device.stream(stream.id());
  } catch (...) {
    translate();
  }
}

c10::Stream wrap(driver::Stream& stream) noexcept {
  const c10::Device device(kDeviceType, static_cast<c10::DeviceIndex>(stream.device().index()));
  return c10::Stream(c10::Stream::UNSAFE, device, stream.id());
}

void host_wait(const char* op, const std::function<void()>& wait) {
  count_wait(op);
  try {
    WithoutGil no_gil;
    wait();
  } catch (...) {
    issue(take_warnings(), /*failing=*/true);
    translate();
  }
  issue(take_warnings(), /*failing=*/false);
}

std::unordered_map<std::string, std::int64_t> host_waits() {
  auto& waits = Waits::get();
  std::lock_guard lock(waits.mutex);
  return waits.by_op;
}

void reset_host_waits() {
  auto& waits = Waits::get();
  std::lock_guard lock(waits.mutex);
  waits.by_op.clear();
}

}  // namespace anyaccel::sim
