#pragma once
#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

namespace anyaccel::sim {

/// Whether Python may be entered at all. False before it starts and from the moment it goes down.
bool python_runs() noexcept;

/// Releases the GIL where this thread holds it, and takes it again at the end of the scope.
///
/// The end may throw: CPython ends threads that ask for the GIL while it goes down by unwinding them.
class WithoutGil {
 public:
  WithoutGil() noexcept;
  ~WithoutGil() noexcept(false);
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* state_;
};

/// Takes the GIL, whether or not this thread holds it.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  int state_;
};

/// Under anomaly detection, on a thread that runs backward: the forward call that the gradient is of, as Python prints it.
std::string forward_call();

/// Takes the Python exception that is set on this thread, if one is, and says which.
std::optional<std::string> take_python_exception();

/// Issues `warnings` as Python does, where this thread knows Python; those that a filter turns into errors are thrown, unless
/// another exception is on its way (`failing`).
void issue(const std::vector<c10::Warning>& warnings, bool failing);

/// On the main thread: runs Python's signal handlers, and throws python_error if one raised (KeyboardInterrupt). Elsewhere nothing.
void check_signals();

/// In a catch block: true for an exception that no Python program takes for an ordinary one, such as KeyboardInterrupt.
bool caught_interrupt();

}  // namespace anyaccel::sim
