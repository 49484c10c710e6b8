#include "driver/blocks.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace anyaccel::driver {

namespace {

bool smaller(const Block* left, const Block* right) noexcept {
  return std::pair(left->bytes, left->address) < std::pair(right->bytes, right->address);
}

/// The bits from `index` on.
std::uint64_t from(std::size_t index) noexcept { return index < 64 ? ~std::uint64_t{0} << index : 0; }

std::size_t size_class(std::size_t bytes) noexcept { return bytes / kGranuleBytes - 1; }

}  // namespace

Block* FreeBlocks::take(std::size_t bytes) {
  if (is_large) {
    const auto fit = std::lower_bound(sorted_.begin(), sorted_.end(), bytes,
                                      [](const Block* block, std::size_t wanted) { return block->bytes < wanted; });
    if (fit == sorted_.end()) return nullptr;
    Block* block = *fit;
    sorted_.erase(fit);
    return block;
  }
  const std::size_t wanted = size_class(bytes);
  std::size_t group = wanted / kGroupSize;
  std::uint64_t fits = 0;
  if (present_ >> group & 1) fits = groups_[group]->present & from(wanted % kGroupSize);
  if (fits == 0) {
    const std::uint64_t larger = present_ & from(group + 1);
    if (larger == 0) return nullptr;
    group = static_cast<std::size_t>(std::countr_zero(larger));
    fits = groups_[group]->present;
  }
  Block* block = groups_[group]->first[static_cast<std::size_t>(std::countr_zero(fits))];
  erase(block);
  return block;
}

void FreeBlocks::insert(Block* block) {
  if (is_large) {
    sorted_.insert(std::lower_bound(sorted_.begin(), sorted_.end(), block, smaller), block);
    return;
  }
  const std::size_t size = size_class(block->bytes);
  auto& group = groups_[size / kGroupSize];
  if (!group) group = std::make_unique<Group>();
  Block*& first = group->first[size % kGroupSize];
  block->previous_free = nullptr;
  block->next_free = first;
  if (first) first->previous_free = block;
  first = block;
  group->present |= std::uint64_t{1} << size % kGroupSize;
  present_ |= std::uint64_t{1} << size / kGroupSize;
}

void FreeBlocks::erase(Block* block) {
  if (is_large) {
    sorted_.erase(std::lower_bound(sorted_.begin(), sorted_.end(), block, smaller));
    return;
  }
  if (block->next_free) block->next_free->previous_free = block->previous_free;
  if (block->previous_free) {
    block->previous_free->next_free = block->next_free;
    return;
  }
  const std::size_t size = size_class(block->bytes);
  Group& group = *groups_[size / kGroupSize];
  group.first[size % kGroupSize] = block->next_free;
  if (block->next_free) return;
  group.present &= ~(std::uint64_t{1} << size % kGroupSize);
  if (group.present == 0) present_ &= ~(std::uint64_t{1} << size / kGroupSize);
}

}  // namespace anyaccel::driver
