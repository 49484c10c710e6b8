#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "torch/operands.h"

namespace anyaccel::sim {

/// A new tensor of that layout, in memory of the device's current stream.
at::Tensor make_tensor(const Layout& layout, c10::DeviceIndex device);

/// Resizes an `out=` argument, with torch's warning, to what a kernel makes of it.
void resize_output(const at::Tensor& output, c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace anyaccel::sim
