#include "driver/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "driver/errors.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace anyaccel::driver {

namespace {

/// From here on huge pages pay; for less they would commit memory that nobody uses.
[[maybe_unused]] constexpr std::size_t kHugePagesFrom = std::size_t{16} << 20;

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

Arena::Arena(std::size_t bytes)
    : page_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
      bytes_(bytes / page_bytes_ * page_bytes_),
      span_bytes_(whole_pages(bytes_ + bytes_ / 4)) {}

Arena::~Arena() {
  if (const auto base = base_.load(std::memory_order_relaxed)) munmap(reinterpret_cast<void*>(base), span_bytes_);
}

std::size_t Arena::whole_pages(std::size_t bytes) const noexcept { return (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_; }

void Arena::reserve() {
  void* base = mmap(nullptr, span_bytes_, PROT_NONE, kReserved, -1, 0);
  if (base == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            "Cannot reserve " + std::to_string(span_bytes_) + " bytes of address space for a simulated device of " +
                                std::to_string(bytes_) +
                                " bytes; give the devices less memory, simulate fewer of them, or raise the limit (ulimit -v)");
  }
  holes_.emplace(reinterpret_cast<std::uintptr_t>(base), span_bytes_);
  base_.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);
}

void* Arena::allocate(std::size_t bytes) {
  // Before rounding, which could overflow.
  if (bytes == 0 || bytes > bytes_) return nullptr;
  bytes = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  if (bytes > bytes_ - used_bytes_) return nullptr;
  if (base_.load(std::memory_order_relaxed) == 0) reserve();

  auto best = holes_.end();
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second >= bytes && (best == holes_.end() || hole->second < best->second)) best = hole;
  }
  if (best == holes_.end()) return nullptr;
  const auto [address, size] = *best;
  void* range = reinterpret_cast<void*>(address);
  if (mprotect(range, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  madvise(range, bytes, bytes >= kHugePagesFrom ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif

  holes_.erase(best);
  if (size > bytes) holes_.emplace(address + bytes, size - bytes);
  used_bytes_ += bytes;
  return range;
}

void Arena::free(void* range, std::size_t bytes) noexcept {
  bytes = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  // A new mapping in place of the old one: the same on every system, and the pages are gone at once.
  mmap(range, bytes, PROT_NONE, kReserved | MAP_FIXED, -1, 0);
  used_bytes_ -= bytes;

  auto hole = holes_.emplace(reinterpret_cast<std::uintptr_t>(range), bytes).first;
  if (const auto next = std::next(hole); next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole != holes_.begin()) {
    if (const auto before = std::prev(hole); before->first + before->second == hole->first) {
      before->second += hole->second;
      holes_.erase(hole);
    }
  }
}

std::size_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

bool Arena::contains(const void* address) const noexcept {
  const auto base = base_.load(std::memory_order_acquire);
  return base != 0 && reinterpret_cast<std::uintptr_t>(address) - base < span_bytes_;
}

}  // namespace anyaccel::driver
