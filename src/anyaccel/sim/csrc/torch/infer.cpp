#include "torch/infer.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "torch/interpreter.h"
#include "torch/kernel_scope.h"
#include "torch/stand_ins.h"

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

/// What this thread was told lately, so that threads share no lock for it.
class Recent {
 public:
  /// The answer to the last question of this hash, if it was this one.
  const Answer* find(std::size_t hash, View key) const {
    const auto& entry = entries_[hash % kEntries];
    return View(entry.key) == key && !entry.key.empty() ? &entry.answer : nullptr;
  }

  void put(std::size_t hash, View key, const Answer& answer) {
    auto& entry = entries_[hash % kEntries];
    entry.key.assign(key.begin(), key.end());
    entry.answer = answer;
  }

  static Recent& of_this_thread() {
    thread_local const auto recent = std::make_unique<Recent>();
    return *recent;
  }

 private:
  static constexpr std::size_t kEntries = 512;
  struct Entry {
    Key key;
    Answer answer;
  };
  std::array<Entry, kEntries> entries_;
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
      outcome.resized.push_back({operand, c10::DimVector(tensors[operand].sizes()), c10::DimVector(tensors[operand].strides())});
    }
  }
  return outcome;
}

/// What a kernel warns about while it is only asked is said again when it runs.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// What `kernel` returns; null where it throws, since then running the operator tells which error, and the CPU's own.
template <class Kernel>
Answer unless_refused(Kernel kernel) {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  const c10::WarningUtils::WarnAlways also_what_is_said_once;  // or the run would have nothing left to say
  try {
    return std::make_shared<const Outcome>(kernel());
  } catch (const std::exception&) {
    if (caught_interrupt()) throw;
  }
  return nullptr;
}

Answer ask_meta(const c10::OperatorHandle& op, const Call& call) {
  return unless_refused([&] { return run(op, call, call.operands().on_meta(), c10::kMeta); });
}

/// Asks the CPU kernel itself. Values that are refused are not the arguments' fault: others may do.
Answer ask_cpu(const c10::OperatorHandle& op, const Call& call) {
  for (const auto values : {StandIn::kUsual, StandIn::kOnes}) {
    if (auto answer = unless_refused([&] { return run(op, call, stand_ins(call.operands(), values), c10::kCPU); })) return answer;
  }
  return nullptr;
}

bool accepts_when_shrunk(const c10::OperatorHandle& op, const Call& call, StandIn values, c10::DeviceType device) {
  return unless_refused([&] { return run(op, call, shrunk_stand_ins(call.operands(), values, device), device); }) != nullptr;
}

bool cpu_refuses_when_shrunk(const c10::OperatorHandle& op, const Call& call) {
  return !accepts_when_shrunk(op, call, StandIn::kUsual, c10::kCPU) && !accepts_when_shrunk(op, call, StandIn::kOnes, c10::kCPU);
}

/// True if the CPU kernel refuses, whatever the values, what the Meta kernel accepts, as far as shrunk tensors show it.
bool refuses_when_shrunk(const c10::OperatorHandle& op, const Call& call) {
  return cpu_refuses_when_shrunk(op, call) && accepts_when_shrunk(op, call, StandIn::kUsual, c10::kMeta);
}

/// How much larger the numbers among the arguments may make a result than its operands are: a guess that is too high rather than too low.
double growth(const Call& call) {
  double factor = 1;
  const auto grow = [&](double number) { factor *= std::max(1.0, std::abs(number)); };
  for (const auto& value : call.stack(Tensors(call.operands().size()), c10::kMeta)) {
    if (value.isInt()) grow(static_cast<double>(value.toInt()));
    if (value.isDouble()) grow(value.toDouble());
    if (value.isIntList()) std::ranges::for_each(value.toIntVector(), grow);
    if (value.isDoubleList()) std::ranges::for_each(value.toDoubleVector(), grow);
  }
  return factor;
}

/// How many elements the call makes.
std::int64_t elements_of(const Outcome& outcome) {
  std::int64_t elements = 0;
  for (const auto& resize : outcome.resized) elements += c10::multiply_integers(resize.sizes);
  for (const auto& result : outcome.returns) {
    for (const auto& layout : result.layouts) elements += c10::multiply_integers(layout.sizes);
  }
  return elements;
}

/// What may be worked through at the call.
constexpr double kSmallBytes = 1 << 18, kBearableBytes = 1 << 22;

/// How much larger than shrunk tensors what is made of them may be.
constexpr double kBearableGrowth = kBearableBytes / 32;

}  // namespace

Question::Question(const Plan& plan, const Call& call) {
  const auto& context = at::globalContext();
  key.append({plan.number, static_cast<std::int64_t>(c10::typeMetaToScalarType(at::get_default_dtype())) |
                               std::int64_t{context.deterministicAlgorithms()} << 8 |
                               std::int64_t{context.deterministicAlgorithmsWarnOnly()} << 9});
  call.describe(key);
  rememberable = call.describable();
}

std::optional<Answer> recall(const Question& question) {
  if (!question.rememberable) return std::nullopt;
  const auto hash = Hash()(question.key);
  auto& recent = Recent::of_this_thread();
  if (const auto* answer = recent.find(hash, question.key)) return *answer;
  auto answer = memory().find(question.key);
  if (answer) recent.put(hash, question.key, *answer);
  return answer;
}

void remember(const Question& question, Answer answer) {
  if (question.rememberable) memory().put(question.key, std::move(answer));
}

Answer ask(const Plan& plan, const Call& call) {
  if (!plan.cpu_kernel_tells) return ask_meta(plan.op, call);
  if (!plan.takes_tensors) {  // such as arange: its numbers may mean anything
    const auto answer = ask_meta(plan.op, call);
    return answer && static_cast<double>(elements_of(*answer)) <= kSmallBytes / 8 ? ask_cpu(plan.op, call) : answer;
  }
  const auto factor = growth(call);
  const auto bytes = factor * (1 + work_on(call.operands(), plan.is_pointwise));
  if (bytes <= kSmallBytes) return ask_cpu(plan.op, call);
  if (plan.only_cpu_kernel_tells) return plan.changes_no_shapes ? std::make_shared<const Outcome>() : ask_cpu(plan.op, call);
  const bool shrinks = (plan.is_pointwise || call.operands().size() == 1) && (plan.changes_no_shapes || factor <= kBearableGrowth);
  if (shrinks && refuses_when_shrunk(plan.op, call)) return bytes <= kBearableBytes ? ask_cpu(plan.op, call) : nullptr;
  return ask_meta(plan.op, call);
}

bool may_refuse_values(const Plan& plan, const Call& call) {
  Question kind;
  kind.key.append({plan.number, -1});  // no question about one call begins like this
  call.describe_kind(kind.key);
  kind.rememberable = call.describable();
  if (const auto known = recall(kind)) return !*known;
  const bool refuses = growth(call) <= kBearableGrowth && cpu_refuses_when_shrunk(plan.op, call);
  remember(kind, refuses ? nullptr : std::make_shared<const Outcome>());
  return refuses;
}

Outcome::Return describe(const c10::IValue& value) {
  Outcome::Return result;
  const auto add = [&](const at::Tensor& tensor) {
    TORCH_CHECK_NOT_IMPLEMENTED(!tensor.defined() || (tensor.layout() == at::kStrided && !tensor.is_quantized()),
                                "sim has no tensors of layout ", tensor.layout(), ".");
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
