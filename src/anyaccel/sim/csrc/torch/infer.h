#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "torch/call.h"
#include "torch/operands.h"
#include "torch/plan.h"

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
    c10::DimVector strides;
  };

  std::vector<Return> returns;  ///< those that are no argument handed back
  std::vector<Resize> resized;
};

using Answer = std::shared_ptr<const Outcome>;

/// What an outcome depends on: the operator, the call, and the settings of torch that its kernels read.
struct Question {
  Question() = default;
  Question(const Plan& plan, const Call& call);

  Words key;
  bool rememberable = false;
};

/// What was remembered for `question`; nullopt if nothing was. Null where only running the call can tell.
std::optional<Answer> recall(const Question& question);

/// Remembers an answer, in a table of bounded size that all threads share.
void remember(const Question& question, Answer answer);

/// The outcome of `call`; null where only running it can tell: shapes that depend on the data, or arguments that the operator refuses,
/// which then is the call's own error.
///
/// Small calls are put to the CPU kernel itself, over tensors that stand in for the arguments: it is exact, refuses what it will refuse
/// on the stream, and is faster than most Meta kernels. Large ones are put to the Meta kernel, unless torch has none or it is known to
/// say something else.
Answer ask(const Plan& plan, const Call& call);

/// False if the CPU kernel certainly takes the numbers, strings and types among the arguments, whatever its shape rules say.
/// Remembered for all calls that differ in shapes only.
bool may_refuse_values(const Plan& plan, const Call& call);

/// What `value`, a tensor or a list of them, is like.
Outcome::Return describe(const c10::IValue& value);

/// How many answers are remembered now.
std::int64_t remembered_shapes();

}  // namespace anyaccel::sim
