#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace anyaccel::driver {

class CachingAllocator;
class FreeBlocks;
class Stream;

/// Everything is handed out in multiples of this.
constexpr std::size_t kGranuleBytes = 512;

/// A piece of a segment; the handle that an allocation is freed by.
struct Block {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::size_t requested_bytes = 0;  ///< of the allocation; 0 while it is free
  CachingAllocator* allocator = nullptr;
  FreeBlocks* home = nullptr;  ///< where it goes when it is free
  Stream* stream = nullptr;    ///< whose it is
  Block* before = nullptr;     ///< the neighbours in the segment
  Block* after = nullptr;
  Block* previous_free = nullptr;  ///< the neighbours among free blocks of its size
  Block* next_free = nullptr;
  bool allocated = false;     ///< a tensor owns it
  bool active = false;        ///< allocated, or freed and still in use by a recorded stream
  bool leaving = false;       ///< its segment is on its way back to the device
  std::size_t pending = 0;    ///< streams that it waits for, once freed
  std::vector<Stream*> uses;  ///< other streams that use it

  bool is_split() const noexcept { return before || after; }
};

/// The free blocks of one stream and one pool. The best fit is the smallest block that is large enough.
class FreeBlocks {
 public:
  explicit FreeBlocks(bool large) noexcept : is_large(large) {}
  FreeBlocks(const FreeBlocks&) = delete;
  FreeBlocks& operator=(const FreeBlocks&) = delete;

  const bool is_large;

  /// Takes out the best fit for `bytes` (a multiple of kGranuleBytes); null if there is none.
  Block* take(std::size_t bytes);

  void insert(Block* block);
  void erase(Block* block);

 private:
  // The small pool: a list for each size up to that of its segments (2 MiB, so 4096 sizes), found by two levels of bits. Constant
  // time, no memory per block, and the block that was freed last comes first: it is still in the caches.
  static constexpr std::size_t kGroups = 64, kGroupSize = 64;
  struct Group {
    std::uint64_t present = 0;
    std::array<Block*, kGroupSize> first{};
  };
  std::uint64_t present_ = 0;
  std::array<std::unique_ptr<Group>, kGroups> groups_;

  // The large pool: few blocks of many sizes, by size and address.
  std::vector<Block*> sorted_;
};

}  // namespace anyaccel::driver
