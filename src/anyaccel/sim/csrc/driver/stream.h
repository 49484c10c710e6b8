#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "driver/event.h"
#include "driver/queue.h"
#include "driver/task.h"

namespace anyaccel::driver {

class Device;
class Runtime;

/// Priorities as CUDA orders them: the lower number goes first.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -3;

/// A first-in first-out queue of work on one device.
///
/// It has no thread of its own: a scheduler runs whichever streams are runnable. Streams live as long as their device,
/// since torch's guard interface has no call that ends one; an idle stream therefore costs a few hundred bytes.
class Stream {
 public:
  /// How many tasks wait in a queue before the host blocks.
  static constexpr std::size_t kCapacity = 1024;

  /// For the device: Device::new_stream() makes streams.
  Stream(Device& device, std::int64_t id, int priority) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::int64_t id() const noexcept { return id_; }
  int priority() const noexcept { return priority_; }
  Device& device() const noexcept { return device_; }

  /// Appends `task`. `name` says what it is (static storage: an operator's name lives for ever).
  /// Blocks the host while kCapacity tasks are waiting; throws QueueFull instead if the stream is held.
  /// A task that enqueues never blocks: it could be what has to end first.
  void enqueue(const char* name, Task task);

  /// Appends a new version of `event`.
  void record(Event& event);

  /// Appends a new signal and returns it: what comes after it has not begun when it is done.
  std::shared_ptr<Signal> record();

  /// A signal that is done once everything appended so far has completed: what synchronize() waits for, and what allocators
  /// keep. Unlike record() it is done at once if there is nothing left to wait for, also on a held stream.
  std::shared_ptr<Signal> mark();

  /// Makes what comes after wait for the event's current version; nothing if it was never recorded.
  void wait(const Event& event);
  void wait(std::shared_ptr<Signal> signal);

  /// True when everything that was appended has completed. (With a lazy schedule it may let one task run.)
  bool query();

  /// Blocks the host until everything appended so far has completed; rethrows the device's error, if it has one.
  void synchronize();

  /// Closes the queue: nothing of it starts until as many release() calls have come. What runs already goes on.
  void hold();
  void release();

  // For schedulers. Scheduler::runnable() hands the stream over; from then on the scheduler alone may advance it, one call at
  // a time, until advance() returns false or rest() true.

  /// Runs the next entry and returns true; or gives the stream back and returns false, because there is no entry, it is held,
  /// or it has to wait for a signal. It is handed over again when that changes.
  bool advance() noexcept;

  /// Gives the stream back and returns true, if there is no entry or it is held.
  bool rest() noexcept;

  /// True while there are entries, also such as cannot run yet.
  bool pending() const noexcept { return !queue_.empty(); }

  bool held() const noexcept { return held_.load() != 0; }

  /// True unless a host that wants to append a task has to wait.
  bool has_room() noexcept;

  /// True on a thread that runs a task at this moment.
  static bool inside_task() noexcept;

 private:
  friend class Device;
  friend class Signal;

  enum class State : std::uint8_t {
    kResting,  ///< nobody's: empty, or held
    kActive,   ///< the scheduler's
    kParked,   ///< its front entry waits for a signal
  };

  /// Unlocks, then tells the device and the scheduler what they must know after an entry was pushed.
  void publish(std::unique_lock<std::mutex>& lock);
  void wait_for_room(std::unique_lock<std::mutex>& lock);
  bool find_room() noexcept;
  std::shared_ptr<Signal> append_signal(bool even_if_held);

  bool completed() const noexcept;
  void run(Item& item) noexcept;
  void reach(Item& item) noexcept;
  bool pass(Item& item) noexcept;
  void resume() noexcept;
  static void resume_all(Stream* first) noexcept;

  /// For Device: takes it off the list of busy streams if it has completed; true if it did.
  bool unlist_if_completed() noexcept;

  /// For Device: destroys what is queued; no scheduler runs any more.
  void drop() noexcept;

  // Who writes what is kept apart by cache lines: a host that appends and a worker that runs are to share as few as they can.
  // Both read these all the time and hardly ever write them.
  Runtime& runtime_;
  Device& device_;
  const std::int64_t id_;
  const int priority_;
  std::atomic<int> held_{0};
  std::atomic<int> blocked_hosts_{0};
  Stream* next_parked_ = nullptr;  ///< the signal's, while parked

  // The host's. Appending and changes of state go under the mutex; advance() needs it for the latter only.
  alignas(64) std::mutex mutex_;
  State state_ = State::kResting;
  bool listed_ = false;  ///< among the device's busy streams
  std::uint64_t tasks_appended_ = 0;
  std::uint64_t room_until_ = kCapacity;  ///< so many tasks may have been appended before one must look how many have started

  Queue queue_;

  // The scheduler's.
  alignas(64) std::atomic<std::uint64_t> tasks_started_{0};
  std::atomic<bool> reaching_{false};  ///< an entry was popped and its signal is about to be done
};

}  // namespace anyaccel::driver
