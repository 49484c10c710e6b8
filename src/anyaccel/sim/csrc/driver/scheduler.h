#pragma once
#include <functional>
#include <memory>
#include <string>

namespace anyaccel::driver {

class Runtime;
class Signal;
class Stream;

/// Decides when runnable streams advance, and on which thread.
///
/// A stream is runnable while it has work, is neither held nor parked on a signal, and no thread runs it. Streams tell the scheduler when
/// they become runnable; the scheduler makes them advance. Everything else (order within a stream, signals, errors) is the streams' own.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  /// `stream` has become runnable: from now on the scheduler alone may call Stream::advance() and rest(), until one of them gives
  /// it back.
  /// Called with no lock held.
  virtual void runnable(Stream& stream) = 0;

  /// The host asks whether something is done: a lazy schedule may advance one task, so that polling loops end.
  virtual void poll() {}

  /// The host waits for `signal`, or until the runtime stops. Threads sleep; a schedule without workers runs what the signal needs.
  /// Calls `interrupt` from time to time, which may throw.
  virtual void wait(Signal& signal, const std::function<void()>& interrupt) = 0;

  /// The host waits until `stream` has room for a task, is held, or the runtime stops; as wait().
  virtual void wait_for_room(Stream& stream, const std::function<void()>& interrupt) = 0;

  /// Finishes what runs at this moment, starts nothing more, joins its threads. May be called again.
  virtual void stop() noexcept = 0;

  /// How many threads it has started.
  virtual int thread_count() const noexcept = 0;
};

/// The schedule of that name ("threads", "serial"); throws InvalidArgument that lists those there are.
std::unique_ptr<Scheduler> make_scheduler(const std::string& name, Runtime& runtime);

/// Streams run on a bounded pool of worker threads.
std::unique_ptr<Scheduler> make_threads(Runtime& runtime);

/// Streams run on the thread that made them runnable, before that call returns.
std::unique_ptr<Scheduler> make_serial(Runtime& runtime);

}  // namespace anyaccel::driver
