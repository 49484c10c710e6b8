#include "torch/plan.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "torch/disagreements.h"
#include "torch/fallback.h"

namespace anyaccel::sim {
namespace {

using c10::OperatorHandle;

bool is_tensors(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TensorType ||
         (type->kind() == c10::TypeKind::ListType && type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType);
}

/// The overload with the same arguments and, after them, one written tensor per return.
std::optional<OperatorHandle> find_out_form(const c10::FunctionSchema& schema) {
  static const auto* const overloads = [] {
    auto* all = new std::multimap<std::string, c10::OperatorName>;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) all->emplace(name.name, name);
    return all;
  }();
  const auto& arguments = schema.arguments();
  const auto [begin, end] = overloads->equal_range(schema.name());
  for (auto place = begin; place != end; ++place) {
    const auto candidate = c10::Dispatcher::singleton().findSchema(place->second);
    if (!candidate) continue;
    const auto& others = candidate->schema().arguments();
    if (others.size() != arguments.size() + schema.returns().size()) continue;
    bool fits = true;
    for (std::size_t i = 0; i < others.size() && fits; ++i) {
      fits = i < arguments.size() ? others[i].name() == arguments[i].name() && *others[i].type() == *arguments[i].type() &&
                                        is_written(others[i]) == is_written(arguments[i])
                                  : is_written(others[i]) && others[i].type()->kind() == c10::TypeKind::TensorType;
    }
    if (fits) return candidate;
  }
  return std::nullopt;
}

/// The argument that `result` is, or -1.
std::int8_t handed_back(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (!result.alias_info()) return -1;
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() && *arguments[i].alias_info() == *result.alias_info()) return static_cast<std::int8_t>(i);
  }
  return -1;
}

Plan make_plan(const OperatorHandle& op) {
  const auto& schema = op.schema();
  Plan plan{.name = schema.name(), .op = op};
  bool only_single_tensors = true;
  for (const auto& result : schema.returns()) {
    plan.returned_arguments.push_back(handed_back(schema, result));
    if (result.alias_info()) {
      plan.is_view |= !result.alias_info()->isWrite();
      only_single_tensors = false;
    } else {
      plan.has_fresh_returns = true;
      plan.returns_tensors &= is_tensors(result.type());
      only_single_tensors &= result.type()->kind() == c10::TypeKind::TensorType;
    }
  }
  plan.wrapper = structured_wrapper(schema);
  plan.has_cpu_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  if (plan.has_fresh_returns && only_single_tensors && !only_the_cpu_kernel_knows(op.operator_name()))
    plan.out_form = find_out_form(schema);
  return plan;
}

}  // namespace

const Plan& plan_of(const OperatorHandle& op) {
  static std::shared_mutex mutex;
  static auto* const plans = new std::unordered_map<const c10::FunctionSchema*, Plan>;
  const auto* key = &op.schema();
  {
    const std::shared_lock lock(mutex);
    if (const auto place = plans->find(key); place != plans->end()) return place->second;
  }
  auto plan = make_plan(op);
  const std::unique_lock lock(mutex);
  return plans->emplace(key, std::move(plan)).first->second;  // references into an unordered_map stay good
}

}  // namespace anyaccel::sim
