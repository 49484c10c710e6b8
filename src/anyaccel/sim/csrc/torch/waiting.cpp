// Operators whose answer the host needs: what they return has a shape that depends on the data, or they refuse their arguments.
#include "torch/waiting.h"

#include <ATen/MemoryOverlap.h>

#include <exception>
#include <utility>
#include <vector>

#include "torch/kernel_scope.h"
#include "torch/runtime.h"
#include "torch/tensors.h"

namespace anyaccel::sim {
namespace {

using torch::jit::Stack;

/// True if writing to the tensor at `place` changes another argument, or itself: the kernel is to see that, and to refuse it.
bool overlaps(std::size_t place, const Stack& arguments) {
  const auto& output = arguments[place].toTensor();
  if (at::has_internal_overlap(output) == at::MemOverlap::Yes) return true;
  bool found = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i == place) continue;
    each_tensor({arguments[i]}, [&](const at::Tensor& other) { found |= other.defined() && other.is_alias_of(output); });
  }
  return found;
}

/// Tensors on the host that take the place of a call's `out=` arguments, whose shapes only the kernel knows: those it may resize.
std::vector<std::pair<std::size_t, at::Tensor>> stand_in_for_outputs(const c10::FunctionSchema& schema, Stack& arguments) {
  std::vector<std::pair<std::size_t, at::Tensor>> outputs;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = schema.arguments()[i];
    if (!argument.kwarg_only() || !is_written(argument) || !arguments[i].isTensor()) continue;
    if (overlaps(i, arguments)) continue;
    outputs.emplace_back(i, arguments[i].toTensor().clone());
    arguments[i] = outputs.back().second;
  }
  return outputs;
}

}  // namespace

Values run_and_wait(const Plan& plan, driver::Stream& stream, std::unique_ptr<Call> call, const Stack& stack) {
  struct Answer {
    Values results;
    std::vector<std::pair<std::size_t, at::Tensor>> outputs;
    std::exception_ptr error;
  };
  const auto& schema = plan.op.schema();
  const auto device = call->device();
  const auto answer = std::make_shared<Answer>();
  const auto copies = call->freeze();
  enqueue(stream, plan.name.c_str(), [&plan, call = std::move(call), answer] {
    try {
      const KernelScope scope;
      auto arguments = call->stack(call->operands().on_cpu(), c10::kCPU);
      answer->outputs = stand_in_for_outputs(plan.op.schema(), arguments);
      plan.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
      answer->results = fresh_returns(plan, arguments);
    } catch (...) {
      answer->error = std::current_exception();
    }
  });
  host_wait(plan.name.c_str(), [&] { stream.synchronize(); });
  if (answer->error) std::rethrow_exception(answer->error);
  const auto first = stack.size() - schema.arguments().size();
  for (const auto& [place, output] : answer->outputs) {
    const auto& target = stack[first + place].toTensor();
    resize_output(target, output.sizes(), output.strides());
    target.copy_(output, /*non_blocking=*/true);
  }
  const auto to_device = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(c10::Device(c10::kPrivateUse1, device), /*non_blocking=*/true) : tensor;
  };
  for (auto& result : answer->results) {
    if (result.isTensor()) {
      result = to_device(result.toTensor());
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& member : result.toListRef()) list.push_back(to_device(member.toTensor()));
      result = std::move(list);
    }
  }
  return std::move(answer->results);
}

}  // namespace anyaccel::sim
