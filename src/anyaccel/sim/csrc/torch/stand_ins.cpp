#include "torch/stand_ins.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <cstring>

namespace anyaccel::sim {
namespace {

using Operand = Operands::Operand;

/// Sizes above this become this: enough for what asks for two or three of something.
constexpr std::int64_t kShrunk = 3;

std::size_t bytes_of(const Operand& operand) {
  return at::detail::computeStorageNbytes(operand.layout.sizes, operand.layout.strides, c10::elementSize(operand.layout.dtype),
                                          operand.offset);
}

void fill_with_ones(void* data, std::size_t bytes, at::ScalarType dtype) {
  switch (dtype) {
#define ANYACCEL_FILL(type, name)                                         \
  case at::ScalarType::name:                                              \
    std::fill_n(static_cast<type*>(data), bytes / sizeof(type), type(1)); \
    break;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(ANYACCEL_FILL)
#undef ANYACCEL_FILL
    default:  // types without arithmetic: zeros do
      break;
  }
}

c10::Storage storage_with(std::size_t bytes, at::ScalarType dtype, StandIn values) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, c10::GetCPUAllocator(),
                                                       /*resizable=*/true);
  if (bytes) std::memset(storage->mutable_data(), 0, bytes);
  const bool zeros = values == StandIn::kUsual && at::isIntegralType(dtype, /*includeBool=*/true);
  if (bytes && !zeros) fill_with_ones(storage->mutable_data(), bytes, dtype);
  return c10::Storage(std::move(storage));
}

std::vector<Operand> all(const Operands& operands) {
  std::vector<Operand> result;
  for (std::size_t i = 0; i < operands.size(); ++i) result.push_back(operands.at(static_cast<std::int32_t>(i)));
  return result;
}

/// How many storages `operands` lie in.
std::size_t storage_count(const std::vector<Operand>& operands) {
  std::int32_t count = 0;
  for (const auto& operand : operands) count = std::max(count, operand.storage + 1);
  return static_cast<std::size_t>(count);
}

Operand shrink(const Operand& operand) {
  auto shrunk = operand;
  for (auto& size : shrunk.layout.sizes) size = std::min(size, kShrunk);
  shrunk.layout.strides = c10::contiguous_strides(shrunk.layout.sizes);
  shrunk.offset = 0;
  return shrunk;
}

}  // namespace

Tensors stand_ins(const Operands& operands, StandIn values) {
  // Only the part that is used: a storage may be that of a view of something huge.
  const auto each = all(operands);
  std::vector<std::size_t> bytes(storage_count(each), 0);
  for (const auto& operand : each) bytes[operand.storage] = std::max(bytes[operand.storage], bytes_of(operand));
  std::vector<c10::Storage> storages(bytes.size());
  auto tensors = operands.on_cpu();
  for (std::size_t i = 0; i < each.size(); ++i) {
    if (operands.is_host(static_cast<std::int32_t>(i))) continue;
    auto& storage = storages[each[i].storage];
    if (!storage) storage = storage_with(bytes[each[i].storage], each[i].layout.dtype, values);
    tensors[i] = tensor_of(each[i], storage, c10::DispatchKey::CPU);
  }
  return tensors;
}

Tensors shrunk_stand_ins(const Operands& operands, StandIn values, c10::DeviceType device) {
  const bool meta = device == c10::kMeta;
  auto tensors = meta ? operands.on_meta() : operands.on_cpu();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    if (operands.is_host(index)) continue;
    const auto operand = shrink(operands.at(index));
    auto storage = meta ? meta_storage(bytes_of(operand)) : storage_with(bytes_of(operand), operand.layout.dtype, values);
    tensors[i] = tensor_of(operand, std::move(storage), meta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU);
  }
  return tensors;
}

double work_on(const Operands& operands, bool broadcasts) {
  double bytes = 0;
  c10::DimVector largest;  // size by dimension, the last one first
  for (const auto& operand : all(operands)) {
    double elements = 1;
    const auto& sizes = operand.layout.sizes;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto size = sizes[sizes.size() - 1 - i];
      elements *= static_cast<double>(size);
      if (i == largest.size()) largest.push_back(1);
      largest[i] = std::max(largest[i], size);
    }
    bytes += elements * static_cast<double>(c10::elementSize(operand.layout.dtype));
  }
  if (!broadcasts) return bytes;
  double elements = 1;
  for (const auto size : largest) elements *= static_cast<double>(size);
  return std::max(bytes, elements * sizeof(double));
}

}  // namespace anyaccel::sim
