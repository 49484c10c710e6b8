#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "torch/plan.h"

namespace anyaccel::sim {

using Values = c10::SmallVector<c10::IValue, 3>;

/// Calls `visit` with each tensor of `values`, lists taken apart.
template <class Visit>
void each_tensor(const Values& values, Visit visit) {
  for (const auto& value : values) {
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const c10::IValue& member : value.toListRef()) visit(member.toTensor());
    }
  }
}

/// The returns at the end of a finished stack that are no argument handed back.
inline Values fresh_returns(const Plan& plan, const torch::jit::Stack& stack) {
  Values results;
  const auto first = stack.size() - plan.returned_arguments.size();
  for (std::size_t i = 0; i < plan.returned_arguments.size(); ++i) {
    if (plan.returned_arguments[i] < 0) results.push_back(stack[first + i]);
  }
  return results;
}

}  // namespace anyaccel::sim
