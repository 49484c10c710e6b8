#pragma once
#include <string>
#include <unordered_set>

namespace anyaccel::sim {

/// True for operators whose Meta kernel, or whose `out=` form, says something else than their functional CPU kernel does: other
/// types (reduced precision statistics), other shapes (nothing saved in eval), outputs left out, or reads of memory not yet written.
/// They run in their functional form, and the CPU kernel itself tells their shapes.
inline bool only_the_cpu_kernel_knows(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "aten::_ctc_loss",        "aten::_embedding_bag",      "aten::_embedding_bag_forward_only", "aten::native_batch_norm",
      "aten::native_layer_norm", "aten::native_group_norm", "aten::native_layer_norm_backward",  "aten::native_batch_norm_backward",
  };
  return names.contains(name);
}

}  // namespace anyaccel::sim
