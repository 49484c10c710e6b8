// Copies: within a device, between devices, and between device and host.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstring>

#include "torch/kernel_scope.h"
#include "torch/operands.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

/// Up to this size pageable memory is always staged.
constexpr std::size_t kStagedBytes = 1 << 20;

bool is_pinned(const at::Tensor& tensor) { return runtime().pinned().contains(tensor.storage().data()); }

/// Enqueues `to.copy_(from)`. Host tensors are read and written where they are, and kept until then unless they are `pinned`.
void enqueue_copy(driver::Stream& stream, const at::Tensor& from, const at::Tensor& to, const at::Tensor* pinned = nullptr) {
  auto operands = std::make_unique<Operands>();
  const auto source = operands->add(from);
  const auto target = operands->add(to);
  operands->forget_tensors();
  if (pinned) operands->release_host_memory();
  enqueue(stream, "aten::copy_", [operands = std::move(operands), source, target] {
    const KernelScope scope;
    const auto tensors = operands->on_cpu();
    tensors[target].copy_(tensors[source]);
  });
  if (pinned) driver_call([&] { runtime().pinned().record_stream(pinned->storage().data(), stream); });
}

void wait_for(driver::Stream& stream) {
  host_wait("aten::copy_", [&] { stream.synchronize(); });
}

void copy_on_device(const at::Tensor& from, const at::Tensor& to) {
  at::assert_no_partial_overlap(to, from);
  enqueue_copy(current_stream(to.device().index()), from, to);
}

/// The copy runs on the source's current stream; it starts when the target's is ready, and the target's goes on after it.
void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  auto& source = current_stream(from.device().index());
  auto& target = current_stream(to.device().index());
  driver_call([&] { source.wait(target.record()); });
  enqueue_copy(source, from, to);
  driver_call([&] { target.wait(source.record()); });
}

void copy_from_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto& stream = current_stream(to.device().index());
  if (!non_blocking) {
    enqueue_copy(stream, from, to);
    wait_for(stream);
  } else if (is_pinned(from)) {
    enqueue_copy(stream, from, to, &from);
  } else if (from.nbytes() > kStagedBytes && !stream.held() && stream.query()) {
    // With nothing to wait for but the copy itself, reading the memory where it is takes half the time of staging.
    enqueue_copy(stream, from, to);
    driver_call([&] { stream.synchronize(); });
  } else {
    enqueue_copy(stream, from.clone(), to);  // staged, as CUDA does with pageable memory: the caller may change it at once
  }
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto& stream = current_stream(from.device().index());
  if (non_blocking && is_pinned(to)) return enqueue_copy(stream, from, to, &to);
  enqueue_copy(stream, from, to);
  wait_for(stream);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (self.is_same(dst)) return dst;
  const auto source = at::expand_inplace(dst, self, "copy_");
  if (dst.numel() == 0) return dst;
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_privateuseone() || self.is_cpu(), "sim: cannot copy from ", self.device(), ".");
  TORCH_CHECK_NOT_IMPLEMENTED(dst.is_privateuseone() || dst.is_cpu(), "sim: cannot copy to ", dst.device(), ".");
  at::assert_no_internal_overlap(dst);
  if (!self.is_privateuseone()) {
    copy_from_host(*source, dst, non_blocking);
  } else if (!dst.is_privateuseone()) {
    copy_to_host(*source, dst, non_blocking);
  } else if (self.device() == dst.device()) {
    copy_on_device(*source, dst);
  } else {
    copy_between_devices(*source, dst);
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, /*non_blocking=*/false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const auto value = at::empty(self.sizes(), at::TensorOptions(self.scalar_type()));
  auto& stream = current_stream(self.device().index());
  enqueue_copy(stream, self, value);
  host_wait("aten::_local_scalar_dense", [&] { stream.synchronize(); });
  return at::_local_scalar_dense(value);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// The copy itself resolves these bits; torch's own kernels for them would copy again, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace anyaccel::sim
