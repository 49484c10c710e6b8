#pragma once
#include <ATen/core/IListRef.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>

#include "torch/generator.h"
#include "torch/operands.h"
#include "torch/pool.h"

namespace anyaccel::sim {

/// One call of an operator as plain data: its arguments with the tensors taken out.
class Call : public Pooled<Call> {
 public:
  using Indices = c10::SmallVector<std::int32_t, 4>;

  /// Reads the arguments of `schema` off the end of `stack`, which stays as it is. Raises unless every tensor is on one device, but for
  /// the CPU tensors that CUDA takes as well: those without dimensions, and indices.
  Call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

  /// The same from arguments that were not put on a stack.
  template <class... Arguments>
  explicit Call(const c10::FunctionSchema& schema, const Arguments&... arguments) {
    begin(schema);
    const auto* parameter = schema.arguments().data();
    (take(arguments, *parameter++), ...);
    check_devices(schema);
  }

  /// The device that the call is for: that of its tensors, or the one it names, or the current one.
  c10::DeviceIndex device() const noexcept { return device_; }

  const Operands& operands() const noexcept { return operands_; }

  /// The operands that argument `index` consists of (-1: absent): one for a tensor, several for a list.
  Indices operands_of(std::size_t index) const;

  /// Looks at an operand again: it was resized.
  void refresh(std::int32_t operand, const at::Tensor& tensor) { operands_.refresh(operand, tensor); }

  /// Adds an argument at the end: an output.
  void append(const at::Tensor& output);

  /// Takes from the generator (the one given, or the device's) what the call's random numbers come from, and copies host tensors:
  /// what a task reads later must be what it was at the call. To be called once, last, before the call goes into a task; what it
  /// returns must live until that is enqueued.
  [[nodiscard]] Tensors freeze();

  /// The arguments for a kernel on `device`, with `tensors` (Operands::on_...) in their places.
  torch::jit::Stack stack(const Tensors& tensors, c10::DeviceType device) const;

  /// Appends to `key` all that the shape of a result can depend on.
  void describe(Words& key) const;

  /// Appends what does not change with the tensors' shapes.
  void describe_kind(Words& key) const;

  /// False if an argument is of a kind that no numbers describe.
  bool describable() const noexcept { return describable_; }

 private:
  enum Kind : std::int64_t { kValue, kTensor, kTensors, kOptionalTensors, kGenerator };

  // An argument's first word: its kind, how many words follow, and for a single tensor the operand.
  static std::int64_t head(Kind kind, std::size_t following, std::int32_t operand = -1) noexcept {
    return kind | static_cast<std::int64_t>(following) << 8 | std::int64_t{operand} << 32;
  }
  static constexpr std::size_t kMostWords = 1 << 20;  // of one argument; a head counts 24 bits
  static Kind kind_of(std::int64_t head) noexcept { return static_cast<Kind>(head & 0xff); }
  static std::size_t following(std::int64_t head) noexcept { return static_cast<std::size_t>(head >> 8 & 0xffffff); }
  static std::int32_t operand_of(std::int64_t head) noexcept { return static_cast<std::int32_t>(head >> 32); }

  /// An operator that returns nothing, such as a step of an optimizer over many tensors, changes no shapes: its factors, which are
  /// others at each step, matter to nothing but the data.
  void begin(const c10::FunctionSchema& schema) { doubles_matter_ = !schema.returns().empty(); }

  void take(const c10::IValue& value, const c10::Argument& parameter);
  void take(const at::Tensor& tensor, const c10::Argument& parameter) { words_.push_back(head(kTensor, 0, add(tensor, parameter, false))); }
  void take(const std::optional<at::Tensor>& tensor, const c10::Argument& parameter) {
    tensor ? take(*tensor, parameter) : take_value(c10::IValue());
  }
  void take(at::TensorList tensors, const c10::Argument& parameter) { take_list(tensors, parameter); }
  void take(const at::ITensorListRef& tensors, const c10::Argument& parameter) { take_list(tensors, parameter); }
  template <class T>
  void take(const T& value, const c10::Argument&) {
    take_value(c10::IValue(value));
  }

  template <class List>
  void take_list(const List& tensors, const c10::Argument& parameter) {
    TORCH_CHECK(tensors.size() < kMostWords, "A call can take ", kMostWords, " tensors in a list, not ", tensors.size(), ".");
    words_.push_back(head(kTensors, tensors.size()));
    for (const auto& tensor : tensors) words_.push_back(add(tensor, parameter, false));
  }
  void take_list(const c10::IValue& value, const c10::Argument& parameter);
  void take_value(c10::IValue value);
  std::int32_t add(const at::Tensor& tensor, const c10::Argument& parameter, bool index);
  void check_devices(const c10::FunctionSchema& schema);

  Operands operands_;
  Words words_;
  c10::SmallVector<c10::IValue, 6> values_;  ///< of the arguments that are no tensors
  Tensors copies_;                           ///< of indices on the host; kept while tensors are told apart by address
  std::optional<at::Generator> generator_;
  std::optional<Philox> philox_;
  std::optional<c10::Device> other_device_;  ///< of a tensor that must not be elsewhere, for the message
  c10::DeviceIndex device_ = -1;
  bool has_tensor_ = false;
  bool has_generator_ = false;
  bool describable_ = true;
  bool doubles_matter_ = true;
};

}  // namespace anyaccel::sim
