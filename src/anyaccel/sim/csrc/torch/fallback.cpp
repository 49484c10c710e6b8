// The operators that no file of their own writes out: each runs as its CPU kernel, on the current stream, over the device's memory.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <exception>
#include <optional>

#include "torch/call.h"
#include "torch/infer.h"
#include "torch/kernel_scope.h"
#include "torch/plan.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

Stack run_on_cpu(const OperatorHandle& op, const Call& call) {
  const KernelScope scope;
  const auto tensors = call.operands().on_cpu();
  auto stack = call.stack(tensors, c10::kCPU);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_INTERNAL_ASSERT(tensors[i].sizes() == call.operands().all()[i].layout.sizes, "sim: ", op.schema().name(),
                          " resized one of its arguments while it ran.");
  }
  return stack;
}

at::Tensor allocate(const Layout& layout, c10::DeviceIndex device) {
  return at::empty_strided(layout.sizes, layout.strides, at::TensorOptions(c10::Device(c10::kPrivateUse1, device)).dtype(layout.dtype));
}

/// Tensors on the device for what the operator will return.
std::vector<c10::IValue> allocate(const Outcome& outcome, c10::DeviceIndex device) {
  std::vector<c10::IValue> results;
  for (const auto& result : outcome.returns) {
    c10::List<at::Tensor> tensors;
    for (std::size_t i = 0; i < result.layouts.size(); ++i) {
      tensors.push_back(result.defined[i] ? allocate(result.layouts[i], device) : at::Tensor());
    }
    results.push_back(result.is_list ? c10::IValue(std::move(tensors)) : c10::IValue(tensors.get(0)));
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

/// Calls `visit` with each tensor of `values`, lists taken apart.
template <class Visit>
void each_tensor(const std::vector<c10::IValue>& values, Visit visit) {
  for (const auto& value : values) {
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const c10::IValue& member : value.toListRef()) visit(member.toTensor());
    }
  }
}

/// The returns of a finished stack that are no argument handed back.
std::vector<c10::IValue> fresh_returns(const c10::FunctionSchema& schema, const Stack& stack) {
  std::vector<c10::IValue> results;
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    if (!schema.returns()[i].alias_info()) results.push_back(stack[i]);
  }
  return results;
}

/// Copies what the functional form returned, on the CPU, to where it was promised.
void deliver(const std::vector<c10::IValue>& results, const std::vector<at::Tensor>& promised, const std::string& op) {
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

/// Enqueues the operator in its functional form; its results are copied to `outputs`.
void enqueue_functional(const OperatorHandle& op, const Plan& plan, driver::Stream& stream, Call call,
                        const std::vector<c10::IValue>& outputs) {
  Operands promised;
  each_tensor(outputs, [&](const at::Tensor& tensor) {
    if (tensor.defined()) promised.add(tensor);
  });
  promised.forget_tensors();
  enqueue(stream, plan.name.c_str(), [op, &plan, call = std::move(call), promised = std::move(promised)] {
    const auto stack = run_on_cpu(op, call);
    deliver(fresh_returns(op.schema(), stack), promised.on_cpu(), plan.name);
  });
}

/// Enqueues the operator in the form that writes into outputs, which `call` ends with.
void enqueue_out_form(const Plan& plan, driver::Stream& stream, Call call) {
  enqueue(stream, plan.name.c_str(), [op = *plan.out_form, call = std::move(call)] { run_on_cpu(op, call); });
}

/// Tensors on the host that take the place of a call's `out=` arguments, whose shapes only the kernel knows: those it may resize.
std::vector<std::pair<std::size_t, at::Tensor>> stand_in_for_outputs(const c10::FunctionSchema& schema, Stack& arguments) {
  std::vector<std::pair<std::size_t, at::Tensor>> outputs;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = schema.arguments()[i];
    if (!argument.kwarg_only() || !is_written(argument) || !arguments[i].isTensor()) continue;
    outputs.emplace_back(i, arguments[i].toTensor().clone());
    arguments[i] = outputs.back().second;
  }
  return outputs;
}

