#pragma once
#include <ATen/core/operator_name.h>

#include <string>
#include <unordered_map>

namespace anyaccel::sim {

/// What says something else about an operator than its functional CPU kernel does.
enum class Disagreement {
  kNone,
  kMeta,  ///< its Meta kernel: other shapes, strides or types. The CPU kernel is asked, however large the call
  kOut,   ///< its `out=` form: it reads what it has not written yet, or resizes what it is given. The functional form runs
};

/// The table of those operators, with their overloads. tests/sim/test_disagreements.py holds it against torch.
inline const std::unordered_map<std::string, Disagreement>& disagreements() {
  using enum Disagreement;
  static const std::unordered_map<std::string, Disagreement> table{
      // Statistics are of the input's type in reduced precision, and not there in eval.
      {"aten::native_batch_norm", kMeta},
      {"aten::_native_batch_norm_legit", kMeta},
      {"aten::_native_batch_norm_legit.no_stats", kMeta},
      {"aten::_batch_norm_with_update", kMeta},
      {"aten::native_layer_norm", kMeta},
      // Weights that nobody asked for are left out.
      {"aten::_native_multi_head_attention", kMeta},
      // Other shapes.
      {"aten::_embedding_bag", kMeta},
      {"aten::_embedding_bag_forward_only", kMeta},
      // Other strides.
      {"aten::_fft_c2r", kMeta},
      {"aten::_fft_r2c", kMeta},
      {"aten::_linalg_svd", kMeta},
      {"aten::linalg_eig", kMeta},
      {"aten::max_unpool2d", kMeta},
      {"aten::nonzero_static", kMeta},
      {"aten::_ctc_loss", kOut},
      {"aten::binary_cross_entropy", kOut},
      {"aten::huber_loss", kOut},
      {"aten::mse_loss", kOut},
      {"aten::smooth_l1_loss", kOut},
  };
  return table;
}

inline Disagreement disagreement_of(const c10::OperatorName& op) {
  const auto place = disagreements().find(c10::toString(op));
  return place == disagreements().end() ? Disagreement::kNone : place->second;
}

}  // namespace anyaccel::sim
