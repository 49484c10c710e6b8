#pragma once
#include <c10/core/DeviceCapability.h>

namespace anyaccel::sim {

/// The dtypes that sim's devices compute with: those that the CPU, whose kernels they run, can allocate and convert. The answer is
/// found by trying, once.
c10::DeviceCapability capability();

}  // namespace anyaccel::sim
