#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/device.h"
#include "driver/errors.h"
#include "driver/event.h"
#include "driver/fork.h"
#include "driver/pinned.h"
#include "driver/scheduler.h"
#include "driver/stream.h"
#include "driver/trace.h"
#include "driver/waiting_room.h"

namespace anyaccel::driver {

struct Options {
  int devices = 1;
  std::size_t memory_bytes = std::size_t{16} << 30;  ///< of each device
  std::string schedule = "threads";
  int workers = 0;  ///< 0: as many as the machine has cores, at least two
};

/// The whole simulated machine. Nothing starts, and no address space is taken, before the first use.
class Runtime {
 public:
  /// Throws InvalidArgument for options that make no sense.
  explicit Runtime(Options options);

  /// Stops.
  ~Runtime();

  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Options& options() const noexcept { return options_; }
  int device_count() const noexcept { return options_.devices; }

  /// Throws InvalidArgument, naming the devices there are, for any other index.
  Device& device(int index);
  PinnedMemory& pinned() noexcept { return *pinned_; }
  Scheduler& scheduler() noexcept { return *scheduler_; }

  /// Blocks the host until `signal` is done, as the scheduler sees fit; then rethrows the error of the signal's device, if it has one.
  void wait(Signal& signal);

  /// Called first on each worker thread.
  std::function<void()> on_worker_start;

  /// Called from time to time by host threads that wait; may throw, which ends the wait.
  std::function<void()> on_host_wait;

  /// The observer, or null. It must outlive what it observes.
  std::atomic<Trace*> trace{nullptr};

  /// Finishes the running tasks, drops the queued ones, joins the workers. From then on enqueue throws Stopped.
  void stop() noexcept;

  bool stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }

  /// True in a child that was forked after the first use: threads and queues stayed in the parent.
  bool forked() const noexcept {
    const auto used_in = used_in_.load(std::memory_order_relaxed);
    return used_in != 0 && used_in != fork_generation();
  }

  /// Throws Stopped if stopped or forked.
  void check_usable() const;
  void check_not_forked() const;

  // For the driver itself.

  /// check_usable(), and from now on a child of this process is `forked`.
  void use() {
    if (used_in_.load(std::memory_order_relaxed) != fork_generation() || stopped()) use_first();
  }

  Trace* observer() const noexcept { return trace.load(std::memory_order_acquire); }
  WaitingRoom& waiting_room() noexcept { return waiting_room_; }
  void poll() { scheduler_->poll(); }

  /// wait() for the driver's own ends: the observer does not hear of it, and no device error comes of it.
  void wait_quietly(Signal& signal);
  void wait_for_room(Stream& stream);

  /// The host thread sleeps until `over()`, of which it is told by waiting_room().wake(about).
  void sleep_until(const void* about, const std::function<bool()>& over);

  // For schedulers: the host thread sleeps until it is so, or the runtime stops.
  void sleep_until_done(Signal& signal, const std::function<void()>& interrupt);
  void sleep_until_room(Stream& stream, const std::function<void()>& interrupt);

 private:
  void use_first();
  void interrupt() const;

  const Options options_;
  std::atomic<std::uint32_t> used_in_{0};  ///< the fork generation of the first use
  std::atomic<bool> stopped_{false};
  std::mutex stopping_;
  WaitingRoom waiting_room_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<PinnedMemory> pinned_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace anyaccel::driver
