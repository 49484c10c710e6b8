#include "torch/call.h"

#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

bool is_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

std::int64_t bits(double value) {
  std::int64_t result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

/// Appends numbers that stand for `value`: its kind, then its content. False for kinds that have none.
bool describe_value(const c10::IValue& value, std::vector<std::int64_t>& key) {
  enum Kind : std::int64_t { kNone, kInt, kDouble, kBool, kComplex, kString, kDevice, kList };
  if (value.isNone()) {
    key.push_back(kNone);
  } else if (value.isInt()) {
    key.insert(key.end(), {kInt, value.toInt()});
  } else if (value.isDouble()) {
    key.insert(key.end(), {kDouble, bits(value.toDouble())});
  } else if (value.isBool()) {
    key.insert(key.end(), {kBool, value.toBool()});
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    key.insert(key.end(), {kComplex, bits(number.real()), bits(number.imag())});
  } else if (value.isString()) {
    const auto& text = value.toStringRef();
    key.insert(key.end(), {kString, static_cast<std::int64_t>(text.size())});
    key.insert(key.end(), text.begin(), text.end());
  } else if (value.isDevice()) {
    key.insert(key.end(), {kDevice, static_cast<std::int64_t>(value.toDevice().type())});
  } else if (value.isList()) {
    const auto list = value.toList();
    key.insert(key.end(), {kList, static_cast<std::int64_t>(list.size())});
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!describe_value(list.get(i), key)) return false;
    }
  } else {
    return false;
  }
  return true;
}

}  // namespace

Call::Call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const auto& parameters = schema.arguments();
  const auto first = stack.size() - parameters.size();
  arguments_.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& value = stack[first + i];
    auto& argument = arguments_[i];
    if (value.isTensor()) {
      argument.kind = Argument::kTensor;
      argument.operands.push_back(take(value.toTensor(), parameters[i], false));
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      const bool optional = value.isOptionalTensorList();
      argument.kind = optional ? Argument::kOptionalTensors : Argument::kTensors;
      for (const c10::IValue& member : value.toListRef()) {
        argument.operands.push_back(member.isTensor() ? take(member.toTensor(), parameters[i], optional) : -1);
      }
    } else if (is_generator(parameters[i])) {
      argument.kind = Argument::kGenerator;
      if (!value.isNone()) generator_ = value.toGenerator();
    } else {
      if (value.isDevice() && value.toDevice().is_privateuseone() && !has_tensor_) device_ = value.toDevice().index();
      argument.value = value;
    }
  }
  TORCH_CHECK(!other_device_ || !has_tensor_, "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(c10::kPrivateUse1, device_), " and ", *other_device_, "! (in ", schema.name(), ")");
  if (device_ < 0) device_ = current_device();
}

std::int32_t Call::take(const at::Tensor& tensor, const c10::Argument& argument, bool index) {
  if (!tensor.defined()) return -1;
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, "sim has no tensors of layout ", tensor.layout(), " (argument ",
                              argument.name(), "). Use a dense tensor, or keep this one on the CPU.");
  if (tensor.is_privateuseone()) {
    if (has_tensor_ && tensor.device().index() != device_) other_device_ = tensor.device();
    if (!has_tensor_) device_ = tensor.device().index();
    has_tensor_ = true;
  } else {
    const bool written = argument.alias_info() && argument.alias_info()->isWrite();
    if (!tensor.is_cpu() || written || (tensor.dim() > 0 && !index)) other_device_ = tensor.device();
  }
  return operands_.add(tensor);
}

void Call::append(const at::Tensor& output) {
  Argument argument;
  argument.kind = Argument::kTensor;
  argument.operands.push_back(operands_.add(output));
  arguments_.push_back(std::move(argument));
}

void Call::freeze() {
  for (const auto& argument : arguments_) {
    if (argument.kind == Argument::kGenerator) philox_ = sim::take(generator_, device_);
  }
  generator_.reset();
  operands_.snapshot_host_tensors();
  operands_.forget_tensors();
}

torch::jit::Stack Call::stack(const std::vector<at::Tensor>& tensors, c10::DeviceType device) const {
  const auto pick = [&](std::int32_t operand) { return operand < 0 ? at::Tensor() : tensors[operand]; };
  torch::jit::Stack stack;
  stack.reserve(arguments_.size());
  for (const auto& argument : arguments_) {
    switch (argument.kind) {
      case Argument::kTensor:
        stack.emplace_back(pick(argument.operands[0]));
        break;
      case Argument::kTensors: {
        c10::List<at::Tensor> list;
        for (const auto operand : argument.operands) list.push_back(pick(operand));
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto operand : argument.operands) {
          list.push_back(operand < 0 ? std::nullopt : std::optional<at::Tensor>(tensors[operand]));
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::kGenerator:
        stack.emplace_back(philox_ && device == c10::kCPU ? c10::IValue(cpu_generator(*philox_)) : c10::IValue());
        break;
      case Argument::kValue:
        stack.push_back(argument.value.isDevice() && argument.value.toDevice().is_privateuseone() ? c10::IValue(c10::Device(device))
                                                                                                  : argument.value);
    }
  }
  return stack;
}

bool Call::describe(std::vector<std::int64_t>& key) const {
  for (const auto& argument : arguments_) {
    key.push_back(argument.kind);
    key.push_back(static_cast<std::int64_t>(argument.operands.size()));
    key.insert(key.end(), argument.operands.begin(), argument.operands.end());
    if (argument.kind == Argument::kValue && !describe_value(argument.value, key)) return false;
  }
  operands_.describe(key);
  return true;
}

}  // namespace anyaccel::sim
