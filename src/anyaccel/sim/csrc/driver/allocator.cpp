#include "driver/allocator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "driver/runtime.h"

namespace anyaccel::driver {

namespace {

/// What is at most so large comes from the small pool (CUDA: kSmallSize).
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;

std::size_t rounded(std::size_t bytes) noexcept { return (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes; }

/// Less than this is not worth a block of its own: in the large pool it would only make holes.
bool worth_splitting(const Block& block, std::size_t bytes) noexcept {
  const std::size_t rest = block.bytes - bytes;
  return block.home->is_large ? rest > kSmallBytes : rest >= kGranuleBytes;
}

}  // namespace

CachingAllocator::CachingAllocator(Device& device) : device_(device), limit_bytes_(device.arena().total_bytes()) {}

CachingAllocator::~CachingAllocator() = default;

void CachingAllocator::add(Stats3& figure, const FreeBlocks& pool, std::int64_t amount) noexcept {
  figure[0].add(amount);
  figure[pool.is_large ? 2 : 1].add(amount);
}

Block* CachingAllocator::allocate(std::size_t bytes, Stream& stream) {
  Runtime& runtime = device_.runtime();
  runtime.use();
  if (bytes == 0) throw InvalidArgument("Cannot allocate 0 bytes: what is empty needs no memory.");
  if (&stream.device() != &device_) {
    throw InvalidArgument("Cannot allocate on device " + std::to_string(device_.index()) + " for a stream of device " +
                          std::to_string(stream.device().index()) + ": use that device's allocator.");
  }
  Lock lock(mutex_);
  collect();
  // Beyond the device's memory nothing can be found; rounding must not overflow.
  const std::size_t size = rounded(std::min(bytes, device_.arena().total_bytes() + 1));
  Block* block = find(size, stream);
  if (!block) block = add_segment(size, stream);
  if (!block) block = reclaim(lock, bytes, size, stream);

  if (worth_splitting(*block, size)) {
    split(block, size);
  } else if (block->is_split()) {
    add(stats_.inactive_split, *block->home, -1);
    add(stats_.inactive_split_bytes, *block->home, -static_cast<std::int64_t>(block->bytes));
  }
  block->allocated = block->active = true;
  block->requested_bytes = bytes;
  const auto got = static_cast<std::int64_t>(block->bytes);
  add(stats_.allocation, *block->home, 1);
  add(stats_.allocated_bytes, *block->home, got);
  add(stats_.active, *block->home, 1);
  add(stats_.active_bytes, *block->home, got);
  add(stats_.requested_bytes, *block->home, static_cast<std::int64_t>(bytes));
  if (Trace* trace = runtime.observer()) trace->allocated(stream, block->address, block->bytes);
  return block;
}

FreeBlocks& CachingAllocator::pool(std::size_t bytes, const Stream& stream) {
  const auto id = static_cast<std::size_t>(stream.id());
  if (id >= pools_.size()) pools_.resize(id + 1);
  if (!pools_[id]) pools_[id] = std::make_unique<Pools>();
  return bytes <= kSmallBytes ? pools_[id]->small : pools_[id]->large;
}

Block* CachingAllocator::find(std::size_t bytes, Stream& stream) { return pool(bytes, stream).take(bytes); }

void CachingAllocator::split(Block* block, std::size_t bytes) {
  Block* rest = new_block();
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->home = block->home;
  rest->stream = block->stream;
  rest->before = block;
  rest->after = block->after;
  if (rest->after) rest->after->before = rest;

  // CUDA's figures: of a block that was a split one already, only the bytes that go are lost.
  if (block->is_split()) {
    add(stats_.inactive_split_bytes, *block->home, -static_cast<std::int64_t>(bytes));
  } else {
    add(stats_.inactive_split, *block->home, 1);
    add(stats_.inactive_split_bytes, *block->home, static_cast<std::int64_t>(rest->bytes));
  }
  block->after = rest;
  block->bytes = bytes;
  rest->home->insert(rest);
}

void CachingAllocator::free(Block* block) noexcept {
  Runtime& runtime = device_.runtime();
  // A thread that stayed in the parent may have the mutex.
  if (runtime.forked()) return;
  std::vector<Stream*> uses;
  {
    const Lock lock(mutex_);
    if (Trace* trace = runtime.observer()) trace->freed(*block->stream, block->address, block->bytes);
    block->allocated = false;
    add(stats_.allocation, *block->home, -1);
    add(stats_.allocated_bytes, *block->home, -static_cast<std::int64_t>(block->bytes));
    if (block->uses.empty()) {
      make_free(block);
      collect();
      return;
    }
    uses = std::exchange(block->uses, {});
  }
  auto marks = PendingBlocks<Block>::marks(uses);
  const Lock lock(mutex_);
  if (!pending_.add(block, std::move(marks))) make_free(block);
}

void CachingAllocator::make_free(Block* block) {
  // From here on the block is its stream's to give away. A schedule that poisons freed memory appends its task there and here.
  FreeBlocks& home = *block->home;
  const auto bytes = static_cast<std::int64_t>(block->bytes);
  add(stats_.active, home, -1);
  add(stats_.active_bytes, home, -bytes);
  add(stats_.requested_bytes, home, -static_cast<std::int64_t>(block->requested_bytes));
  block->active = false;
  block->requested_bytes = 0;

  std::int64_t split_count = 0, split_bytes = 0;
  for (Block* neighbour : {block->before, block->after}) {
    if (!neighbour || neighbour->active) continue;
    --split_count;
    split_bytes -= static_cast<std::int64_t>(neighbour->bytes);
    block = merge(block, neighbour);
  }
  if (block->is_split()) {
    ++split_count;
    split_bytes += static_cast<std::int64_t>(block->bytes);
  }
  if (split_count != 0) add(stats_.inactive_split, home, split_count);
  if (split_bytes != 0) add(stats_.inactive_split_bytes, home, split_bytes);
  home.insert(block);
}

/// One block of two neighbours, the second of which is among the free ones. The lower one stays, so that the first block of a
/// segment is always the same.
Block* CachingAllocator::merge(Block* block, Block* neighbour) {
  neighbour->home->erase(neighbour);
  Block* lower = block->before == neighbour ? neighbour : block;
  Block* upper = lower->after;
  lower->bytes += upper->bytes;
  lower->after = upper->after;
  if (lower->after) lower->after->before = lower;
  drop_block(upper);
  return lower;
}

void CachingAllocator::record_stream(Block* block, Stream& stream) {
  device_.runtime().check_not_forked();
  const Lock lock(mutex_);
  if (Trace* trace = device_.runtime().observer()) trace->used_on(stream, block->address);
  if (block->stream == &stream) return;
  if (std::find(block->uses.begin(), block->uses.end(), &stream) == block->uses.end()) block->uses.push_back(&stream);
}

void CachingAllocator::collect() const {
  if (!pending_.empty()) {
    pending_.poll([this](Block* block) { const_cast<CachingAllocator*>(this)->make_free(block); });
  }
}

Block* CachingAllocator::new_block() {
  if (!spare_blocks_) {
    Block& block = all_blocks_.emplace_back();
    block.allocator = this;
    return &block;
  }
  return std::exchange(spare_blocks_, spare_blocks_->next_free);
}

void CachingAllocator::drop_block(Block* block) {
  block->before = block->after = nullptr;
  block->requested_bytes = 0;
  block->next_free = std::exchange(spare_blocks_, block);
}

}  // namespace anyaccel::driver
