#pragma once
#include <string>
#include <utility>

namespace anyaccel::sim {

/// The Python stack of a call: which code called from which instruction. Lines and names are looked up only when somebody asks.
///
/// It is taken at every operator, so calls share what they have in common: a stack is the innermost of a chain of frames, and
/// consecutive calls differ in the first one or two.
class PythonStack {
 public:
  /// The stack of this thread; empty on a thread that Python does not know.
  static PythonStack here();

  PythonStack() noexcept = default;
  PythonStack(PythonStack&& other) noexcept : innermost_(std::exchange(other.innermost_, nullptr)) {}
  PythonStack(const PythonStack& other) noexcept;
  PythonStack& operator=(PythonStack other) noexcept;
  ~PythonStack();

  /// As Python prints them, most recent call last; empty where there are none, or where Python has gone down.
  std::string lines() const;

  struct Frame;

 private:
  explicit PythonStack(Frame* innermost) noexcept : innermost_(innermost) {}

  Frame* innermost_ = nullptr;
};

}  // namespace anyaccel::sim