/// Runs the operator in its turn on the stream while the host waits: its results, or its error, belong to the call.
std::vector<c10::IValue> run_and_wait(const OperatorHandle& op, const Plan& plan, driver::Stream& stream, Call call, const Stack& stack) {
  struct Answer {
    std::vector<c10::IValue> results;
    std::vector<std::pair<std::size_t, at::Tensor>> outputs;
    std::exception_ptr error;
  };
  const auto device = call.device();
  const auto answer = std::make_shared<Answer>();
  call.freeze();
  enqueue(stream, plan.name.c_str(), [op, call = std::move(call), answer] {
    try {
      const KernelScope scope;
      auto arguments = call.stack(call.operands().on_cpu(), c10::kCPU);
      answer->outputs = stand_in_for_outputs(op.schema(), arguments);
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
      answer->results = fresh_returns(op.schema(), arguments);
    } catch (...) {
      answer->error = std::current_exception();
    }
  });
  host_wait(plan.name.c_str(), [&] { stream.synchronize(); });
  if (answer->error) std::rethrow_exception(answer->error);
  const auto first = stack.size() - op.schema().arguments().size();
  for (const auto& [place, output] : answer->outputs) {
    const auto& target = stack[first + place].toTensor();
    at::native::resize_output(target, output.sizes());
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
        at::native::resize_output(tensor, resize.sizes);
        call.refresh(resize.operand, tensor);
      }
    }
  }
}

/// Replaces the arguments on `stack` by the returns: arguments handed back, and `results` in order.
void finish(const c10::FunctionSchema& schema, Stack& stack, std::vector<c10::IValue> results) {
  const auto count = schema.arguments().size();
  const auto first = stack.size() - count;
  Stack returns;
  std::size_t next = 0;
  for (const auto& result : schema.returns()) {
    if (!result.alias_info()) {
      returns.push_back(std::move(results.at(next++)));
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias && *alias == *result.alias_info()) {
        returns.push_back(stack[first + i]);
        break;
      }
    }
  }
  torch::jit::drop(stack, count);
  for (auto& value : returns) stack.push_back(std::move(value));
}

void fallback(const OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const auto& plan = plan_of(op);
  TORCH_CHECK_NOT_IMPLEMENTED(!plan.is_view, "sim: ", schema.name(), " returns a view, and no kernel of the sim makes it.");
  TORCH_CHECK_NOT_IMPLEMENTED(plan.has_cpu_kernel, "sim: ", schema.name(),
                              " has no CPU kernel, and the sim runs operators by their CPU kernels. Register one for the CPU (or for "
                              "PrivateUse1), or call it on CPU tensors.");
  Call call(schema, *stack);
  auto& stream = current_stream(call.device());
  const auto outcome = plan.returns_tensors ? infer(op, call) : nullptr;
  if (!outcome) return finish(schema, *stack, run_and_wait(op, plan, stream, std::move(call), *stack));

  resize_arguments(*outcome, schema, *stack, call);
  auto outputs = allocate(*outcome, call.device());
  const bool into_outputs = plan.out_form && all_defined(*outcome);
  if (into_outputs) {
    for (const auto& output : outputs) call.append(output.toTensor());
  }
  call.freeze();
  if (into_outputs) {
    enqueue_out_form(plan, stream, std::move(call));
  } else {
    enqueue_functional(op, plan, stream, std::move(call), outputs);
  }
  finish(schema, *stack, std::move(outputs));
}

void refuse(const OperatorHandle& op, c10::DispatchKeySet keys, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, kDeviceName, " has no tensors of this kind (", c10::toString(keys.highestPriorityTypeId()),
                              "), which ", op.schema().name(), " was to use. Use a dense tensor, or keep this one on the CPU.");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// Where the CPU has a kernel of its own beside a composition that torch would take here, its numbers are the ones to give.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      m.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
  }
}

// Autocast has no policy for the sim yet: `get_amp_supported_dtype` says so, and torch switches autocast off with a warning.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

}  // namespace anyaccel::sim
