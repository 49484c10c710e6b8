#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "torch/call.h"
#include "torch/operands.h"

namespace anyaccel::sim {

/// What a call will leave behind, known before it runs.
struct Outcome {
  /// One return value: several tensors where it is a list, `defined` false where the operator leaves it out.
  struct Return {
    bool is_list = false;
    std::vector<Layout> layouts;
    std::vector<bool> defined;
  };

  /// An operand that the call resizes.
  struct Resize {
    std::int32_t operand;
    c10::DimVector sizes;
  };

  std::vector<Return> returns;  ///< those that are no argument handed back
  std::vector<Resize> resized;
};

/// The outcome of `call`; null where only running it can tell (shapes that depend on the data, or arguments that the operator refuses).
///
/// It comes from the operator's Meta kernel, or, for the few operators whose Meta kernel says something else than their CPU kernel
/// does, from the CPU kernel over zeros. Answers are remembered, in a table of bounded size that all threads share.
std::shared_ptr<const Outcome> infer(const c10::OperatorHandle& op, const Call& call);

/// How many answers are remembered now.
std::int64_t remembered_shapes();

}  // namespace anyaccel::sim
