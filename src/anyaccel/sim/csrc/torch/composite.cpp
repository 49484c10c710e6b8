// Operators made of others: their CPU kernels draw from the host's generator, or torch asks the backend which of several forms to take.
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace anyaccel::sim {
namespace {

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double probability, std::optional<bool> train) {
  if (!train.value_or(true) || input.numel() == 0) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  if (probability == 1) return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(at::kBool))};
  const auto mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - probability);
  return {input.mul(mask).mul_(1 / (1 - probability)), mask};
}

/// Attention as the sequence of operators that it means: each of them runs on the stream.
std::int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
                              std::optional<double>, bool) {
  return static_cast<std::int64_t>(sdp::SDPBackend::math);
}

/// "May I make a nested tensor of these?" There are none here: torch.nn.TransformerEncoder keeps the padding then.
bool nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) { return false; }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(nested_tensor_from_mask_left_aligned));
}

}  // namespace anyaccel::sim
