#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "torch/operands.h"

namespace anyaccel::sim {

/// A new tensor of that layout, in memory of the device's current stream.
at::Tensor make_tensor(const Layout& layout, c10::DeviceIndex device);

}  // namespace anyaccel::sim
