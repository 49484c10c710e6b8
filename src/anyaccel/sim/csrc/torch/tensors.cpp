// Memory and shape: what makes a tensor, gives it another shape over the same memory, or another memory.
#include "torch/tensors.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device device_or_current(std::optional<c10::Device> device) {
  return c10::Device(c10::kPrivateUse1, device && device->has_index() ? device->index() : current_device());
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided, "sim has no tensors of layout ", *layout,
                              ". Use a dense tensor, or keep this one on the CPU.");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

at::Tensor fresh(at::TensorBase base) {
  at::Tensor tensor(std::move(base));
  auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                               std::optional<c10::Device> device, std::optional<bool> pin_memory,
                               std::optional<c10::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(device_or_current(device));
  return fresh(at::detail::empty_generic(size, c10::GetAllocator(c10::kPrivateUse1), kKeys, c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(device_or_current(device));
  return fresh(at::detail::empty_strided_generic(size, stride, c10::GetAllocator(c10::kPrivateUse1), kKeys, c10::dtype_or_default(dtype)));
}

/// Makes the storage hold `bytes`: on the stream, through the hooks (torch's own resize_ copies on the host, at once).
void grow(const c10::Storage& storage, std::size_t bytes) {
  if (bytes > storage.nbytes()) at::native::resize_bytes_nocuda(storage, static_cast<std::int64_t>(bytes));
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(size);
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    if (c10::multiply_integers(size)) {
      grow(self.storage(), at::detail::computeStorageNbytesContiguous(size, self.dtype().itemsize(), self.storage_offset()));
    }
    impl->set_sizes_contiguous(size);
  }
  if (memory_format) {
    TORCH_CHECK(*memory_format != c10::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, std::int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  const c10::DeviceGuard guard(self.device());
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  const auto strides = stride.data() ? c10::DimVector(stride) : c10::contiguous_strides(size);
  const auto bytes = at::detail::computeStorageNbytes(size, strides, self.dtype().itemsize(), offset);
  grow(self.storage(), bytes);
  impl->set_sizes_and_strides(size, strides);
  return self;
}

at::Tensor& set_nothing(at::Tensor& self) {
  const auto empty = at::detail::empty_generic({0}, c10::GetAllocator(c10::kPrivateUse1), kKeys, self.scalar_type(), std::nullopt);
  return set_storage_offset(self, empty.storage(), 0, {0}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
  guard.recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

}  // namespace

at::Tensor make_tensor(const Layout& layout, c10::DeviceIndex device) {
  const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, device));
  return fresh(at::detail::empty_strided_generic(layout.sizes, layout.strides, c10::GetAllocator(c10::kPrivateUse1), kKeys, layout.dtype));
}

void resize_output(const at::Tensor& output, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (!at::native::resize_output(output, sizes)) return;
  const auto needed = at::detail::computeStorageNbytes(sizes, strides, output.itemsize(), output.storage_offset());
  // A kernel may leave a part of something larger; here it stands alone.
  if (needed <= output.storage().nbytes()) output.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage",
         [](at::Tensor& self, at::Storage source) -> at::Tensor& { return at::native::set_(self, std::move(source)); });
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("set_", TORCH_FN(set_nothing));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
}

}  // namespace anyaccel::sim
