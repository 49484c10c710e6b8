#pragma once
#include <ATen/core/stack.h>

#include <memory>

#include "driver/stream.h"
#include "torch/call.h"
#include "torch/plan.h"
#include "torch/returns.h"

namespace anyaccel::sim {

/// Runs an operator in its turn on the stream while the host waits: its results, or its error, belong to the call. `stack` ends with the
/// call's arguments.
Values run_and_wait(const Plan& plan, driver::Stream& stream, std::unique_ptr<Call> call, const torch::jit::Stack& stack);

}  // namespace anyaccel::sim
