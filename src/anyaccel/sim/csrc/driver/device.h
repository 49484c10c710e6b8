#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "driver/allocator.h"
#include "driver/memory.h"
#include "driver/stream.h"

namespace anyaccel::driver {

class Runtime;

/// What devices of this kind are called.
inline constexpr char kDeviceName[] = "sim";

/// One simulated device: its streams, its memory, its error.
class Device {
 public:
  /// For the runtime.
  Device(Runtime& runtime, int index, std::size_t memory_bytes);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const noexcept { return index_; }
  Runtime& runtime() const noexcept { return runtime_; }

  Stream& default_stream() noexcept { return *streams_[0][0]; }

  /// A stream of its own identity; the priority is clamped to kLeastPriority .. kGreatestPriority.
  Stream& new_stream(int priority);

  /// The stream with that id (0 is the default stream); throws InvalidArgument for any other number.
  Stream& stream(std::int64_t id);

  Arena& arena() noexcept { return arena_; }
  CachingAllocator& allocator() noexcept { return allocator_; }

  /// Blocks the host until everything appended to any stream of this device has completed; rethrows its error.
  void synchronize();

  /// The first exception that left a task here. From then on tasks are skipped and waits rethrow it.
  std::exception_ptr error() const noexcept;
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// Waits for what is queued, then forgets the error.
  void reset_error();

  // For the driver itself.

  /// synchronize() for the driver's own ends: the observer does not hear of it, and no error comes of it.
  void drain();

  void fail(std::exception_ptr error) noexcept;
  void rethrow_error() const;

  /// A stream has become busy.
  void list(Stream& stream);

  ChunkPool& chunks() noexcept { return chunks_; }

  /// Destroys what is queued; no scheduler runs any more.
  void drop() noexcept;

 private:
  /// Streams by id: table k holds 64 << k of them and never moves, so that a look-up needs no lock.
  static constexpr std::int64_t kFirstTable = 64;
  std::unique_ptr<Stream>& slot(std::int64_t id) noexcept;

  /// One mark for each stream that has been used since it was last found idle.
  std::vector<std::shared_ptr<Signal>> marks();

  Runtime& runtime_;
  const int index_;

  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  std::exception_ptr error_;

  std::mutex busy_mutex_;
  std::vector<Stream*> busy_;

  Arena arena_;
  ChunkPool chunks_;
  CachingAllocator allocator_;

  std::mutex streams_mutex_;
  std::array<std::unique_ptr<std::unique_ptr<Stream>[]>, 32> streams_;
  std::atomic<std::int64_t> stream_count_{0};
};

}  // namespace anyaccel::driver
