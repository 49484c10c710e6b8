#include "torch/block_map.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "driver/memory.h"

namespace anyaccel::sim {
namespace {

using Slot = std::atomic<driver::Block*>;

constexpr unsigned kBits = 13;  // of each of the three levels; with the 9 of the alignment they cover the 48 bits of an address
constexpr std::size_t kEntries = std::size_t{1} << kBits;
static_assert(driver::Arena::kAlignment == 512);

using Leaf = std::array<Slot, kEntries>;
using Branch = std::array<std::atomic<Leaf*>, kEntries>;
std::array<std::atomic<Branch*>, kEntries> root{};

std::size_t part(std::uint64_t unit, unsigned level) { return (unit >> (level * kBits)) & (kEntries - 1); }

template <class Table>
Table& child(std::atomic<Table*>& place) {
  if (auto* table = place.load(std::memory_order_acquire)) return *table;
  auto fresh = std::make_unique<Table>();
  Table* expected = nullptr;
  if (place.compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *expected;  // another thread was first
}

Slot* slot(const void* address) noexcept {
  const auto unit = reinterpret_cast<std::uintptr_t>(address) / driver::Arena::kAlignment;
  if (reinterpret_cast<std::uintptr_t>(address) % driver::Arena::kAlignment || unit >> (3 * kBits)) return nullptr;
  auto* branch = root[part(unit, 2)].load(std::memory_order_acquire);
  auto* leaf = branch ? (*branch)[part(unit, 1)].load(std::memory_order_acquire) : nullptr;
  return leaf ? &(*leaf)[part(unit, 0)] : nullptr;
}

}  // namespace

void BlockMap::put(void* address, driver::Block* block) {
  const auto unit = reinterpret_cast<std::uintptr_t>(address) / driver::Arena::kAlignment;
  TORCH_INTERNAL_ASSERT(!(unit >> (3 * kBits)), "An address of more than 48 bits");
  child(child(root[part(unit, 2)])[part(unit, 1)])[part(unit, 0)].store(block, std::memory_order_relaxed);
}

driver::Block* BlockMap::find(const void* address) noexcept {
  auto* place = slot(address);
  return place ? place->load(std::memory_order_relaxed) : nullptr;
}

driver::Block* BlockMap::take(const void* address) noexcept {
  auto* place = slot(address);
  return place ? place->exchange(nullptr, std::memory_order_relaxed) : nullptr;
}

}  // namespace anyaccel::sim
