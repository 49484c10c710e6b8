#include "driver/pinned.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "driver/runtime.h"

namespace anyaccel::driver {

namespace {

std::size_t order(std::size_t bytes) noexcept { return static_cast<std::size_t>(std::countr_zero(bytes)); }

}  // namespace

PinnedMemory::PinnedMemory(Runtime& runtime) : runtime_(runtime), page_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {}

PinnedMemory::~PinnedMemory() {
  for (auto& [address, block] : blocks_) munmap(block->address, block->bytes);
}

void* PinnedMemory::allocate(std::size_t bytes) {
  runtime_.use();
  if (bytes > (std::size_t{1} << 62)) throw std::bad_alloc();
  const std::size_t size = std::bit_ceil(std::max(bytes, page_bytes_));
  const std::lock_guard lock(mutex_);
  collect();
  auto& cached = free_[order(size)];
  Block* block;
  if (cached.empty()) {
    block = map(size);
  } else {
    block = cached.back();
    cached.pop_back();
  }
  block->allocated = true;
  stats_.allocated_bytes += static_cast<std::int64_t>(size);
  stats_.allocated_bytes_peak = std::max(stats_.allocated_bytes_peak, stats_.allocated_bytes);
  return block->address;
}

PinnedMemory::Block* PinnedMemory::map(std::size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  ++stats_.num_alloc;
  stats_.reserved_bytes += static_cast<std::int64_t>(bytes);
  stats_.reserved_bytes_peak = std::max(stats_.reserved_bytes_peak, stats_.reserved_bytes);
  auto& block = blocks_[reinterpret_cast<std::uintptr_t>(address)];
  block = std::make_unique<Block>(Block{static_cast<std::byte*>(address), bytes, false, 0, {}});
  return block.get();
}

void PinnedMemory::free(void* address) noexcept {
  if (runtime_.forked()) return;
  Block* block;
  std::vector<Stream*> uses;
  {
    const std::lock_guard lock(mutex_);
    block = find(address);
    if (!block) return;
    block->allocated = false;
    if (block->uses.empty()) return keep(block);
    uses = std::exchange(block->uses, {});
  }
  auto marks = PendingBlocks<Block>::marks(uses);
  const std::lock_guard lock(mutex_);
  if (!pending_.add(block, std::move(marks))) keep(block);
}

void PinnedMemory::keep(Block* block) const {
  stats_.allocated_bytes -= static_cast<std::int64_t>(block->bytes);
  free_[order(block->bytes)].push_back(block);
}

void PinnedMemory::collect() const {
  if (!pending_.empty()) pending_.poll([this](Block* block) { keep(block); });
}

PinnedMemory::Block* PinnedMemory::find(const void* address) const {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  auto after = blocks_.upper_bound(where);
  if (after == blocks_.begin()) return nullptr;
  Block* block = std::prev(after)->second.get();
  return block->allocated && where - std::prev(after)->first < block->bytes ? block : nullptr;
}

bool PinnedMemory::contains(const void* address) const {
  if (runtime_.forked()) return false;
  const std::shared_lock lock(mutex_);
  return find(address) != nullptr;
}

void PinnedMemory::record_stream(const void* address, Stream& stream) {
  runtime_.check_not_forked();
  const std::lock_guard lock(mutex_);
  Block* block = find(address);
  if (!block) throw InvalidArgument("Cannot record a stream on host memory that is not pinned: allocate it with pin_memory.");
  if (std::find(block->uses.begin(), block->uses.end(), &stream) == block->uses.end()) block->uses.push_back(&stream);
}

void PinnedMemory::empty_cache() {
  runtime_.check_not_forked();
  const std::lock_guard lock(mutex_);
  collect();
  for (auto& blocks : free_) {
    for (Block* block : blocks) {
      munmap(block->address, block->bytes);
      ++stats_.num_free;
      stats_.reserved_bytes -= static_cast<std::int64_t>(block->bytes);
      blocks_.erase(reinterpret_cast<std::uintptr_t>(block->address));
    }
    blocks.clear();
  }
}

PinnedStats PinnedMemory::stats() const {
  runtime_.check_not_forked();
  const std::lock_guard lock(mutex_);
  collect();
  return stats_;
}

void PinnedMemory::reset_peak_stats() {
  runtime_.check_not_forked();
  const std::lock_guard lock(mutex_);
  collect();
  stats_.allocated_bytes_peak = stats_.allocated_bytes;
  stats_.reserved_bytes_peak = stats_.reserved_bytes;
}

void PinnedMemory::reset_accumulated_stats() {
  runtime_.check_not_forked();
  const std::lock_guard lock(mutex_);
  stats_.num_alloc = stats_.num_free = 0;
}

}  // namespace anyaccel::driver
