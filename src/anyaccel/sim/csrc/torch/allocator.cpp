#include "torch/allocator.h"

#include <cstring>

#include "torch/block_map.h"
#include "torch/gpu_trace.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

using driver::CachingAllocator;

c10::Device torch_device(const driver::Device& device) { return {kDeviceType, static_cast<c10::DeviceIndex>(device.index())}; }

/// Tells torch's memory profiler, if it listens, that `bytes` (negative: freed) have changed hands.
void report(void* address, std::int64_t bytes, driver::Device& device) {
  if (!c10::memoryProfilingEnabled()) return;
  const auto stats = device.allocator().stats();
  c10::reportMemoryUsageToProfiler(address, bytes, stats.allocated_bytes[0].current, stats.reserved_bytes[0].current, torch_device(device));
}

void free_block(void* address) {
  if (!address) return;
  auto* block = BlockMap::take(address);
  TORCH_CHECK(block, "No block of a ", kDeviceName, " device starts at ", address, ": it was freed before, or is none of its own.");
  trace(&TracePoints::trace_gpu_memory_deallocation, handle(address));
  auto& device = block->stream->device();
  const auto bytes = static_cast<std::int64_t>(block->bytes);
  device.allocator().free(block);
  report(address, -bytes, device);
}

c10::CachingAllocator::StatArray converted(const driver::Stats3& stats) {
  c10::CachingAllocator::StatArray result;
  for (std::size_t pool = 0; pool < result.size(); ++pool) {
    result[pool].current = stats[pool].current;
    result[pool].peak = stats[pool].peak;
    result[pool].allocated = stats[pool].allocated;
    result[pool].freed = stats[pool].freed;
  }
  return result;
}

struct SimAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override { return sim::allocate(bytes, current_stream(current_device())); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    enqueue(current_stream(device_of(to)), "copy_data", [to, from, bytes] { std::memcpy(to, from, bytes); });
  }

  bool initialized() override { return started(); }

  void emptyCache(c10::MempoolId_t) override {
    host_wait("empty_cache", [] {
      for (int index = 0; index < runtime().device_count(); ++index) runtime().device(index).allocator().empty_cache();
    });
  }

  // What another allocator made (from DLPack, say) is no business of ours, as torch.cuda has it.
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (!data.get() || data.get_deleter() != &free_block) return;
    auto* block = BlockMap::find(data.get_context());
    if (!block) return;
    auto& own = unwrap(stream);
    driver_call([&] { CachingAllocator::owner(block).record_stream(block, own); });
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    const auto stats = device_at(index).allocator().stats();
    c10::CachingDeviceAllocator::DeviceStats result;
    result.allocation = converted(stats.allocation);
    result.segment = converted(stats.segment);
    result.active = converted(stats.active);
    result.inactive_split = converted(stats.inactive_split);
    result.allocated_bytes = converted(stats.allocated_bytes);
    result.reserved_bytes = converted(stats.reserved_bytes);
    result.active_bytes = converted(stats.active_bytes);
    result.inactive_split_bytes = converted(stats.inactive_split_bytes);
    result.requested_bytes = converted(stats.requested_bytes);
    result.num_alloc_retries = stats.num_alloc_retries;
    result.num_ooms = stats.num_ooms;
    result.num_sync_all_streams = stats.num_sync_all_streams;
    result.num_device_alloc = stats.num_device_alloc;
    result.num_device_free = stats.num_device_free;
    return result;
  }

  void resetAccumulatedStats(c10::DeviceIndex index) override { device_at(index).allocator().reset_accumulated_stats(); }
  void resetPeakStats(c10::DeviceIndex index) override { device_at(index).allocator().reset_peak_stats(); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex index) override { return device_at(index).allocator().memory_info(); }
};

}  // namespace

c10::DeviceAllocator* allocator() {
  static auto* allocator = new SimAllocator;
  return allocator;
}

c10::DataPtr allocate(std::size_t bytes, driver::Stream& stream) {
  auto& device = stream.device();
  if (!bytes) return {nullptr, nullptr, &free_block, torch_device(device)};
  auto& own = device.allocator();
  auto* block = driver_call([&] {
    try {
      return own.allocate(bytes, stream);
    } catch (const driver::OutOfMemory&) {
      const auto stats = own.stats();
      c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(bytes), stats.allocated_bytes[0].current, stats.reserved_bytes[0].current,
                                       torch_device(device));
      throw;
    }
  });
  void* address = CachingAllocator::address(block);
  BlockMap::put(address, block);
  trace(&TracePoints::trace_gpu_memory_allocation, handle(address));
  report(address, static_cast<std::int64_t>(block->bytes), device);
  return {address, address, &free_block, torch_device(device)};
}

c10::DeviceIndex device_of(const void* address) {
  auto& machine = runtime();
  for (int index = 0; index < machine.device_count(); ++index) {
    if (machine.device(index).arena().contains(address)) return static_cast<c10::DeviceIndex>(index);
  }
  TORCH_CHECK_VALUE(false, "The address ", address, " belongs to no ", kDeviceName, " device.");
}

}  // namespace anyaccel::sim
