#include "torch/pinned.h"

#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

void free_pinned(void* address) {
  if (address) runtime().pinned().free(address);
}

c10::CachingAllocator::Stat stat(std::int64_t current, std::int64_t peak) {
  c10::CachingAllocator::Stat result;
  result.current = current;
  result.peak = peak;
  return result;
}

struct PinnedAllocator final : at::HostAllocator {
  at::DataPtr allocate(std::size_t bytes) override {
    void* address = bytes ? driver_call([&] { return runtime().pinned().allocate(bytes); }) : nullptr;
    return {address, address, &free_pinned, at::Device(at::kCPU)};
  }

  at::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool record_event(void* address, void*, c10::Stream stream) override {
    auto& pinned = runtime().pinned();
    if (!pinned.contains(address)) return false;
    driver_call([&] { pinned.record_stream(address, unwrap(stream)); });
    return true;
  }

  void empty_cache() override {
    driver_call([] { runtime().pinned().empty_cache(); });
  }

  at::HostStats get_stats() override {
    const auto stats = runtime().pinned().stats();
    at::HostStats result;
    result.active_bytes = stat(stats.allocated_bytes, stats.allocated_bytes_peak);
    result.allocated_bytes = stat(stats.reserved_bytes, stats.reserved_bytes_peak);
    result.num_host_alloc = stats.num_alloc;
    result.num_host_free = stats.num_free;
    return result;
  }

  void reset_accumulated_stats() override { runtime().pinned().reset_accumulated_stats(); }
  void reset_peak_stats() override { runtime().pinned().reset_peak_stats(); }
};

}  // namespace

at::HostAllocator* pinned_allocator() {
  static auto* allocator = new PinnedAllocator;
  return allocator;
}

}  // namespace anyaccel::sim
