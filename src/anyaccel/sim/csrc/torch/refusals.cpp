// Tensors that the sim has not: sparse, quantized and nested ones. A clear error where an operator would make or take one.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, kDeviceName, " has no tensors of this kind (", c10::toString(keys.highestPriorityTypeId()),
                              "), which ", op.schema().name(), " was to use. Use a dense tensor, or keep this one on the CPU.");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

// A composition, which would make one of its parts, and these are dense.
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_compressed_tensor_unsafe", torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace anyaccel::sim
