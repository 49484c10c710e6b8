#pragma once
#include <ATen/core/operator_name.h>
#include <torch/library.h>

#include <optional>

namespace anyaccel::sim {

/// The kernel of an operator that is called so often that its arguments should not go over a stack; nullopt for the others.
std::optional<torch::CppFunction> hot_kernel(const c10::OperatorName& op);

}  // namespace anyaccel::sim
