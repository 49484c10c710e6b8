// The operators that no file of their own writes out: each runs as its CPU kernel, on the current stream, over the device's memory.
#include "torch/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "torch/call.h"
#include "torch/hot.h"
#include "torch/infer.h"
#include "torch/kernel_scope.h"
#include "torch/plan.h"
#include "torch/returns.h"
#include "torch/run.h"
#include "torch/runtime.h"
#include "torch/tensors.h"
#include "torch/waiting.h"

namespace anyaccel::sim {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

/// Tensors on the device for what the operator will return.
Values allocate(const Outcome& outcome, c10::DeviceIndex device) {
  Values results;
  for (const auto& result : outcome.returns) {
    const auto make = [&](std::size_t i) { return result.defined[i] ? make_tensor(result.layouts[i], device) : at::Tensor(); };
    if (!result.is_list) {
      results.push_back(make(0));
      continue;
    }
    c10::List<at::Tensor> tensors;
    tensors.reserve(result.layouts.size());
    for (std::size_t i = 0; i < result.layouts.size(); ++i) tensors.push_back(make(i));
    results.push_back(std::move(tensors));
  }
  return results;
}

bool all_defined(const Outcome& outcome) {
  for (const auto& result : outcome.returns) {
    for (const bool defined : result.defined) {
      if (!defined) return false;
    }
  }
  return true;
}

/// Copies what the functional form returned, on the CPU, to where it was promised.
void deliver(const Values& results, const Tensors& promised, const std::string& op) {
  const KernelScope scope;
  std::size_t next = 0;
  each_tensor(results, [&](const at::Tensor& result) {
    if (!result.defined()) return;
    TORCH_CHECK(next < promised.size() && result.sizes() == promised[next].sizes() && result.dtype() == promised[next].dtype(), op,
                " returned a tensor of shape ", result.sizes(), " and type ", result.dtype(),
                ", which is not what its Meta kernel says: correct that one, or the CPU kernel.");
    promised[next++].copy_(result);
  });
  TORCH_CHECK(next == promised.size(), op, " returned fewer tensors than its Meta kernel says: correct that one, or the CPU kernel.");
}

/// Enqueues an operator in a form that writes into its arguments and makes nothing.
void enqueue_in_place(const OperatorHandle& op, const Plan& plan, driver::Stream& stream, std::unique_ptr<Call> call) {
  const auto copies = call->freeze();
  enqueue(stream, plan.name.c_str(), [&plan, &op, call = std::move(call)] { run_on_cpu(plan, op, *call); });
}

/// Enqueues an operator in its functional form; its results are copied to `outputs`.
void enqueue_functional(const Plan& plan, driver::Stream& stream, std::unique_ptr<Call> call, const Values& outputs) {
  auto promised = std::make_unique<Operands>();
  each_tensor(outputs, [&](const at::Tensor& tensor) {
    if (tensor.defined()) promised->add(tensor);
  });
  promised->forget_tensors();
  const auto copies = call->freeze();
  enqueue(stream, plan.name.c_str(), [&plan, call = std::move(call), promised = std::move(promised)] {
    const auto stack = run_on_cpu(plan, plan.op, *call);
    deliver(fresh_returns(plan, stack), promised->on_cpu(), plan.name);
  });
}

/// Resizes the written arguments on the host, as the outcome says, before the task takes their addresses.
void resize_arguments(const Outcome& outcome, const c10::FunctionSchema& schema, const Stack& stack, Call& call) {
  const auto first = stack.size() - schema.arguments().size();
  for (const auto& resize : outcome.resized) {
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto operands = call.operands_of(i);
      for (std::size_t element = 0; element < operands.size(); ++element) {
        if (operands[element] != resize.operand) continue;
        const auto& value = stack[first + i];
        const at::Tensor tensor = value.isTensor() ? value.toTensor() : value.toListRef()[element].toTensor();
        resize_output(tensor, resize.sizes, resize.strides);
        call.refresh(resize.operand, tensor);
      }
    }
  }
}

/// Replaces the arguments on `stack` by the returns: arguments handed back, and `results` in order.
void finish(const Plan& plan, Stack& stack, Values results) {
  const auto count = plan.op.schema().arguments().size();
  const auto first = stack.size() - count;
  Values returns;
  auto* result = results.begin();
  for (const auto argument : plan.returned_arguments) returns.push_back(argument < 0 ? std::move(*result++) : stack[first + argument]);
  torch::jit::drop(stack, count);
  for (auto& value : returns) stack.push_back(std::move(value));
}

/// True for an operator in place on a tensor that has several elements at one address, which torch's wrapper lets pass.
bool writes_over_itself(const Plan& plan, const Call& call) {
  const auto& arguments = plan.op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(arguments[i])) continue;
    for (const auto operand : call.operands_of(i)) {
      if (operand >= 0 && call.operands().overlaps_itself(operand)) return true;
    }
  }
  return false;
}

/// While a structured wrapper runs on this thread: which call of an `out=` form is to come from it, and whether it did.
class Wrapped {
 public:
  explicit Wrapped(const Plan& plan) : base_(plan.name), outer_(std::exchange(current_, this)) {
    if (base_.ends_with('_')) base_.remove_suffix(1);
  }
  ~Wrapped() { current_ = outer_; }
  Wrapped(const Wrapped&) = delete;
  Wrapped& operator=(const Wrapped&) = delete;

