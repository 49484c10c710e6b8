#include "torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

/// How far one random op moves a generator on: as torch.cuda, whose offsets are multiples of four as well.
constexpr std::uint64_t kOffsetPerOp = 4;

/// torch.cuda's layout of a state: the seed, then the offset.
constexpr std::size_t kStateBytes = 2 * sizeof(std::uint64_t);

/// Seed and offset. Generators that came from graphsafe_get_state() share one; it has its own lock, since torch reads seeds and
/// offsets without the generator's.
class State {
 public:
  explicit State(Philox philox) : philox_(philox) {}

  Philox get() const {
    std::lock_guard lock(mutex_);
    return philox_;
  }

  void set(Philox philox) {
    std::lock_guard lock(mutex_);
    philox_ = philox;
  }

  void set_offset(std::uint64_t offset) {
    std::lock_guard lock(mutex_);
    philox_.offset = offset;
  }

  Philox take() {
    std::lock_guard lock(mutex_);
    return {philox_.seed, std::exchange(philox_.offset, philox_.offset + kOffsetPerOp)};
  }

 private:
  mutable std::mutex mutex_;
  Philox philox_;
};

void check_offset(std::uint64_t offset) {
  TORCH_CHECK_VALUE(offset % kOffsetPerOp == 0, "The offset of a ", kDeviceName, " generator must be a multiple of ", kOffsetPerOp,
                    ", not ", offset, ".");
}

class SimGenerator final : public c10::GeneratorImpl {
 public:
  SimGenerator(c10::DeviceIndex device, std::shared_ptr<State> state)
      : GeneratorImpl(c10::Device(kDeviceType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), state_(std::move(state)) {}

  static c10::DeviceType device_type() { return kDeviceType; }

  Philox take() const { return state_->take(); }

  void set_current_seed(std::uint64_t seed) override { state_->set({seed, 0}); }
  std::uint64_t current_seed() const override { return state_->get().seed; }

  void set_offset(std::uint64_t offset) override {
    check_offset(offset);
    state_->set_offset(offset);
  }
  std::uint64_t get_offset() const override { return state_->get().offset; }

  std::uint64_t seed() override {
    const auto seed = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);  // 53 bits: a double holds the seed
    set_current_seed(seed);
    return seed;
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({static_cast<std::int64_t>(kStateBytes)}, at::kByte);
    const auto philox = state_->get();
    std::memcpy(state.mutable_data_ptr(), &philox, kStateBytes);
    return state.getIntrusivePtr();
  }

  void set_state(const c10::TensorImpl& new_state) override {
    at::detail::check_rng_state(new_state);
    TORCH_CHECK(new_state.numel() == static_cast<std::int64_t>(kStateBytes), "The state of a ", kDeviceName, " generator has ", kStateBytes,
                " bytes (seed and offset), not ", new_state.numel(), ": take it from such a generator's get_state().");
    Philox philox;
    std::memcpy(&philox, new_state.data(), kStateBytes);
    check_offset(philox.offset);
    state_->set(philox);
  }

  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    auto* generator = dynamic_cast<SimGenerator*>(other.get());
    TORCH_CHECK(generator, "Expected a generator of a ", kDeviceName, " device.");
    state_ = generator->state_;
  }

  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<SimGenerator>(device().index(), state_);
  }

 private:
  SimGenerator* clone_impl() const override { return new SimGenerator(device().index(), std::make_shared<State>(state_->get())); }

  std::shared_ptr<State> state_;
};

static_assert(sizeof(Philox) == kStateBytes);

/// Sebastiano Vigna's splitmix64: consecutive and otherwise related inputs give unrelated numbers.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}

  std::uint64_t operator()() {
    std::uint64_t mixed = (state_ += 0x9e3779b97f4a7c15u);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

 private:
  std::uint64_t state_;
};

at::Generator make(c10::DeviceIndex device) {
  return at::make_generator<SimGenerator>(device, std::make_shared<State>(Philox{c10::default_rng_seed_val, 0}));
}

const std::vector<at::Generator>& default_generators() {
  static const auto* generators = [] {
    auto* all = new std::vector<at::Generator>;  // leaked: Python objects refer to them until the end
    for (int device = 0; device < runtime().device_count(); ++device) all->push_back(make(static_cast<c10::DeviceIndex>(device)));
    return all;
  }();
  return *generators;
}

}  // namespace

Philox take(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  if (!generator || !generator->defined()) return default_generator(device).get<SimGenerator>()->take();
  auto* chosen = at::check_generator<SimGenerator>(generator);
  const auto wanted = device_at(device).index();
  TORCH_CHECK(chosen->device().index() == wanted, "Expected a generator of ", kDeviceName, ':', wanted, ", but got one of ",
              chosen->device(), ".");
  return chosen->take();
}

at::Generator cpu_generator(Philox philox) {
  // The engine's own seeding looks at 32 bits only, so that two ops in 65,000 would draw the same numbers: its state is filled here.
  SplitMix mix(SplitMix(philox.seed)() ^ philox.offset);
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  at::mt19937_data_pod data{philox.seed, /*left_=*/1, /*seeded_=*/true, /*next_=*/0, {}};
  for (std::size_t word = 0; word < data.state_.size(); word += 2) {
    const auto bits = mix();
    data.state_[word] = static_cast<std::uint32_t>(bits);
    data.state_[word + 1] = static_cast<std::uint32_t>(bits >> 32);
  }
  at::mt19937 engine;
  engine.set_data(data);
  generator.get<at::CPUGeneratorImpl>()->set_engine(engine);
  return generator;
}

const at::Generator& default_generator(c10::DeviceIndex device) { return default_generators()[device_at(device).index()]; }

at::Generator new_generator(c10::DeviceIndex device) { return make(static_cast<c10::DeviceIndex>(device_at(device).index())); }

}  // namespace anyaccel::sim
