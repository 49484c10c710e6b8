#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "driver/pending.h"

namespace anyaccel::driver {

class Runtime;
class Stream;

struct PinnedStats {
  std::int64_t allocated_bytes = 0, allocated_bytes_peak = 0;  ///< owned by tensors, or freed with a copy pending
  std::int64_t reserved_bytes = 0, reserved_bytes_peak = 0;    ///< with what the cache holds
  std::int64_t num_alloc = 0, num_free = 0;                    ///< calls to the operating system
};

/// Host memory that copies may use while the host goes on. Freed blocks are kept, and handed out again once the copies that
/// used them have completed. Each block lies on pages of its own.
class PinnedMemory {
 public:
  explicit PinnedMemory(Runtime& runtime);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// Throws std::bad_alloc where the operating system has no more.
  void* allocate(std::size_t bytes);
  void free(void* address) noexcept;

  /// True for any address inside a block that is allocated. (No block is, in a child that was forked after the first use.)
  bool contains(const void* address) const;

  /// A copy on `stream` uses the block around `address`: it is not handed out again before that copy has completed.
  /// Throws InvalidArgument if no block is there.
  void record_stream(const void* address, Stream& stream);

  /// Gives unused blocks back to the operating system.
  void empty_cache();

  PinnedStats stats() const;
  void reset_peak_stats();
  void reset_accumulated_stats();

 private:
  struct Block {
    std::byte* address;
    std::size_t bytes;    ///< a power of two
    bool allocated;       ///< a tensor owns it
    std::size_t pending;  ///< streams that it waits for, once freed
    std::vector<Stream*> uses;
  };

  Block* find(const void* address) const;
  Block* map(std::size_t bytes);
  void collect() const;
  void keep(Block* block) const;

  Runtime& runtime_;
  const std::size_t page_bytes_;

  // mutable: whoever asks for figures first looks which copies have completed.
  mutable std::shared_mutex mutex_;
  mutable std::map<std::uintptr_t, std::unique_ptr<Block>> blocks_;  ///< by address
  mutable std::array<std::vector<Block*>, 64> free_;                 ///< by the logarithm of the size
  mutable PendingBlocks<Block> pending_;
  mutable PinnedStats stats_;
};

}  // namespace anyaccel::driver
