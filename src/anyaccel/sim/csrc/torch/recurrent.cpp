// Cells of recurrent networks: torch takes the fused form on every accelerator, and the CPU has none, so it is put together here, as
// kernels for the CPU: a cell then is one task. (On the CPU itself torch takes other forms.)
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <initializer_list>
#include <optional>
#include <tuple>

namespace anyaccel::sim {
namespace {

using at::Tensor;

Tensor with_bias(const Tensor& gates, const std::optional<Tensor>& bias) { return bias && bias->defined() ? gates + *bias : gates; }

Tensor or_zeros(const std::optional<Tensor>& gradient, const Tensor& like) {
  return gradient && gradient->defined() ? *gradient : at::zeros_like(like);
}

Tensor side_by_side(std::initializer_list<Tensor> gates) { return at::cat(at::TensorList(gates), 1); }

// The derivatives of sigmoid and tanh, in terms of their results.
Tensor sigmoid_slope(const Tensor& y) { return y * (1 - y); }
Tensor tanh_slope(const Tensor& y) { return 1 - y * y; }

/// Gates lie in the order input, forget, cell, output. The workspace keeps them, activated, for backward.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto input = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(), output = gates[3].sigmoid();
  const auto cy = forget * cx + input * cell;
  return {output * cy.tanh(), cy, side_by_side({input, forget, cell, output})};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const std::optional<Tensor>& grad_hy, const std::optional<Tensor>& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const auto gates = workspace.chunk(4, 1);
  const auto &input = gates[0], &forget = gates[1], &cell = gates[2], &output = gates[3];
  const auto grad_output = or_zeros(grad_hy, cy);
  const auto activated = cy.tanh();
  const auto grad_cell_state = grad_output * output * tanh_slope(activated) + or_zeros(grad_cy, cy);
  const auto grad_gates = side_by_side({grad_cell_state * cell * sigmoid_slope(input), grad_cell_state * cx * sigmoid_slope(forget),
                                        grad_cell_state * input * tanh_slope(cell), grad_output * activated * sigmoid_slope(output)});
  return {grad_gates, grad_cell_state * forget, has_bias ? grad_gates.sum(0) : Tensor()};
}

/// Gates lie in the order reset, update, new. The workspace keeps them, activated, with the old state and the hidden part of `new`.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = (from_input[0] + from_hidden[0]).sigmoid(), update = (from_input[1] + from_hidden[1]).sigmoid();
  const auto fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  return {fresh + update * (hx - fresh), side_by_side({reset, update, fresh, hx, from_hidden[2]})};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const auto kept = workspace.chunk(5, 1);
  const auto &reset = kept[0], &update = kept[1], &fresh = kept[2], &hx = kept[3], &hidden = kept[4];
  const auto grad_fresh = grad_hy * (1 - update) * tanh_slope(fresh);
  const auto grad_reset = grad_fresh * hidden * sigmoid_slope(reset);
  const auto grad_update = grad_hy * (hx - fresh) * sigmoid_slope(update);
  const auto grad_input_gates = side_by_side({grad_reset, grad_update, grad_fresh});
  const auto grad_hidden_gates = side_by_side({grad_reset, grad_update, grad_fresh * reset});
  return {grad_input_gates, grad_hidden_gates, grad_hy * update, has_bias ? grad_input_gates.sum(0) : Tensor(),
          has_bias ? grad_hidden_gates.sum(0) : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace anyaccel::sim
