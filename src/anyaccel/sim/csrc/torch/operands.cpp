#include "torch/operands.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/clone.h>
#include <c10/core/Allocator.h>

#include <algorithm>

namespace anyaccel::sim {
namespace {

constexpr std::int64_t kConjugate = std::int64_t{1} << 60;
constexpr std::int64_t kNegative = std::int64_t{1} << 61;
constexpr std::int64_t kWrappedNumber = std::int64_t{1} << 62;

c10::Storage storage_over(void* data, std::size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            c10::DataPtr(data, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
                                                            /*resizable=*/false));
}

at::ScalarType dtype_of(std::int64_t head) noexcept { return static_cast<at::ScalarType>(head & 0xff); }

at::Tensor tensor_over(std::int64_t head, c10::IntArrayRef sizes, c10::IntArrayRef strides, std::int64_t offset, c10::Storage storage,
                       c10::DispatchKey key) {
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype_of(head)));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  if (head & kConjugate) impl->_set_conj(true);
  if (head & kNegative) impl->_set_neg(true);
  if (head & kWrappedNumber) impl->set_wrapped_number(true);
  return tensor;
}

/// The index of `wanted` in `known`; -1 where it is not there. Calls have few tensors: a scan beats a table.
template <class Known, class T>
std::int32_t find(const Known& known, const T* wanted) {
  const auto place = std::find(known.begin(), known.end(), wanted);
  return place == known.end() ? -1 : static_cast<std::int32_t>(place - known.begin());
}

/// True if all elements lie in the storage: the usual case without a look at the strides.
bool in_bounds(const c10::TensorImpl& tensor, std::size_t available) {
  const auto item = tensor.dtype().itemsize();
  if (tensor.is_contiguous()) return static_cast<std::uint64_t>(tensor.numel() + tensor.storage_offset()) <= available / item;
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), item, tensor.storage_offset()) <= available;
}

}  // namespace

Layout Layout::of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides())};
}

std::int64_t Operands::head(const c10::TensorImpl& tensor, std::int32_t storage) noexcept {
  const auto keys = tensor.key_set();
  return static_cast<std::int64_t>(c10::typeMetaToScalarType(tensor.dtype())) | tensor.dim() << 8 | std::int64_t{storage} << 32 |
         (keys.has(c10::DispatchKey::Conjugate) ? kConjugate : 0) | (keys.has(c10::DispatchKey::Negative) ? kNegative : 0) |
         (tensor.is_wrapped_number() ? kWrappedNumber : 0);
}

std::int32_t Operands::storage_of(std::int32_t index) const noexcept {
  return static_cast<std::int32_t>(words_[starts_[index]] >> 32 & 0xffffff);
}

c10::IntArrayRef Operands::sizes(std::int32_t index) const noexcept {
  const auto* const words = words_.data() + starts_[index];
  return {words + 1, static_cast<std::size_t>(words[0] >> 8 & 0xffffff)};
}

c10::IntArrayRef Operands::strides(std::int32_t index) const noexcept {
  const auto dimensions = sizes(index).size();
  return {words_.data() + starts_[index] + 1 + dimensions, dimensions};
}

bool Operands::overlaps_itself(std::int32_t index) const noexcept {
  const auto its_sizes = sizes(index), its_strides = strides(index);
  for (std::size_t i = 0; i < its_sizes.size(); ++i) {
    if (its_sizes[i] > 1 && its_strides[i] == 0) return true;
  }
  return false;
}

bool Operands::is_conjugate(std::int32_t index) const noexcept { return (words_[starts_[index]] & kConjugate) != 0; }

bool Operands::is_negative(std::int32_t index) const noexcept { return (words_[starts_[index]] & kNegative) != 0; }

Operands::Operand Operands::at(std::int32_t index) const {
  const auto head = words_[starts_[index]];
  return {{dtype_of(head), c10::DimVector(sizes(index)), c10::DimVector(strides(index))},
          offsets_[index],
          storage_of(index),
          is_conjugate(index),
          is_negative(index),
          (head & kWrappedNumber) != 0};
}

std::int32_t Operands::add_storage(const c10::Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  const auto known = find(storage_impls_, static_cast<const c10::StorageImpl*>(impl));
  if (known >= 0) return known;
  storages_.push_back({impl->mutable_data(), impl->nbytes(), impl->device_type() == c10::kCPU ? storage : c10::Storage()});
  storage_impls_.push_back(impl);
  return static_cast<std::int32_t>(storages_.size()) - 1;
}

