// How a task runs an operator: its CPU kernel, over the device's memory.
#include "torch/run.h"

#include <ATen/ops/conj_physical.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/neg.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "torch/kernel_scope.h"
#include "torch/operands.h"

namespace anyaccel::sim {
namespace {

/// Some kernels flip a bit of their output instead of its elements; the tensor on the device has kept its bits.
void restore_bits(at::Tensor& tensor, bool conjugate, bool negative) {
  if (tensor.is_conj() != conjugate) {
    tensor.unsafeGetTensorImpl()->_set_conj(conjugate);
    tensor.conj_physical_();
  }
  if (tensor.is_neg() != negative) {
    tensor.unsafeGetTensorImpl()->_set_neg(negative);
    tensor.neg_();
  }
}

/// The `out=` arguments of a call whose kernel resizes them midway, which takes other memory: the end of it goes back to where it
/// belongs. torch's warning about that is not for whoever gave an `out=` of the right size.
class ResizedMidway : c10::WarningHandler {
 public:
  ResizedMidway(const Plan& plan, const Call& call, const Tensors& tensors) {
    const auto& arguments = plan.op.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].kwarg_only() || !is_written(arguments[i])) continue;
      for (const auto operand : call.operands_of(i)) add(tensors[operand]);
    }
  }

  void bring_back() const {
    for (const auto& [output, place] : outputs_) {
      if (output.data_ptr() != place.data_ptr()) place.copy_(output);
    }
  }

 private:
  void add(const at::Tensor& output) {
    outputs_.emplace_back(output, at::from_blob(output.data_ptr(), output.sizes(), output.strides(), output.options()));
    auto* storage = output.storage().unsafeGetStorageImpl();
    storage->set_allocator(c10::GetCPUAllocator());
    storage->set_resizable(true);
  }

  void process(const c10::Warning& warning) override {
    if (!warning.msg().starts_with("An output with one or more elements was resized")) outer_->process(warning);
  }

  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> outputs_;
  c10::WarningHandler* outer_ = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace

torch::jit::Stack run_on_cpu(const Plan& plan, const c10::OperatorHandle& op, const Call& call) {
  const KernelScope scope;
  auto tensors = call.operands().on_cpu();
  auto stack = call.stack(tensors, c10::kCPU);
  std::optional<ResizedMidway> outputs;
  if (plan.resizes_midway) outputs.emplace(plan, call, tensors);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  if (outputs) outputs->bring_back();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    TORCH_INTERNAL_ASSERT(tensors[i].sizes() == call.operands().sizes(index), "sim: ", op.schema().name(),
                          " resized one of its arguments while it ran.");
    restore_bits(tensors[i], call.operands().is_conjugate(index), call.operands().is_negative(index));
  }
  return stack;
}

}  // namespace anyaccel::sim