  /// To be asked at every call: true if it is the one that a wrapper has prepared, so that its outputs are what they must be.
  static bool prepared(const Plan& plan) {
    if (!current_) return false;
    ++current_->calls_;
    return plan.name == current_->base_ && is_written(plan.op.schema().arguments().back());
  }

  /// True if the wrapper has called its `out=` form and nothing else: all it knew came from the shapes.
  bool only_shapes_mattered() const noexcept { return calls_ == 1; }

 private:
  static thread_local Wrapped* current_;
  std::string_view base_;
  Wrapped* outer_;
  int calls_ = 0;
};

thread_local Wrapped* Wrapped::current_ = nullptr;

/// Runs an operator with a structured kernel for arguments that were not seen before.
void run_wrapper(const Plan& plan, const Question& question, Stack& stack) {
  bool only_shapes_mattered = false;
  {
    const Wrapped wrapped(plan);
    plan.wrapper->callBoxed(plan.op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &stack);
    only_shapes_mattered = wrapped.only_shapes_mattered();
  }
  if (!only_shapes_mattered) return;
  auto outcome = std::make_shared<Outcome>();
  for (const auto& result : fresh_returns(plan, stack)) outcome->returns.push_back(describe(result));
  remember(question, std::move(outcome));
}

/// Enqueues a call whose outcome is known, and returns its fresh results.
Values enqueue_known(const Plan& plan, std::unique_ptr<Call> call, const Outcome& outcome) {
  auto& stream = current_stream(call->device());
  auto outputs = allocate(outcome, call->device());
  if (outputs.empty()) {
    enqueue_in_place(plan.op, plan, stream, std::move(call));
  } else if (plan.out_form && all_defined(outcome)) {
    for (const auto& output : outputs) call->append(output.toTensor());
    enqueue_in_place(*plan.out_form, plan, stream, std::move(call));
  } else {
    enqueue_functional(plan, stream, std::move(call), outputs);
  }
  return outputs;
}

/// Runs a call that `start` did not know.
Values run_unknown(const Plan& plan, std::unique_ptr<Call> call, const Stack& stack) {
  auto& stream = current_stream(call->device());
  if (plan.returns_tensors) {
    const Question question(plan, *call);
    const auto known = recall(question);
    const auto outcome = known ? *known : ask(plan, *call);
    if (!known) remember(question, outcome);
    if (outcome) {
      resize_arguments(*outcome, plan.op.schema(), stack, *call);
      return enqueue_known(plan, std::move(call), *outcome);
    }
  }
  return run_and_wait(plan, stream, std::move(call), stack);
}

std::unordered_map<const c10::FunctionSchema*, c10::SafeKernelFunction>& structured_wrappers() {
  static auto* const wrappers = new std::unordered_map<const c10::FunctionSchema*, c10::SafeKernelFunction>;
  return *wrappers;
}

}  // namespace

bool start(const Plan& plan, std::unique_ptr<Call>& call, Values& results) {
  if (Wrapped::prepared(plan)) {
    auto& stream = current_stream(call->device());
    enqueue_in_place(plan.op, plan, stream, std::move(call));
    return true;
  }
  if (!plan.returns_tensors) return false;
  const auto known = recall(Question(plan, *call));
  if (!known || !*known || !(*known)->resized.empty()) return false;
  results = enqueue_known(plan, std::move(call), **known);
  return true;
}

void fallback(const OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const auto& plan = plan_of(op);
  TORCH_CHECK_NOT_IMPLEMENTED(!plan.is_view, "sim: ", schema.name(), " returns a view, and no kernel of the sim makes it.");
  TORCH_CHECK_NOT_IMPLEMENTED(plan.has_cpu_kernel, "sim: ", schema.name(),
                              " has no CPU kernel, and the sim runs operators by their CPU kernels. Register one for the CPU (or for "
                              "PrivateUse1), or call it on CPU tensors.");
  auto call = std::make_unique<Call>(schema, *stack);
  Values results;
  if (!start(plan, call, results)) {
    if (plan.wrapper) {
      const Question question(plan, *call);
      if (!recall(question) && !writes_over_itself(plan, *call) && !may_refuse_values(plan, *call))
        return run_wrapper(plan, question, *stack);
    }
    results = run_unknown(plan, std::move(call), *stack);
  }
  finish(plan, *stack, std::move(results));
}

const c10::SafeKernelFunction* structured_wrapper(const c10::FunctionSchema& schema) {
  const auto place = structured_wrappers().find(&schema);
  return place == structured_wrappers().end() ? nullptr : &place->second;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// Where the CPU has a kernel of its own beside a composition that torch would take here, its numbers are the ones to give. And where
// torch would take its structured wrapper, what the wrapper finds out is worth remembering.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    const bool structured = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    if (structured) structured_wrappers().emplace(&op->schema(), op->getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1));
    auto hot = hot_kernel(name);
    if (hot) {
      m.impl(toString(name).c_str(), std::move(*hot));
    } else if (structured || op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
               op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      m.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
  }
}

}  // namespace anyaccel::sim