std::int32_t Operands::add(const at::Tensor& tensor) {
  const auto* const impl = tensor.unsafeGetTensorImpl();
  const auto known = find(impls_, impl);
  if (known >= 0) return known;
  const auto storage = add_storage(impl->unsafe_storage());
  TORCH_CHECK(impl->numel() == 0 || in_bounds(*impl, storages_[storage].bytes), "A tensor of shape ", tensor.sizes(),
              " needs more bytes of its storage than the ", storages_[storage].bytes,
              " that there are: the storage was resized or released while the tensor is still in use.");
  const auto sizes = impl->sizes(), strides = impl->strides();
  const auto start = words_.size();
  starts_.push_back(static_cast<std::int32_t>(start));
  words_.resize_for_overwrite(start + 1 + 2 * sizes.size());
  auto* const words = words_.data() + start;
  words[0] = head(*impl, storage);
  std::copy(sizes.begin(), sizes.end(), words + 1);
  std::copy(strides.begin(), strides.end(), words + 1 + sizes.size());
  offsets_.push_back(impl->storage_offset());
  impls_.push_back(impl);
  return static_cast<std::int32_t>(starts_.size()) - 1;
}

void Operands::refresh(std::int32_t index, const at::Tensor& tensor) {
  const auto storage = storage_of(index);
  const auto previous = sizes(index).size(), now = static_cast<std::size_t>(tensor.dim());
  auto* const place = words_.begin() + starts_[index];
  if (now > previous) {
    words_.insert(place + 1, 2 * (now - previous), 0);
  } else {
    words_.erase(place + 1, place + 1 + 2 * (previous - now));
  }
  for (auto later = static_cast<std::size_t>(index) + 1; later < starts_.size(); ++later) {
    starts_[later] += 2 * (static_cast<std::int32_t>(now) - static_cast<std::int32_t>(previous));
  }
  auto* const words = words_.begin() + starts_[index];
  words[0] = head(*tensor.unsafeGetTensorImpl(), storage);
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), words + 1);
  std::copy(tensor.strides().begin(), tensor.strides().end(), words + 1 + now);
  offsets_[index] = tensor.storage_offset();
  storages_[storage].data = tensor.storage().mutable_data();
  storages_[storage].bytes = tensor.storage().nbytes();
}

void Operands::snapshot_host_tensors() {
  for (std::int32_t index = 0; index < static_cast<std::int32_t>(size()); ++index) {
    // A wrapped number was made for this very call: nobody can change it.
    if (!is_host(index) || words_[starts_[index]] & kWrappedNumber) continue;
    const auto copy = at::clone(tensor_of(at(index), storages_[storage_of(index)].host, c10::DispatchKey::CPU));
    const auto storage = static_cast<std::int32_t>(storages_.size());
    storages_.push_back({copy.storage().mutable_data(), copy.storage().nbytes(), copy.storage()});
    words_[starts_[index]] = head(*copy.unsafeGetTensorImpl(), storage);
    refresh(index, copy);
  }
}

void Operands::release_host_memory() {
  for (auto& memory : storages_) memory.host = c10::Storage();
}

void Operands::describe(Words& key) const {
  key.append(words_.begin(), words_.end());
  // Where memory is shared, what overlaps what matters as well.
  if (storages_.size() != size()) key.append(offsets_.begin(), offsets_.end());
}

void Operands::describe_kind(Words& key) const {
  for (const auto start : starts_) key.push_back(words_[start]);
}

Tensors Operands::over(c10::DispatchKey key, c10::Storage (*storage_for)(const Memory&)) const {
  c10::SmallVector<c10::Storage, 6> storages;
  for (const auto& memory : storages_) storages.push_back(storage_for(memory));
  Tensors tensors;
  for (std::int32_t index = 0; index < static_cast<std::int32_t>(size()); ++index) {
    const auto head = words_[starts_[index]];
    const auto storage = storage_of(index);
    // Python kernels, also those for Meta, are handed a wrapped number as the Python number that it is.
    const bool number = head & kWrappedNumber && storages_[storage].host;
    tensors.push_back(tensor_over(head, sizes(index), strides(index), offsets_[index], number ? storages_[storage].host : storages[storage],
                                  number ? c10::DispatchKey::CPU : key));
  }
  return tensors;
}

Tensors Operands::on_cpu() const {
  return over(c10::DispatchKey::CPU,
              [](const Memory& memory) { return memory.host ? memory.host : storage_over(memory.data, memory.bytes); });
}

Tensors Operands::on_meta() const {
  return over(c10::DispatchKey::Meta, [](const Memory& memory) { return meta_storage(memory.bytes); });
}

c10::Storage meta_storage(std::size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, c10::GetAllocator(c10::kMeta),
                                                            /*resizable=*/true));
}

at::Tensor tensor_of(const Operands::Operand& operand, c10::Storage storage, c10::DispatchKey key) {
  const auto head = static_cast<std::int64_t>(operand.layout.dtype) | (operand.conjugate ? kConjugate : 0) |
                    (operand.negative ? kNegative : 0) | (operand.wrapped_number ? kWrappedNumber : 0);
  return tensor_over(head, operand.layout.sizes, operand.layout.strides, operand.offset, std::move(storage), key);
}

}  // namespace anyaccel::sim
