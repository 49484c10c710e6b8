#pragma once
#include <cstddef>
#include <cstdint>

namespace anyaccel::driver {

class Signal;
class Stream;

/// What an observer may hear: race detection, timelines and tests are built on it. Every call comes on the thread that acts.
///
/// Calls come with a lock of the driver held, so that their order is that of the events: an observer must not call the driver.
/// With no observer each point costs one load.
class Trace {
 public:
  virtual ~Trace() = default;

  virtual void enqueued(Stream&, const char* /*name*/, std::uint64_t /*sequence*/) {}
  virtual void began(Stream&, const char* /*name*/, std::uint64_t /*sequence*/) {}
  /// Comes for every task: also for one that threw, and for one that was skipped after an error (and so never began).
  virtual void ended(Stream&, const char* /*name*/, std::uint64_t /*sequence*/) {}
  virtual void recorded(Stream&, const Signal&) {}
  virtual void waits(Stream&, const Signal&) {}
  /// A wait that the host asked for has ended. What the driver waits for by itself (room in a queue, memory) is not told.
  virtual void host_waited(const Signal&) {}
  virtual void allocated(Stream&, const void* /*address*/, std::size_t /*bytes*/) {}
  virtual void freed(Stream&, const void* /*address*/, std::size_t /*bytes*/) {}
  virtual void used_on(Stream&, const void* /*address*/) {}
};

}  // namespace anyaccel::driver
