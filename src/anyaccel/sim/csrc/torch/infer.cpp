#include "torch/infer.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "torch/disagreements.h"
#include "torch/interpreter.h"
#include "torch/kernel_scope.h"

namespace anyaccel::sim {
namespace {

using Key = std::vector<std::int64_t>;
using Answer = std::shared_ptr<const Outcome>;

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    std::uint64_t hash = key.size();
    for (const auto word : key) {
      hash ^= static_cast<std::uint64_t>(word) + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
      hash *= 0xff51afd7ed558ccdULL;
    }
    return hash ^ (hash >> 32);
  }
};

/// Remembered answers, in two generations: when the young one is full the old one goes, so that what is in use stays.
class Memory {
 public:
  bool find(const Key& key, Answer& answer) {
    std::shared_lock lock(mutex_);
    for (auto* generation : {&young_, &old_}) {
      if (const auto place = generation->find(key); place != generation->end()) {
        answer = place->second;
        if (generation == &young_) return true;
        lock.unlock();
        put(key, answer);
        return true;
      }
    }
    return false;
  }

  void put(const Key& key, const Answer& answer) {
    std::unique_lock lock(mutex_);
    if (young_.size() >= kGeneration) old_ = std::exchange(young_, {});
    young_.insert_or_assign(key, answer);
  }

  std::int64_t size() {
    std::shared_lock lock(mutex_);
    return static_cast<std::int64_t>(young_.size() + old_.size());
  }

 private:
  static constexpr std::size_t kGeneration = 8192;
  std::shared_mutex mutex_;
  std::unordered_map<Key, Answer, KeyHash> young_, old_;
};

Memory& memory() {
  static auto* const instance = new Memory;  // leaked: threads may ask until the very end
  return *instance;
}

Outcome::Return describe(const c10::IValue& value) {
  Outcome::Return result;
  const auto add = [&](const at::Tensor& tensor) {
    result.defined.push_back(tensor.defined());
    result.layouts.push_back(tensor.defined() ? Layout::of(tensor) : Layout{});
  };
  if (value.isTensor()) {
    add(value.toTensor());
  } else {
    result.is_list = true;
    for (const c10::IValue& member : value.toListRef()) add(member.toTensor());
  }
  return result;
}

Outcome run(const c10::OperatorHandle& op, const Call& call, const std::vector<at::Tensor>& tensors, c10::DeviceType device) {
  const auto& schema = op.schema();
  auto stack = call.stack(tensors, device);
  const auto key = device == c10::kMeta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
  {
    const KernelScope scope;
    op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  }
  Outcome outcome;
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    if (!schema.returns()[i].alias_info()) outcome.returns.push_back(describe(stack[i]));
  }
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    for (const auto operand : call.operands_of(i)) {
      if (operand < 0 || tensors[operand].sizes() == call.operands().all()[operand].layout.sizes) continue;
      outcome.resized.push_back({operand, c10::DimVector(tensors[operand].sizes())});
    }
  }
  return outcome;
}

/// What a kernel warns about while it is only asked for shapes is said again when it runs.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

Answer ask(const c10::OperatorHandle& op, const Call& call) {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  try {
    if (only_the_cpu_kernel_knows(op.operator_name())) {
      return std::make_shared<const Outcome>(run(op, call, call.operands().on_zeros(), c10::kCPU));
    }
    return std::make_shared<const Outcome>(run(op, call, call.operands().on_meta(), c10::kMeta));
  } catch (const std::exception&) {
    if (caught_interrupt()) throw;
    // The operator refuses the arguments, or has no Meta kernel. Running it tells which, with the CPU's own exception.
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<const Outcome> infer(const c10::OperatorHandle& op, const Call& call) {
  Key key{reinterpret_cast<std::int64_t>(&op.schema()), static_cast<std::int64_t>(c10::typeMetaToScalarType(at::get_default_dtype())),
          at::globalContext().deterministicAlgorithms()};
  const bool rememberable = call.describe(key);
  Answer answer;
  if (rememberable && memory().find(key, answer)) return answer;
  answer = ask(op, call);
  if (rememberable) memory().put(key, answer);
  return answer;
}

std::int64_t remembered_shapes() { return memory().size(); }

}  // namespace anyaccel::sim
