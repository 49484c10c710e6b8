#include "torch/operands.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/clone.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

namespace anyaccel::sim {
namespace {

c10::Storage storage_over(void* data, std::size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            c10::DataPtr(data, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
                                                            /*resizable=*/false));
}

c10::Storage meta_storage(std::size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, c10::GetAllocator(c10::kMeta),
                                                            /*resizable=*/true));
}

c10::Storage zero_storage(std::size_t bytes) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, c10::GetCPUAllocator(),
                                                       /*resizable=*/true);
  if (bytes) std::memset(storage->mutable_data(), 0, bytes);
  return c10::Storage(std::move(storage));
}

at::Tensor tensor_over(const Operands::Operand& operand, c10::Storage storage, c10::DispatchKey key) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                         c10::scalarTypeToTypeMeta(operand.layout.dtype));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(operand.layout.sizes, operand.layout.strides, operand.offset);
  if (operand.conjugate) impl->_set_conj(true);
  if (operand.negative) impl->_set_neg(true);
  if (operand.wrapped_number) impl->set_wrapped_number(true);
  return tensor;
}

/// The index of `wanted` in `known`; -1 where it is not there. Calls have few tensors: a scan beats a table.
template <class T>
std::int32_t find(const std::vector<const T*>& known, const T* wanted) {
  const auto place = std::find(known.begin(), known.end(), wanted);
  return place == known.end() ? -1 : static_cast<std::int32_t>(place - known.begin());
}

}  // namespace

Layout Layout::of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides())};
}

std::int32_t Operands::add_storage(const c10::Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  const auto known = find(storage_impls_, static_cast<const c10::StorageImpl*>(impl));
  if (known >= 0) return known;
  storages_.push_back({impl->mutable_data(), impl->nbytes(), storage.device().is_cpu() ? storage : c10::Storage()});
  storage_impls_.push_back(impl);
  return static_cast<std::int32_t>(storages_.size()) - 1;
}

std::int32_t Operands::add(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  const auto known = find(impls_, static_cast<const c10::TensorImpl*>(impl));
  if (known >= 0) return known;
  const auto needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), tensor.storage_offset());
  TORCH_CHECK(tensor.numel() == 0 || needed <= tensor.storage().nbytes(), "A tensor of shape ", tensor.sizes(), " needs ", needed,
              " bytes of its storage, which has ", tensor.storage().nbytes(),
              ": the storage was resized or released while the tensor is still in use.");
  operands_.push_back({Layout::of(tensor), tensor.storage_offset(), add_storage(tensor.storage()), tensor.is_conj(), tensor.is_neg(),
                       impl->is_wrapped_number()});
  impls_.push_back(impl);
  return static_cast<std::int32_t>(operands_.size()) - 1;
}

void Operands::refresh(std::int32_t index, const at::Tensor& tensor) {
  auto& operand = operands_[index];
  operand.layout = Layout::of(tensor);
  operand.offset = tensor.storage_offset();
  storages_[operand.storage].data = tensor.storage().mutable_data();
  storages_[operand.storage].bytes = tensor.storage().nbytes();
}

void Operands::snapshot_host_tensors() {
  for (auto& operand : operands_) {
    if (!is_host(operand)) continue;
    const auto copy = at::clone(tensor_over(operand, storages_[operand.storage].host, c10::DispatchKey::CPU));
    operand.layout = Layout::of(copy);
    operand.offset = 0;
    operand.conjugate = copy.is_conj();
    operand.negative = copy.is_neg();
    operand.storage = static_cast<std::int32_t>(storages_.size());
    storages_.push_back({copy.storage().mutable_data(), copy.storage().nbytes(), copy.storage()});
  }
}

void Operands::release_host_memory() {
  for (auto& memory : storages_) memory.host = c10::Storage();
}

void Operands::describe(std::vector<std::int64_t>& key) const {
  for (const auto& operand : operands_) {
    const auto dimensions = static_cast<std::int64_t>(operand.layout.sizes.size());
    key.push_back(static_cast<std::int64_t>(operand.layout.dtype) | dimensions << 8 | std::int64_t{operand.storage + 1} << 32 |
                  std::int64_t{operand.conjugate} << 60 | std::int64_t{operand.negative} << 61 |
                  std::int64_t{operand.wrapped_number} << 62);
    key.insert(key.end(), operand.layout.sizes.begin(), operand.layout.sizes.end());
    key.insert(key.end(), operand.layout.strides.begin(), operand.layout.strides.end());
    key.push_back(operand.offset);
  }
}

std::vector<at::Tensor> Operands::over(c10::DispatchKey key, c10::Storage (*storage_for)(const Memory&)) const {
  std::vector<c10::Storage> storages;
  storages.reserve(storages_.size());
  for (const auto& memory : storages_) storages.push_back(storage_for(memory));
  std::vector<at::Tensor> tensors;
  tensors.reserve(operands_.size());
  for (const auto& operand : operands_) {
    const auto& memory = storages_[operand.storage];
    // Python kernels, also those for Meta, are handed a wrapped number as the Python number that it is.
    const bool number = operand.wrapped_number && memory.host;
    tensors.push_back(number ? tensor_over(operand, memory.host, c10::DispatchKey::CPU)
                             : tensor_over(operand, storages[operand.storage], key));
  }
  return tensors;
}

std::vector<at::Tensor> Operands::on_cpu() const {
  return over(c10::DispatchKey::CPU,
              [](const Memory& memory) { return memory.host ? memory.host : storage_over(memory.data, memory.bytes); });
}

std::vector<at::Tensor> Operands::on_meta() const {
  return over(c10::DispatchKey::Meta, [](const Memory& memory) { return meta_storage(memory.bytes); });
}

std::vector<at::Tensor> Operands::on_zeros() const {
  return over(c10::DispatchKey::CPU, [](const Memory& memory) { return memory.host ? memory.host : zero_storage(memory.bytes); });
}

}  // namespace anyaccel::sim
