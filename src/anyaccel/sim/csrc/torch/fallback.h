#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <memory>

#include "torch/call.h"
#include "torch/plan.h"
#include "torch/returns.h"

namespace anyaccel::sim {

/// Runs any operator that has a CPU kernel, as that kernel, on the current stream of its tensors' device.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Enqueues `call` if it is known what it leaves behind, and puts its fresh results into `results`. False, with nothing done, if not.
bool start(const Plan& plan, std::unique_ptr<Call>& call, Values& results);

/// What torch would run on the device where the sim has registered nothing for an operator with a structured kernel: it works out
/// the outputs in C++, makes them, and calls the `out=` form. Null for other operators.
const c10::SafeKernelFunction* structured_wrapper(const c10::FunctionSchema& schema);

}  // namespace anyaccel::sim
