#pragma once
#include <memory>
#include <string>
#include <utility>

#include "driver/stream.h"
#include "torch/interpreter.h"
#include "torch/python_stack.h"

namespace anyaccel::sim {

/// Where a task came from: its operator, its stream and its Python stack, symbolised only when somebody asks.
class CallSite {
 public:
  /// `op` must live for ever, as the names of operators do.
  static CallSite here(const char* op, const driver::Stream& stream);

  /// To be called in a catch block: throws the current exception on, with this call site attached.
  [[noreturn]] void rethrow() const;

  /// A paragraph for an error message.
  std::string describe() const;

 private:
  CallSite(const char* op, const driver::Stream& stream, PythonStack stack, std::shared_ptr<const std::string> forward)
      : op_(op), stream_(&stream), stack_(std::move(stack)), forward_(std::move(forward)) {}

  const char* op_;
  const driver::Stream* stream_;
  PythonStack stack_;
  std::shared_ptr<const std::string> forward_;  ///< the forward call, where anomaly detection knows it
};

/// To be called in a catch block: throws the current exception on as the one that torch turns into the right Python exception:
/// ValueError, torch.OutOfMemoryError, RuntimeError, and torch.AcceleratorError for what left a task.
[[noreturn]] void translate();

/// Calls the driver, without the GIL (it may block while a queue is full), and translates what it throws.
template <class Call>
decltype(auto) driver_call(Call&& call) {
  try {
    WithoutGil no_gil;
    return std::forward<Call>(call)();
  } catch (...) {
    translate();
  }
}

}  // namespace anyaccel::sim
