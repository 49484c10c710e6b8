// The operators that no file of their own writes out: each runs as its CPU kernel, on the current stream, over the device's memory.
#include "torch/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "torch/call.h"
#include "torch/disagreements.h"
#include "torch/infer.h"
#include "torch/kernel_scope.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

bool is_tensors(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TensorType ||
         (type->kind() == c10::TypeKind::ListType && type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType);
}

/// What an operator's schema says about how it runs; worked out once per operator.
struct Plan {
  std::string name;                        ///< lives as long as the process: tasks and figures refer to it
  bool has_fresh_returns = false;          ///< some return is no argument handed back
  bool returns_tensors = true;             ///< and every one of them is a tensor or a list of them
  bool is_view = false;                    ///< returns an alias of an argument
  bool has_cpu_kernel = false;
  std::optional<OperatorHandle> out_form;  ///< writes into tensors handed to it what this operator returns
};

/// The overload with the same arguments and, after them, one written tensor per return.
std::optional<OperatorHandle> find_out_form(const c10::FunctionSchema& schema) {
  static const auto* const overloads = [] {
    auto* all = new std::multimap<std::string, c10::OperatorName>;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) all->emplace(name.name, name);
    return all;
  }();
  const auto& arguments = schema.arguments();
  const auto [begin, end] = overloads->equal_range(schema.name());
  for (auto place = begin; place != end; ++place) {
    const auto candidate = c10::Dispatcher::singleton().findSchema(place->second);
    if (!candidate) continue;
    const auto& others = candidate->schema().arguments();
    if (others.size() != arguments.size() + schema.returns().size()) continue;
    bool fits = true;
    for (std::size_t i = 0; i < others.size() && fits; ++i) {
      fits = i < arguments.size() ? others[i].name() == arguments[i].name() && *others[i].type() == *arguments[i].type() &&
                                        is_written(others[i]) == is_written(arguments[i])
                                  : is_written(others[i]) && others[i].type()->kind() == c10::TypeKind::TensorType;
    }
    if (fits) return candidate;
  }
  return std::nullopt;
}

Plan make_plan(const OperatorHandle& op) {
  const auto& schema = op.schema();
  Plan plan;
  plan.name = schema.name();
  bool only_single_tensors = true;
  for (const auto& result : schema.returns()) {
    if (result.alias_info()) {
      plan.is_view |= !result.alias_info()->isWrite();
      only_single_tensors = false;
    } else {
      plan.has_fresh_returns = true;
      plan.returns_tensors &= is_tensors(result.type());
      only_single_tensors &= result.type()->kind() == c10::TypeKind::TensorType;
    }
  }
  plan.has_cpu_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  if (plan.has_fresh_returns && only_single_tensors && !only_the_cpu_kernel_knows(plan.name)) plan.out_form = find_out_form(schema);
  return plan;
}

const Plan& plan_of(const OperatorHandle& op) {
  static std::shared_mutex mutex;
  static auto* const plans = new std::unordered_map<const c10::FunctionSchema*, Plan>;
  const auto* key = &op.schema();
  {
    const std::shared_lock lock(mutex);
    if (const auto place = plans->find(key); place != plans->end()) return place->second;
  }
  auto plan = make_plan(op);
  const std::unique_lock lock(mutex);
  return plans->emplace(key, std::move(plan)).first->second;  // references into an unordered_map stay good
}

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
  return at::empty_strided(layout.sizes, layout.strides,
                           at::TensorOptions(c10::Device(c10::kPrivateUse1, device)).dtype(layout.dtype));
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
    } else {
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
    TORCH_INTERNAL_ASSERT(next < promised.size() && result.sizes() == promised[next].sizes() && result.dtype() == promised[next].dtype(),
                          "sim: ", op, " returned another shape or type than its shape rule says.");
    promised[next++].copy_(result);
  });
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

/// Runs the operator in its turn on the stream while the host waits: its results, or its error, belong to the call.
std::vector<c10::IValue> run_and_wait(const OperatorHandle& op, const Plan& plan, driver::Stream& stream, Call call) {
  struct Answer {
    std::vector<c10::IValue> results;
    std::exception_ptr error;
  };
  const auto device = call.device();
  const auto answer = std::make_shared<Answer>();
  call.freeze();
  enqueue(stream, plan.name.c_str(), [op, call = std::move(call), answer] {
    try {
      answer->results = fresh_returns(op.schema(), run_on_cpu(op, call));
    } catch (...) {
      answer->error = std::current_exception();
    }
  });
  host_wait(plan.name.c_str(), [&] { stream.synchronize(); });
  if (answer->error) std::rethrow_exception(answer->error);
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
  if (!outcome) return finish(schema, *stack, run_and_wait(op, plan, stream, std::move(call)));

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

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace anyaccel::sim
