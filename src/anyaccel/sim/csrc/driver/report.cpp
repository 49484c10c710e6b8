// What the allocator says about itself.
#include <algorithm>

#include "driver/allocator.h"
#include "driver/runtime.h"

namespace anyaccel::driver {

AllocatorStats CachingAllocator::stats() const {
  device_.runtime().check_not_forked();
  const Lock lock(mutex_);
  collect();
  return stats_;
}

void CachingAllocator::reset_peak_stats() {
  device_.runtime().check_not_forked();
  const Lock lock(mutex_);
  collect();
  for (Stats3* figure : stats_.figures()) {
    for (Stat& stat : *figure) stat.peak = stat.current;
  }
}

void CachingAllocator::reset_accumulated_stats() {
  device_.runtime().check_not_forked();
  const Lock lock(mutex_);
  collect();
  for (Stats3* figure : stats_.figures()) {
    for (Stat& stat : *figure) stat.allocated = stat.freed = 0;
  }
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

std::pair<std::size_t, std::size_t> CachingAllocator::memory_info() const {
  device_.runtime().check_not_forked();
  const Arena& arena = device_.arena();
  return {arena.total_bytes() - arena.used_bytes(), arena.total_bytes()};
}

void CachingAllocator::set_limit(std::size_t bytes) {
  device_.runtime().check_not_forked();
  const Lock lock(mutex_);
  limit_bytes_ = std::min(bytes, device_.arena().total_bytes());
}

std::size_t CachingAllocator::limit() const {
  device_.runtime().check_not_forked();
  const Lock lock(mutex_);
  return limit_bytes_;
}

std::vector<SegmentInfo> CachingAllocator::snapshot() const {
  device_.runtime().check_not_forked();
  const Lock lock(mutex_);
  collect();
  std::vector<SegmentInfo> segments;
  for (const auto& [address, first] : segments_) {
    SegmentInfo& segment = segments.emplace_back(SegmentInfo{address, 0, 0, 0, 0, first->stream->id(), first->home->is_large, {}});
    for (const Block* block = first; block; block = block->after) {
      segment.total_bytes += block->bytes;
      segment.requested_bytes += block->requested_bytes;
      if (block->allocated) segment.allocated_bytes += block->bytes;
      if (block->active) segment.active_bytes += block->bytes;
      segment.blocks.push_back({block->address, block->bytes, block->requested_bytes, block->allocated, block->active});
    }
  }
  return segments;
}

}  // namespace anyaccel::driver
