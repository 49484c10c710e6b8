#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace anyaccel::driver {

/// One figure over time; all in the unit of the figure (a count or bytes).
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;

  void add(std::int64_t amount) noexcept {
    current += amount;
    peak = std::max(peak, current);
    (amount > 0 ? allocated : freed) += amount > 0 ? amount : -amount;
  }
};

/// A figure for all memory, the small pool and the large pool, in this order.
using Stats3 = std::array<Stat, 3>;

/// What CUDA's caching allocator counts (c10::CachingDeviceAllocator::DeviceStats).
struct AllocatorStats {
  Stats3 allocation, segment, active, inactive_split;
  Stats3 allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;

  std::array<Stats3*, 9> figures() noexcept {
    return {&allocation,           &segment,        &active, &inactive_split, &allocated_bytes, &reserved_bytes, &active_bytes,
            &inactive_split_bytes, &requested_bytes};
  }
};

}  // namespace anyaccel::driver
