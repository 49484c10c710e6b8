#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <string>

namespace anyaccel::sim {

/// What an operator's schema says about how it runs; worked out once per operator.
struct Plan {
  std::int64_t number;             ///< no other operator of this process has it, also none that is gone
  std::string name;                ///< lives as long as the process: tasks and figures refer to it
  bool has_fresh_returns = false;  ///< some return is no argument handed back
  bool returns_tensors = true;     ///< and every one of them is a tensor or a list of them
  bool is_view = false;            ///< returns an alias of an argument
  bool takes_tensors = false;      ///< not only numbers, and tensors to write to
  bool has_cpu_kernel = false;
  bool cpu_kernel_tells = false;       ///< run over other values, the CPU kernel leaves behind the same shapes and types
  bool only_cpu_kernel_tells = false;  ///< and no Meta kernel does
  bool changes_no_shapes = false;      ///< returns nothing of its own and has no `out=` to resize
  bool is_pointwise = false;
  bool resizes_midway = false;  ///< gives its `out=` another size in between
  c10::OperatorHandle op;
  std::optional<c10::OperatorHandle> out_form;          ///< writes into tensors handed to it what this operator returns
  const c10::SafeKernelFunction* wrapper = nullptr;     ///< torch's own way to the out= form, which knows shapes, where there is one
  c10::SmallVector<std::int8_t, 4> returned_arguments;  ///< for each return the argument that is handed back, or -1 for a fresh one
};

/// The plan of `op`, which lives as long as the process.
const Plan& plan_of(const c10::OperatorHandle& op);

inline bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

}  // namespace anyaccel::sim
