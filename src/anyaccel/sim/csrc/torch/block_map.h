#pragma once
#include "driver/allocator.h"

namespace anyaccel::sim {

/// Finds the block that starts at an address, without locks: a three-level table over the address space, like the hardware's own.
///
/// torch frees raw allocations by their address alone. The tables are never given back: 64 KiB for 4 MiB of device memory.
class BlockMap {
 public:
  static void put(void* address, driver::Block* block);

  /// Null for an address where no block starts.
  static driver::Block* find(const void* address) noexcept;

  /// The block, which is then forgotten.
  static driver::Block* take(const void* address) noexcept;
};

}  // namespace anyaccel::sim
