#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace anyaccel::driver {

class Stream;

/// One version of an event: it becomes done once, when its stream reaches it.
///
/// Whoever waits holds the signal that was current at the call, so a later record of the same event changes nothing for it.
class Signal {
 public:
  /// A signal that `stream` will reach.
  explicit Signal(Stream& stream) noexcept : stream_(&stream) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  bool done() const noexcept { return state_.load(std::memory_order_acquire) & kDone; }

  /// Steady-clock time at which the stream reached it, in nanoseconds; meaningful once done.
  std::int64_t time_ns() const noexcept { return time_ns_; }

  /// The stream it was recorded on.
  Stream& stream() const noexcept { return *stream_; }

  /// To be called by a host thread before it goes to sleep until done(): asks complete() to wake the runtime's waiting room.
  void expect_host() noexcept { state_.fetch_or(kHostWaits, std::memory_order_acq_rel); }

 private:
  friend class Stream;

  // The low bits of the address of the stream that parked last; the others follow by Stream::next_parked_. One word, so that a
  // stream that parks, a host that goes to sleep and the completion cannot miss each other.
  static constexpr std::uintptr_t kDone = 1, kHostWaits = 2, kFlags = 7;

  /// Takes the time; comes before complete().
  void stamp() noexcept;

  /// Marks it done and wakes the hosts; returns the streams that were parked on it, the first to park first.
  Stream* complete() noexcept;

  /// Adds `stream` to those that complete() returns; false if it is done already.
  bool park(Stream& stream) noexcept;

  std::atomic<std::uintptr_t> state_{0};
  std::int64_t time_ns_ = 0;
  Stream* const stream_;
};

/// An event: a name for the last signal that was recorded under it.
class Event {
 public:
  explicit Event(bool timing) noexcept : timing_(timing) {}

  bool timing() const noexcept { return timing_; }

  /// The version that is current now; null before the first record.
  std::shared_ptr<Signal> current() const;

  /// True before the first record, and once the current version is done. (With a lazy schedule it may let one task run.)
  bool query() const;

 private:
  friend class Stream;

  const bool timing_;
  mutable std::mutex mutex_;
  std::shared_ptr<Signal> current_;
};

}  // namespace anyaccel::driver
