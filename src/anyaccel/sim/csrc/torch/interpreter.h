#pragma once
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <memory>
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

/// The Python stack of this thread, not yet symbolised; null on a thread that Python does not know.
std::shared_ptr<torch::CapturedTraceback> python_stack();

/// The lines of `stack` as Python prints them, most recent call last; empty where there are none.
std::string symbolised(torch::CapturedTraceback& stack);

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
