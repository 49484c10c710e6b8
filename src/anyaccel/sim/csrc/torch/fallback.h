#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/function_schema.h>

namespace anyaccel::sim {

/// What torch would run on the device where the sim has registered nothing for an operator with a structured kernel: it works out
/// the outputs in C++, makes them, and calls the `out=` form. Null for other operators.
const c10::SafeKernelFunction* structured_wrapper(const c10::FunctionSchema& schema);

}  // namespace anyaccel::sim
