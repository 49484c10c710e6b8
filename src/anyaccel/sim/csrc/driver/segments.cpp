// The allocator's dealings with the device: segments taken, handed back, and what happens when there are no more.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "driver/allocator.h"
#include "driver/runtime.h"

namespace anyaccel::driver {

namespace {

constexpr std::size_t kMebi = std::size_t{1} << 20;

/// How large a segment is taken for a block of so many bytes. CUDA's sizes: few calls for small blocks, little waste for large.
std::size_t segment_bytes(std::size_t bytes) noexcept {
  if (bytes <= kMebi) return 2 * kMebi;
  if (bytes < 10 * kMebi) return 20 * kMebi;
  return (bytes + 2 * kMebi - 1) / (2 * kMebi) * (2 * kMebi);
}

std::string readable(std::size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  const char* unit = "KiB";
  double amount = static_cast<double>(bytes) / 1024;
  for (const char* larger : {"MiB", "GiB"}) {
    if (amount < 1024) break;
    amount /= 1024;
    unit = larger;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", amount, unit);
  return text;
}

}  // namespace

/// A thread's turn to give memory back.
class CachingAllocator::Reclaiming {
 public:
  explicit Reclaiming(CachingAllocator& allocator) : allocator_(allocator) {
    runtime().sleep_until(&allocator_, [this] { return !allocator_.reclaiming_.exchange(true); });
  }
  Reclaiming(const Reclaiming&) = delete;
  Reclaiming& operator=(const Reclaiming&) = delete;
  ~Reclaiming() {
    allocator_.reclaiming_.store(false);
    runtime().waiting_room().wake(&allocator_);
  }

 private:
  Runtime& runtime() const { return allocator_.device_.runtime(); }

  CachingAllocator& allocator_;
};

Block* CachingAllocator::add_segment(std::size_t bytes, Stream& stream) {
  const std::size_t size = segment_bytes(bytes);
  const auto reserved = static_cast<std::size_t>(stats_.reserved_bytes[0].current);
  if (size > limit_bytes_ || reserved > limit_bytes_ - size) return nullptr;
  auto* address = static_cast<std::byte*>(device_.arena().allocate(size));
  if (!address) return nullptr;
  Block* block = new_block();
  block->address = address;
  block->bytes = size;
  block->home = &pool(bytes, stream);
  block->stream = &stream;
  segments_.emplace(address, block);
  add(stats_.segment, *block->home, 1);
  add(stats_.reserved_bytes, *block->home, static_cast<std::int64_t>(size));
  ++stats_.num_device_alloc;
  return block;
}

Block* CachingAllocator::reclaim(Lock& lock, std::size_t requested_bytes, std::size_t bytes, Stream& stream) {
  if (Stream::inside_task()) throw_out_of_memory(requested_bytes);  // A task cannot wait for the device.
  lock.unlock();
  const Reclaiming turn(*this);
  lock.lock();
  const auto retry = [&] {
    collect();
    Block* block = find(bytes, stream);
    return block ? block : add_segment(bytes, stream);
  };
  if (Block* block = retry()) return block;
  if (auto enough = smallest_that_suffice(segment_bytes(bytes)); !enough.empty()) {
    hand_back(lock, std::move(enough));
    if (Block* block = retry()) return block;
  }
  ++stats_.num_alloc_retries;
  hand_back_all(lock);
  if (Block* block = retry()) return block;
  throw_out_of_memory(requested_bytes);
}

std::vector<Block*> CachingAllocator::unused_segments() const {
  std::vector<Block*> unused;
  for (const auto& [address, first] : segments_) {
    if (!first->active && !first->after && !first->leaving) unused.push_back(first);
  }
  return unused;
}

std::vector<Block*> CachingAllocator::smallest_that_suffice(std::size_t segment_bytes) const {
  const auto reserved = static_cast<std::size_t>(stats_.reserved_bytes[0].current);
  const std::size_t total = std::min(limit_bytes_, device_.arena().total_bytes());
  if (segment_bytes > total) return {};
  const std::size_t missing = reserved + segment_bytes > total ? reserved + segment_bytes - total : 0;
  auto segments = unused_segments();
  std::sort(segments.begin(), segments.end(), [](const Block* left, const Block* right) { return left->bytes < right->bytes; });
  const auto one = std::find_if(segments.begin(), segments.end(), [missing](const Block* block) { return block->bytes >= missing; });
  if (one != segments.end()) return {*one};
  std::vector<Block*> enough;
  std::size_t bytes = 0;
  for (auto largest = segments.rbegin(); largest != segments.rend() && bytes < missing; ++largest) {
    bytes += (*largest)->bytes;
    enough.push_back(*largest);
  }
  return bytes >= missing ? enough : std::vector<Block*>{};
}

void CachingAllocator::hand_back(Lock& lock, std::vector<Block*> segments) {
  // Out of the pools first: what is used from now on would not be waited for.
  for (Block* block : segments) {
    block->home->erase(block);
    block->leaving = true;
  }
  try {
    wait_for_device(lock);
  } catch (...) {
    for (Block* block : segments) {
      block->leaving = false;
      block->home->insert(block);
    }
    throw;
  }
  for (Block* block : segments) {
    device_.arena().free(block->address, block->bytes);
    add(stats_.segment, *block->home, -1);
    add(stats_.reserved_bytes, *block->home, -static_cast<std::int64_t>(block->bytes));
    ++stats_.num_device_free;
    segments_.erase(block->address);
    block->leaving = false;
    drop_block(block);
  }
}

void CachingAllocator::hand_back_all(Lock& lock) {
  wait_for_device(lock);
  ++stats_.num_sync_all_streams;
  collect();
  if (auto unused = unused_segments(); !unused.empty()) hand_back(lock, std::move(unused));
}

void CachingAllocator::wait_for_device(Lock& lock) {
  lock.unlock();
  try {
    device_.drain();
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
}

void CachingAllocator::empty_cache() {
  device_.runtime().check_usable();
  const Reclaiming turn(*this);
  Lock lock(mutex_);
  if (!segments_.empty()) hand_back_all(lock);
}

void CachingAllocator::throw_out_of_memory(std::size_t requested_bytes) {
  ++stats_.num_ooms;
  const Arena& arena = device_.arena();
  const auto allocated = static_cast<std::size_t>(stats_.allocated_bytes[0].current);
  const auto reserved = static_cast<std::size_t>(stats_.reserved_bytes[0].current);
  const std::string limit = limit_bytes_ < arena.total_bytes() ? readable(limit_bytes_) + " allowed; " : "";
  throw OutOfMemory(std::string(kDeviceName) + " out of memory. Tried to allocate " + readable(requested_bytes) + ". " + kDeviceName + ":" +
                    std::to_string(device_.index()) + " has a total capacity of " + readable(arena.total_bytes()) + " of which " +
                    readable(arena.total_bytes() - arena.used_bytes()) + " is free. " + limit + readable(allocated) +
                    " is allocated by PyTorch, and " + readable(reserved - allocated) + " is reserved by PyTorch but unallocated.");
}

}  // namespace anyaccel::driver
