#include "torch/plan.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch/disagreements.h"
#include "torch/fallback.h"

namespace anyaccel::sim {
namespace {

using c10::OperatorHandle;

bool is_tensors(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TensorType ||
         (type->kind() == c10::TypeKind::ListType && type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType);
}

std::vector<OperatorHandle> overloads_of(const std::string& name) {
  static const auto* const names = [] {
    auto* all = new std::multimap<std::string, c10::OperatorName>;
    for (const auto& each : c10::Dispatcher::singleton().getAllOpNames()) all->emplace(each.name, each);
    return all;
  }();
  std::vector<OperatorHandle> overloads;
  const auto [begin, end] = names->equal_range(name);
  for (auto place = begin; place != end; ++place) {
    if (auto overload = c10::Dispatcher::singleton().findSchema(place->second)) overloads.push_back(*overload);
  }
  return overloads;
}

/// The overload with the same arguments and, after them, one written tensor per return.
std::optional<OperatorHandle> find_out_form(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (const auto& candidate : overloads_of(schema.name())) {
    const auto& others = candidate.schema().arguments();
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

/// True if `is_so` says so of the operator or of one of its overloads or functional forms.
template <class IsSo>
bool any_form(const OperatorHandle& op, IsSo is_so) {
  auto name = op.schema().name();
  if (name.ends_with('_')) name.pop_back();
  auto forms = overloads_of(name);
  forms.push_back(op);
  return std::any_of(forms.begin(), forms.end(), is_so);
}

/// True if the operator, or some form of it, since torch does not tag all of them, has one of `tags`.
bool is_tagged(const OperatorHandle& op, std::initializer_list<at::Tag> tags) {
  return any_form(
      op, [&](const OperatorHandle& form) { return std::any_of(tags.begin(), tags.end(), [&](at::Tag tag) { return form.hasTag(tag); }); });
}

bool has_meta_kernel(const OperatorHandle& op) {
  using enum c10::DispatchKey;
  for (const auto key : {Meta, CompositeExplicitAutograd, CompositeExplicitAutogradNonFunctional, CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
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
  static std::atomic<std::int64_t> count{0};
  Plan plan{.number = ++count, .name = schema.name(), .op = op};
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
  plan.changes_no_shapes = !plan.has_fresh_returns;
  for (const auto& argument : schema.arguments()) {
    const bool is_output = argument.kwarg_only() && is_written(argument);
    plan.changes_no_shapes &= !is_output;
    plan.takes_tensors |= !is_output && is_tensors(argument.type());
  }
  plan.is_pointwise = is_tagged(op, {at::Tag::pointwise});
  // Which of torch's own operators look at the data is known by their tags; of others nobody says.
  const bool is_torchs_own = schema.name().starts_with("aten::");
  const auto disagreement = disagreement_of(op.operator_name());
  plan.cpu_kernel_tells = is_torchs_own && !is_tagged(op, {at::Tag::dynamic_output_shape, at::Tag::data_dependent_output});
  plan.resizes_midway = !plan.has_fresh_returns && any_form(op, [](const OperatorHandle& form) {
    return disagreement_of(form.operator_name()) == Disagreement::kOut;
  });
  // The wrapper calls the out= form.
  if (disagreement != Disagreement::kOut) plan.wrapper = structured_wrapper(schema);
  plan.only_cpu_kernel_tells = disagreement == Disagreement::kMeta || !has_meta_kernel(op);
  plan.has_cpu_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  if (plan.has_fresh_returns && only_single_tensors && disagreement == Disagreement::kNone) plan.out_form = find_out_form(schema);
  return plan;
}

/// The plans of the operators that there are. An operator of a library that goes takes its plan off the list, since the next one may
/// come to lie at the same address; the plan itself stays, for tasks that are pending.
class Plans : public c10::OpRegistrationListener {
 public:
  static Plans& get() {
    static auto* const plans = [] {
      auto listener = std::make_unique<Plans>();
      auto* const all = listener.get();
      static auto* const registration =
          new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::move(listener)));
      (void)registration;  // leaked, as operators outlive the statics
      return all;
    }();
    return *plans;
  }

  const Plan& of(const OperatorHandle& op) {
    const auto* const schema = &op.schema();
    {
      const std::shared_lock lock(mutex_);
      if (const auto place = plans_.find(schema); place != plans_.end()) return *place->second;
    }
    auto plan = make_plan(op);
    const std::unique_lock lock(mutex_);
    const auto [place, is_new] = plans_.emplace(schema, nullptr);
    if (is_new) place->second = new Plan(std::move(plan));
    return *place->second;
  }

  void onOperatorRegistered(const OperatorHandle&) override {}

  void onOperatorDeregistered(const OperatorHandle& op) override {
    const std::unique_lock lock(mutex_);
    plans_.erase(&op.schema());
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<const c10::FunctionSchema*, const Plan*> plans_;
};

}  // namespace

const Plan& plan_of(const OperatorHandle& op) { return Plans::get().of(op); }

}  // namespace anyaccel::sim
