#pragma once
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "torch/generator.h"
#include "torch/operands.h"

namespace anyaccel::sim {

/// One call of an operator as plain data: its arguments with the tensors taken out.
class Call {
 public:
  /// Reads the arguments of `schema` off the end of `stack`, which stays as it is. Raises unless every tensor is on one device, but for
  /// the CPU tensors that CUDA takes as well: those without dimensions, and indices.
  Call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

  /// The device that the call is for: that of its tensors, or the one it names, or the current one.
  c10::DeviceIndex device() const noexcept { return device_; }

  const Operands& operands() const noexcept { return operands_; }

  /// The operands that argument `index` consists of (-1: absent): one for a tensor, several for a list.
  c10::ArrayRef<std::int32_t> operands_of(std::size_t index) const { return arguments_[index].operands; }

  /// Looks at an operand again: it was resized.
  void refresh(std::int32_t operand, const at::Tensor& tensor) { operands_.refresh(operand, tensor); }

  /// Adds an argument at the end: an output.
  void append(const at::Tensor& output);

  /// Takes from the generator (the one given, or the device's) what the call's random numbers come from, and copies host tensors:
  /// what a task reads later must be what it was at the call. To be called once, last, before the call goes into a task.
  void freeze();

  /// The arguments for a kernel on `device`, with `tensors` (Operands::on_...) in their places.
  torch::jit::Stack stack(const std::vector<at::Tensor>& tensors, c10::DeviceType device) const;

  /// Appends to `key` all that the shape of a result can depend on; false if an argument is of a kind that has no such numbers.
  bool describe(std::vector<std::int64_t>& key) const;

 private:
  struct Argument {
    enum Kind : std::int8_t { kValue, kTensor, kTensors, kOptionalTensors, kGenerator } kind = kValue;
    c10::IValue value;  ///< of kValue
    c10::SmallVector<std::int32_t, 1> operands;
  };

  std::int32_t take(const at::Tensor& tensor, const c10::Argument& argument, bool index);

  Operands operands_;
  std::vector<Argument> arguments_;
  std::optional<at::Generator> generator_;
  std::optional<Philox> philox_;
  c10::DeviceIndex device_ = -1;
  std::optional<c10::Device> other_device_;  ///< of a tensor that must not be elsewhere, for the message
  bool has_tensor_ = false;
};

}  // namespace anyaccel::sim
