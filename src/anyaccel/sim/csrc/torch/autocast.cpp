// Autocast: CUDA's policy, by torch's own lists. One boxed kernel per policy: torch's templates would be compiled once per operator.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

using at::autocast::cached_cast;
using at::autocast::is_eligible;

// The names in the signatures that torch's list writes out.
using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;

constexpr auto kAutocastKey = c10::DispatchKey::AutocastPrivateUse1;

/// The arguments of the call that `stack` ends with.
c10::ArrayRef<c10::IValue> arguments_of(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  return torch::jit::last(stack, schema.arguments().size());
}

/// Casts the tensors among the arguments, also those in lists, and calls the operator.
void call_in(at::ScalarType type, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (auto place = stack->size() - op.schema().arguments().size(); place < stack->size(); ++place) {
    auto& value = (*stack)[place];
    if (value.isTensor()) {
      value = cached_cast(type, value.toTensor(), kDeviceType);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& member : value.toListRef()) list.push_back(cached_cast(type, member.toTensor(), kDeviceType));
      value = std::move(list);
    }
  }
  op.callBoxed(stack);
}

void lower_precision_fp(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocastKey);
  call_in(at::autocast::get_autocast_dtype(kDeviceType), op, stack);
}

void fp32(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocastKey);
  call_in(at::kFloat, op, stack);
}

/// The type of the result is float32, unless the call names one.
void fp32_set_opt_dtype(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocastKey);
  const auto& parameters = op.schema().arguments();
  const auto first = stack->size() - parameters.size();
  if (is_eligible((*stack)[first].toTensor(), kDeviceType)) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto& value = (*stack)[first + i];
      const auto optional = parameters[i].real_type()->cast<c10::OptionalType>();
      const bool is_type = optional && optional->getElementType()->kind() == c10::TypeKind::ScalarTypeType;
      if (is_type && value.isNone()) value = at::kFloat;
    }
  }
  op.callBoxed(stack);
}

/// The widest type among the arguments.
void promote(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocastKey);
  const auto& parameters = op.schema().arguments();
  const auto arguments = arguments_of(op.schema(), *stack);
  auto type = at::autocast::get_autocast_dtype(kDeviceType);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].type()->kind() == c10::TypeKind::TensorType) {  // an optional tensor, a bias, has no say
      type = at::autocast::prioritize(type, arguments[i].toTensor(), kDeviceType);
    } else if (arguments[i].isTensorList()) {
      for (const c10::IValue& member : arguments[i].toListRef()) type = at::autocast::prioritize(type, member.toTensor(), kDeviceType);
    }
  }
  call_in(type, op, stack);
}

void refuse(const c10::OperatorHandle&, torch::jit::Stack*) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: the gradient of what comes before "
              "may overflow float16. Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss in place of a sigmoid layer "
              "and BCELoss, or leave autocast for it (enabled=False) and compute it in float32.");
}

template <c10::BoxedKernel::BoxedKernelFunction* kernel>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kernel>();
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

// The lists name an operator, and its overload where it has one.
#define ANYACCEL_NAME(OP, ...) "aten::" #OP __VA_OPT__("." #__VA_ARGS__)
#define ANYACCEL_LOWER(...) m.impl(ANYACCEL_NAME(__VA_ARGS__), boxed<&lower_precision_fp>());
#define ANYACCEL_FP32(...) m.impl(ANYACCEL_NAME(__VA_ARGS__), boxed<&fp32>());
#define ANYACCEL_SET_TYPE(...) m.impl(ANYACCEL_NAME(__VA_ARGS__), boxed<&fp32_set_opt_dtype>());
#define ANYACCEL_PROMOTE(...) m.impl(ANYACCEL_NAME(__VA_ARGS__), boxed<&promote>());

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(ANYACCEL_LOWER)
  AT_FORALL_FP32(ANYACCEL_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(ANYACCEL_SET_TYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(ANYACCEL_PROMOTE)
  m.impl("binary_cross_entropy", boxed<&refuse>());
}

}  // namespace anyaccel::sim
