#include "driver/device.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "driver/runtime.h"

namespace anyaccel::driver {

Device::Device(Runtime& runtime, int index, std::size_t memory_bytes)
    : runtime_(runtime), index_(index), arena_(memory_bytes), allocator_(*this) {
  streams_[0] = std::make_unique<std::unique_ptr<Stream>[]>(kFirstTable);
  streams_[0][0] = std::make_unique<Stream>(*this, 0, kLeastPriority);
  stream_count_.store(1, std::memory_order_release);
}

Device::~Device() = default;

std::unique_ptr<Stream>& Device::slot(std::int64_t id) noexcept {
  const auto table = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(id / kFirstTable + 1)) - 1);
  const auto first = kFirstTable * ((std::int64_t{1} << table) - 1);
  return streams_[table][static_cast<std::size_t>(id - first)];
}

Stream& Device::new_stream(int priority) {
  runtime_.use();
  const std::lock_guard lock(streams_mutex_);
  const auto id = stream_count_.load(std::memory_order_relaxed);
  const auto table = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(id / kFirstTable + 1)) - 1);
  if (!streams_[table]) streams_[table] = std::make_unique<std::unique_ptr<Stream>[]>(static_cast<std::size_t>(kFirstTable) << table);
  auto& stream = slot(id) = std::make_unique<Stream>(*this, id, std::clamp(priority, kGreatestPriority, kLeastPriority));
  stream_count_.store(id + 1, std::memory_order_release);
  return *stream;
}

Stream& Device::stream(std::int64_t id) {
  const auto count = stream_count_.load(std::memory_order_acquire);
  if (id < 0 || id >= count) {
    throw InvalidArgument("Device " + std::to_string(index_) + " has no stream " + std::to_string(id) + ": its streams are 0 to " +
                          std::to_string(count - 1) + ".");
  }
  return *slot(id);
}

void Device::list(Stream& stream) {
  const std::lock_guard lock(busy_mutex_);
  busy_.push_back(&stream);
}

std::vector<std::shared_ptr<Signal>> Device::marks() {
  runtime_.check_usable();
  std::vector<Stream*> streams;
  {
    // An observer wants to hear of each stream that the host now knows to have completed, not only of those that take time.
    const bool all = runtime_.observer() != nullptr;
    const std::lock_guard lock(busy_mutex_);
    std::erase_if(busy_, [&](Stream* stream) {
      const bool completed = stream->unlist_if_completed();
      if (all || !completed) streams.push_back(stream);
      return completed;
    });
  }
  std::vector<std::shared_ptr<Signal>> signals;
  for (Stream* stream : streams) signals.push_back(stream->mark());
  return signals;
}

void Device::drain() {
  for (const auto& signal : marks()) runtime_.wait_quietly(*signal);
}

void Device::synchronize() {
  for (const auto& signal : marks()) {
    runtime_.wait_quietly(*signal);
    if (Trace* trace = runtime_.observer()) trace->host_waited(*signal);
  }
  rethrow_error();
}

std::exception_ptr Device::error() const noexcept {
  if (!failed()) return nullptr;
  const std::lock_guard lock(error_mutex_);
  return error_;
}

void Device::fail(std::exception_ptr error) noexcept {
  const std::lock_guard lock(error_mutex_);
  if (error_) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
}

void Device::rethrow_error() const {
  if (auto first = error()) std::rethrow_exception(std::move(first));
}

void Device::reset_error() {
  drain();
  std::exception_ptr forgotten;  // Destroyed after the lock is gone: it may own anything.
  const std::lock_guard lock(error_mutex_);
  failed_.store(false, std::memory_order_release);
  std::swap(forgotten, error_);
}

void Device::drop() noexcept {
  const auto count = stream_count_.load(std::memory_order_acquire);
  for (std::int64_t id = 0; id < count; ++id) slot(id)->drop();
}

}  // namespace anyaccel::driver
