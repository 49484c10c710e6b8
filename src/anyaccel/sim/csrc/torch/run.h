#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "torch/call.h"
#include "torch/plan.h"

namespace anyaccel::sim {

/// Runs the CPU kernel of `op`, which is the plan's operator or its `out=` form, over the device's memory; returns what it leaves on the
/// stack. To be called by tasks.
torch::jit::Stack run_on_cpu(const Plan& plan, const c10::OperatorHandle& op, const Call& call);

}  // namespace anyaccel::sim
