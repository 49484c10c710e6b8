#include "torch/call.h"

#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

bool is_generator(const c10::Argument& argument) {
  const auto* const type = argument.type().get();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  return type->kind() == c10::TypeKind::OptionalType &&
         type->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

std::int64_t bits(double value) {
  std::int64_t result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

/// Appends numbers that stand for `value`: its kind, then its content, where `with_doubles` says so also that of floating-point
/// numbers. False for kinds that have none.
bool describe_value(const c10::IValue& value, bool with_doubles, Words& key) {
  enum Kind : std::int64_t { kNone, kInt, kDouble, kBool, kComplex, kString, kDevice, kList };
  if (value.isNone()) {
    key.push_back(kNone);
  } else if (value.isInt()) {
    key.append({kInt, value.toInt()});
  } else if (value.isDouble()) {
    key.append({kDouble, with_doubles ? bits(value.toDouble()) : 0});
  } else if (value.isBool()) {
    key.append({kBool, value.toBool()});
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    key.append({kComplex, bits(number.real()), bits(number.imag())});
  } else if (value.isString()) {
    const auto& text = value.toStringRef();
    key.append({kString, static_cast<std::int64_t>(text.size())});
    key.append(text.begin(), text.end());
  } else if (value.isDevice()) {
    key.append({kDevice, static_cast<std::int64_t>(value.toDevice().type())});
  } else if (value.isList()) {
    const auto list = value.toListRef();
    key.append({kList, static_cast<std::int64_t>(list.size())});
    for (const auto& member : list) {
      if (!describe_value(member, with_doubles, key)) return false;
    }
  } else {
    return false;
  }
  return true;
}

}  // namespace

Call::Call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  begin(schema);
  const auto& parameters = schema.arguments();
  const auto first = stack.size() - parameters.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) take(stack[first + i], parameters[i]);
  check_devices(schema);
}

void Call::take(const c10::IValue& value, const c10::Argument& parameter) {
  if (value.isTensor()) {
    take(value.toTensor(), parameter);
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    take_list(value, parameter);
  } else if (value.isGenerator() || (value.isNone() && is_generator(parameter))) {
    words_.push_back(head(kGenerator, 0));
    has_generator_ = true;
    if (!value.isNone()) generator_ = value.toGenerator();
  } else {
    take_value(value);
  }
}

void Call::take_list(const c10::IValue& value, const c10::Argument& parameter) {
  const bool optional = value.isOptionalTensorList();
  const auto members = value.toListRef();
  TORCH_CHECK(members.size() < kMostWords, "A call can take ", kMostWords, " tensors in a list, not ", members.size(), ".");
  words_.push_back(head(optional ? kOptionalTensors : kTensors, members.size()));
  for (const auto& member : members) words_.push_back(member.isTensor() ? add(member.toTensor(), parameter, optional) : -1);
}

void Call::take_value(c10::IValue value) {
  if (value.isDevice() && value.toDevice().is_privateuseone() && !has_tensor_) device_ = value.toDevice().index();
  const auto place = words_.size();
  words_.push_back(0);
  describable_ &= describe_value(value, doubles_matter_, words_);
  if (words_.size() - place > kMostWords) {  // nobody asks the same again
    words_.resize(place + 1);
    describable_ = false;
  }
  words_[place] = head(kValue, words_.size() - place - 1);
  values_.push_back(std::move(value));
}

std::int32_t Call::add(const at::Tensor& tensor, const c10::Argument& parameter, bool index) {
  if (!tensor.defined()) return -1;
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, "sim has no tensors of layout ", tensor.layout(), " (argument ",
                              parameter.name(), "). Use a dense tensor, or keep this one on the CPU.");
  if (tensor.is_privateuseone()) {
    const auto device = tensor.get_device();
    if (has_tensor_ && device != device_) other_device_ = tensor.device();
    if (!has_tensor_) device_ = static_cast<c10::DeviceIndex>(device);
    has_tensor_ = true;
  } else if (index && has_tensor_ && tensor.is_cpu() && tensor.dim() > 0) {
    copies_.push_back(tensor.to(c10::Device(c10::kPrivateUse1, device_)));  // as CUDA does, and the host waits for it
    return operands_.add(copies_.back());
  } else {
    const bool written = parameter.alias_info() && parameter.alias_info()->isWrite();
    if (!tensor.is_cpu() || written || tensor.dim() > 0) other_device_ = tensor.device();
  }
  return operands_.add(tensor);
}

void Call::check_devices(const c10::FunctionSchema& schema) {
  // Nothing but the generator has brought the call here.
  TORCH_CHECK(!generator_ || has_tensor_ || device_ >= 0 || operands_.size() == 0, "Expected a 'cpu' device type for generator but found '",
              kDeviceName, "' (in ", schema.name(), "): the tensors are on the CPU.");
  TORCH_CHECK(!other_device_ || !has_tensor_, "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(c10::kPrivateUse1, device_), " and ", *other_device_, "! (in ", schema.name(), ")");
  if (device_ < 0) device_ = current_device();
}

Call::Indices Call::operands_of(std::size_t index) const {
  const auto* word = words_.begin();
  for (; index > 0; --index) word += 1 + following(*word);
  switch (kind_of(*word)) {
    case kTensor:
      return {operand_of(*word)};
    case kTensors:
    case kOptionalTensors:
      return Indices(word + 1, word + 1 + following(*word));
    case kValue:
    case kGenerator:
      break;
  }
  return {};
}

void Call::append(const at::Tensor& output) { words_.push_back(head(kTensor, 0, operands_.add(output))); }

Tensors Call::freeze() {
  if (has_generator_) philox_ = sim::take(generator_, device_);
  generator_.reset();
  operands_.snapshot_host_tensors();
  operands_.forget_tensors();
  return std::move(copies_);
}

torch::jit::Stack Call::stack(const Tensors& tensors, c10::DeviceType device) const {
  const auto pick = [&](std::int64_t operand) { return operand < 0 ? at::Tensor() : tensors[operand]; };
  torch::jit::Stack stack;
  stack.reserve(words_.size());
  const auto* value = values_.begin();
  for (const auto* word = words_.begin(); word != words_.end(); word += 1 + following(*word)) {
    const auto members = c10::ArrayRef<std::int64_t>(word + 1, following(*word));
    switch (kind_of(*word)) {
      case kTensor:
        stack.emplace_back(pick(operand_of(*word)));
        break;
      case kTensors: {
        c10::List<at::Tensor> list;
        list.reserve(members.size());
        for (const auto operand : members) list.push_back(pick(operand));
        stack.emplace_back(std::move(list));
        break;
      }
      case kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto operand : members) list.push_back(operand < 0 ? std::nullopt : std::optional<at::Tensor>(tensors[operand]));
        stack.emplace_back(std::move(list));
        break;
      }
      case kGenerator:
        // Asked only for its shapes, a CPU kernel has no numbers to draw yet, and must not take the host's.
        stack.emplace_back(device == c10::kCPU ? c10::IValue(cpu_generator(philox_.value_or(Philox{}))) : c10::IValue());
        break;
      case kValue:
        stack.push_back(value->isDevice() && value->toDevice().is_privateuseone() ? c10::IValue(c10::Device(device)) : *value);
        ++value;
    }
  }
  return stack;
}

void Call::describe(Words& key) const {
  key.append(words_.begin(), words_.end());
  operands_.describe(key);
}

void Call::describe_kind(Words& key) const {
  key.append(words_.begin(), words_.end());
  operands_.describe_kind(key);
}

}  // namespace anyaccel::sim
