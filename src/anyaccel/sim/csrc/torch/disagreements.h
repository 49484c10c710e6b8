#pragma once
#include <ATen/core/operator_name.h>

#include <string>
#include <unordered_set>

namespace anyaccel::sim {

/// True for operators whose Meta kernel, or whose `out=` form, says something else than their functional CPU kernel does, or that
/// have no Meta kernel though their shapes depend on shapes alone. They run in their functional form, and the CPU kernel itself,
/// over zeros, tells their shapes. (Names are with the overload.)
inline bool only_the_cpu_kernel_knows(const c10::OperatorName& op) {
  static const std::unordered_set<std::string> names{
      // Other types of the statistics in reduced precision, nothing saved in eval, outputs left out.
      "aten::native_batch_norm",
      "aten::_native_batch_norm_legit",
      "aten::_native_batch_norm_legit_no_training",
      "aten::native_batch_norm_backward",
      "aten::native_layer_norm",
      "aten::native_layer_norm_backward",
      "aten::native_group_norm",
      "aten::_native_multi_head_attention",
      // Other shapes.
      "aten::_embedding_bag",
      "aten::_embedding_bag_forward_only",
      // The out= form reads what it has not written yet, or resizes its output midway.
      "aten::_ctc_loss",
      "aten::_ctc_loss.Tensor",
      "aten::binary_cross_entropy",
      "aten::huber_loss",
      "aten::multilabel_margin_loss_forward",
      "aten::soft_margin_loss",
      // Only the functional form refuses what has no answer: the largest of no elements.
      "aten::max",
      "aten::min",
      // No Meta kernel.
      "aten::_cummax_helper",
      "aten::_cummin_helper",
      "aten::_logcumsumexp",
      "aten::_sample_dirichlet",
      "aten::_thnn_fused_gru_cell",
      "aten::_thnn_fused_gru_cell_backward",
      "aten::_thnn_fused_lstm_cell",
      "aten::_thnn_fused_lstm_cell_backward_impl",
      "aten::binomial",
      "aten::geqrf",
  };
  return names.contains(c10::toString(op));
}

}  // namespace anyaccel::sim
