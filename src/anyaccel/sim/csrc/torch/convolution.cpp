// Convolution: torch leaves it to the backend under names of its own, and the CPU's Meta rules do not cover those.
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "torch/kernel_scope.h"
#include "torch/operands.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

/// The numbers of a convolution, owned: a task uses them after the call has returned.
struct Geometry {
  std::vector<std::int64_t> stride, padding, dilation, output_padding;
  bool transposed;
  std::int64_t groups;

  std::vector<std::int64_t> output_size(const at::Tensor& input, const at::Tensor& weight) const {
    if (!transposed) return at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
    return at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride, dilation, groups);
  }
};

std::optional<at::Tensor> some(const Tensors& tensors, std::int32_t index) {
  return index < 0 ? std::nullopt : std::optional<at::Tensor>(tensors[index]);
}

void check_same(const at::Tensor& input, const at::Tensor& other) {
  TORCH_CHECK(input.device() == other.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
              input.device(), " and ", other.device(), "! (in aten::convolution)");
  TORCH_CHECK(input.scalar_type() == other.scalar_type(), "Input type (", input.scalar_type(), ") and weight or bias type (",
              other.scalar_type(), ") should be the same");
}

/// The memory format that the CPU's kernels answer in.
c10::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  const auto format = input.suggest_memory_format();
  return format == c10::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
                       std::int64_t groups) {
  check_same(input, weight);
  if (bias && bias->defined()) check_same(input, *bias);
  Geometry geometry{stride.vec(), padding.vec(), dilation.vec(), output_padding.vec(), transposed, groups};
  auto output = at::empty(geometry.output_size(input, weight), input.options(), format_of(input, weight));
  auto operands = std::make_unique<Operands>();
  const auto x = operands->add(input);
  const auto w = operands->add(weight);
  const auto b = bias && bias->defined() ? operands->add(*bias) : -1;
  const auto y = operands->add(output);
  operands->forget_tensors();
  enqueue(current_stream(input.device().index()), "aten::convolution",
          [operands = std::move(operands), geometry = std::move(geometry), x, w, b, y] {
            const KernelScope scope;
            const auto tensors = operands->on_cpu();
            tensors[y].copy_(at::convolution(tensors[x], tensors[w], some(tensors, b), geometry.stride, geometry.padding, geometry.dilation,
                                             geometry.transposed, geometry.output_padding, geometry.groups));
          });
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                                                    const at::Tensor& weight, c10::IntArrayRef stride,
                                                                    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                                                                    c10::IntArrayRef output_padding, std::int64_t groups,
                                                                    std::array<bool, 3> output_mask) {
  check_same(input, weight);
  check_same(input, grad_output);
  Geometry geometry{stride.vec(), padding.vec(), dilation.vec(), output_padding.vec(), transposed, groups};
  const auto format = format_of(input, weight);
  const auto bias_size = grad_output.size(1);
  std::array<at::Tensor, 3> gradients;
  if (output_mask[0]) gradients[0] = at::empty(input.sizes(), input.options(), format);
  if (output_mask[1]) gradients[1] = at::empty(weight.sizes(), weight.options(), format);
  if (output_mask[2]) gradients[2] = at::empty({bias_size}, grad_output.options());
  auto operands = std::make_unique<Operands>();
  const auto dy = operands->add(grad_output);
  const auto x = operands->add(input);
  const auto w = operands->add(weight);
  std::array<std::int32_t, 3> places{-1, -1, -1};
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (output_mask[i]) places[i] = operands->add(gradients[i]);
  }
  operands->forget_tensors();
  enqueue(current_stream(input.device().index()), "aten::convolution_backward",
          [operands = std::move(operands), geometry = std::move(geometry), dy, x, w, places, output_mask, bias_size] {
            const KernelScope scope;
            const auto tensors = operands->on_cpu();
            const auto [dx, dw, db] = at::convolution_backward(tensors[dy], tensors[x], tensors[w], std::vector<std::int64_t>{bias_size},
                                                               geometry.stride, geometry.padding, geometry.dilation, geometry.transposed,
                                                               geometry.output_padding, geometry.groups, output_mask);
            const std::array<at::Tensor, 3> results{dx, dw, db};
            for (std::size_t i = 0; i < places.size(); ++i) {
              if (places[i] >= 0) tensors[places[i]].copy_(results[i]);
            }
          });
  return {gradients[0], gradients[1], gradients[2]};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace anyaccel::sim
