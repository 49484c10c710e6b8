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

// Looked up by words that lie elsewhere, and kept in words of exactly their number.
using View = c10::ArrayRef<std::int64_t>;
using Key = std::vector<std::int64_t>;

struct Hash {
  using is_transparent = void;
  std::size_t operator()(View key) const noexcept {
    std::uint64_t hash = key.size();
    for (const auto word : key) {
      hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

struct Equal {
  using is_transparent = void;
  bool operator()(View left, View right) const noexcept { return left == right; }
};

/// Remembered answers, in two generations: when the young one is full the old one goes, so that what is in use stays.
class Memory {
 public:
  std::optional<Answer> find(View key) {
    std::shared_lock lock(mutex_);
    if (const auto place = young_.find(key); place != young_.end()) return place->second;
    const auto place = old_.find(key);
    if (place == old_.end()) return std::nullopt;
    const auto answer = place->second;
    lock.unlock();
    put(key, answer);
    return answer;
  }

  void put(View key, const Answer& answer) {
    std::unique_lock lock(mutex_);
    if (young_.size() >= kGeneration) old_ = std::exchange(young_, {});
    young_.insert_or_assign(key.vec(), answer);
  }

  std::int64_t size() {
    std::shared_lock lock(mutex_);
    return static_cast<std::int64_t>(young_.size() + old_.size());
  }

 private:
  static constexpr std::size_t kGeneration = 8192;
  std::shared_mutex mutex_;
  std::unordered_map<Key, Answer, Hash, Equal> young_, old_;
};

Memory& memory() {
  static auto* const instance = new Memory;  // leaked: threads may ask until the very end
  return *instance;
}

Outcome run(const c10::OperatorHandle& op, const Call& call, const Tensors& tensors, c10::DeviceType device) {
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
      if (operand < 0 || tensors[operand].sizes() == call.operands().sizes(operand)) continue;
      outcome.resized.push_back({operand, c10::DimVector(tensors[operand].sizes())});
    }
  }
  return outcome;
}

/// What a kernel warns about while it is only asked for shapes is said again when it runs.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

Answer try_out(const c10::OperatorHandle& op, const Call& call, c10::DeviceType device) {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  try {
    const auto& operands = call.operands();
    return std::make_shared<const Outcome>(run(op, call, device == c10::kMeta ? operands.on_meta() : operands.on_zeros(), device));
  } catch (const std::exception&) {
    if (caught_interrupt()) throw;
    // The operator refuses the arguments, or has no Meta kernel. Running it tells which, with the CPU's own exception.
  }
  return nullptr;
}

/// How much a CPU kernel may work through to tell shapes.
constexpr std::size_t kSmallBytes = 64 << 10;

/// What is common to the calls of an operator that differ in shapes only.
Question kind_of(const c10::OperatorHandle& op, const Call& call) {
  Question kind;
  kind.key.append({reinterpret_cast<std::int64_t>(&op.schema()), -1});  // no question about a call begins like this
  call.describe_kind(kind.key);
  kind.rememberable = call.describable();
  return kind;
}

}  // namespace

Question::Question(const c10::OperatorHandle& op, const Call& call) {
  key.append({reinterpret_cast<std::int64_t>(&op.schema()),
              static_cast<std::int64_t>(c10::typeMetaToScalarType(at::get_default_dtype())) |
                  std::int64_t{at::globalContext().deterministicAlgorithms()} << 8});
  call.describe(key);
  rememberable = call.describable();
}

std::optional<Answer> recall(const Question& question) {
  return question.rememberable ? memory().find(question.key) : std::nullopt;
}

void remember(const Question& question, Answer answer) {
  if (question.rememberable) memory().put(question.key, std::move(answer));
}

Answer ask(const c10::OperatorHandle& op, const Call& call) {
  if (only_the_cpu_kernel_knows(op.operator_name())) return try_out(op, call, c10::kCPU);
  // Most Meta kernels are Python, and take a hundred times as long as a small CPU kernel. Once Meta has answered for calls of this
  // kind, their shapes do not depend on data, and the CPU kernel answers for other shapes as well.
  const auto kind = kind_of(op, call);
  const bool small = kind.rememberable && op.schema().name().rfind("aten::", 0) == 0 && call.operands().bytes_of_zeros() <= kSmallBytes;
  if (small && recall(kind)) {
    if (auto answer = try_out(op, call, c10::kCPU)) return answer;
  }
  auto answer = try_out(op, call, c10::kMeta);
  if (small && answer) remember(kind, answer);
  return answer;
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

std::int64_t remembered_shapes() { return memory().size(); }

}  // namespace anyaccel::sim
