#include "driver/event.h"

#include <chrono>
#include <utility>

#include "driver/runtime.h"

namespace anyaccel::driver {

static_assert(alignof(Stream) >= 8, "Signal keeps flags in the low bits of a stream's address");

void Signal::stamp() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  time_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Stream* Signal::complete() noexcept {
  const auto before = state_.exchange(kDone, std::memory_order_acq_rel);
  if (before & kHostWaits) stream_->runtime_.waiting_room().wake(this);
  Stream* first = nullptr;
  for (auto* stream = reinterpret_cast<Stream*>(before & ~kFlags); stream;) {
    Stream* next = std::exchange(stream->next_parked_, first);
    first = std::exchange(stream, next);
  }
  return first;
}

bool Signal::park(Stream& stream) noexcept {
  auto before = state_.load(std::memory_order_acquire);
  do {
    if (before & kDone) return false;
    stream.next_parked_ = reinterpret_cast<Stream*>(before & ~kFlags);
  } while (!state_.compare_exchange_weak(before, reinterpret_cast<std::uintptr_t>(&stream) | (before & kFlags), std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  return true;
}

std::shared_ptr<Signal> Event::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

bool Event::query() const {
  const auto signal = current();
  if (!signal) return true;
  if (signal->done()) return true;
  Runtime& runtime = signal->stream().device().runtime();
  runtime.check_not_forked();
  runtime.poll();
  return signal->done();
}

}  // namespace anyaccel::driver
