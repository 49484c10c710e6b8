#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/blocks.h"
#include "driver/pending.h"
#include "driver/stats.h"

namespace anyaccel::driver {

class Device;
class Stream;

struct BlockInfo {
  const void* address;
  std::size_t size_bytes, requested_bytes;
  bool allocated;  ///< a tensor owns it
  bool active;     ///< allocated, or freed and still in use by a recorded stream
};

struct SegmentInfo {
  const void* address;
  std::size_t total_bytes, requested_bytes, allocated_bytes, active_bytes;
  std::int64_t stream;
  bool is_large;
  std::vector<BlockInfo> blocks;
};

/// A stream-ordered caching allocator with CUDA's rounding, pools, splitting, merging and figures.
///
/// A block belongs to the stream it was allocated on: once freed it is at once free for that stream and for no other. Uses on
/// other streams are told by record_stream(): a freed block then waits until those streams have passed the point of the free.
class CachingAllocator {
 public:
  explicit CachingAllocator(Device& device);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// A block of at least `bytes` (> 0) for work on `stream`. Throws OutOfMemory after a flush and a retry, which block the host.
  Block* allocate(std::size_t bytes, Stream& stream);
  void free(Block* block) noexcept;
  void record_stream(Block* block, Stream& stream);

  static void* address(const Block* block) noexcept { return block->address; }
  static CachingAllocator& owner(const Block* block) noexcept { return *block->allocator; }

  /// Hands every unused segment back to the device; waits for the device first.
  void empty_cache();

  AllocatorStats stats() const;
  void reset_peak_stats();
  void reset_accumulated_stats();

  /// (free, total) bytes of the device's memory.
  std::pair<std::size_t, std::size_t> memory_info() const;

  /// At most this many bytes may be reserved.
  void set_limit(std::size_t bytes);
  std::size_t limit() const;

  std::vector<SegmentInfo> snapshot() const;

 private:
  /// What one stream has free.
  struct Pools {
    FreeBlocks small{false}, large{true};
  };
  using Lock = std::unique_lock<std::mutex>;

  // allocator.cpp; the mutex is held in all of them.
  FreeBlocks& pool(std::size_t bytes, const Stream& stream);
  Block* find(std::size_t bytes, Stream& stream);
  void split(Block* block, std::size_t bytes);
  void make_free(Block* block);
  Block* merge(Block* block, Block* neighbour);
  Block* new_block();
  void drop_block(Block* block);
  void collect() const;
  static void add(Stats3& figure, const FreeBlocks& pool, std::int64_t amount) noexcept;

  class Reclaiming;

  // segments.cpp; `lock` holds the mutex, and is given up while the host waits.
  Block* add_segment(std::size_t bytes, Stream& stream);
  Block* reclaim(Lock& lock, std::size_t requested_bytes, std::size_t bytes, Stream& stream);
  std::vector<Block*> unused_segments() const;
  std::vector<Block*> smallest_that_suffice(std::size_t segment_bytes) const;
  void hand_back(Lock& lock, std::vector<Block*> segments);
  void hand_back_all(Lock& lock);
  void wait_for_device(Lock& lock);
  [[noreturn]] void throw_out_of_memory(std::size_t requested_bytes);

  Device& device_;

  /// True while a thread gives memory back, and waits for that. Another one that finds no memory in the meantime must not take
  /// what is on its way for lost. No mutex: whoever waits for its turn can be interrupted.
  std::atomic<bool> reclaiming_{false};

  // Under the mutex. mutable: whoever asks for figures first looks which recorded streams have got past.
  mutable std::mutex mutex_;
  mutable AllocatorStats stats_;
  mutable PendingBlocks<Block> pending_;
  std::vector<std::unique_ptr<Pools>> pools_;    ///< by stream id
  std::map<const std::byte*, Block*> segments_;  ///< the first block of each, by address
  std::size_t limit_bytes_;
  std::deque<Block> all_blocks_;
  Block* spare_blocks_ = nullptr;
};

}  // namespace anyaccel::driver
