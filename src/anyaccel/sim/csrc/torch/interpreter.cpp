#include "torch/interpreter.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>

#ifdef __APPLE__
#include <pthread.h>
#else
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <sstream>
#include <utility>

namespace anyaccel::sim {
namespace {

bool on_main_thread() noexcept {
#ifdef __APPLE__
  return pthread_main_np() != 0;
#else
  return syscall(SYS_gettid) == getpid();
#endif
}

bool known_to_python() noexcept { return python_runs() && PyGILState_GetThisThreadState(); }

/// Under anomaly detection a task of backward also knows the forward call; not every torch that sim supports keeps it.
template <class Stack>
void append_forward_call(std::ostream& lines, const Stack& stack) {
  if constexpr (requires { stack.forward_traceback(); }) {
    if (!stack.forward_traceback()) return;
    lines << "The forward call that the gradient is of:\n";
    for (const auto& line : *stack.forward_traceback()) lines << line;
  }
}

class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace

// CPython clears the flag behind this as the first step of its finalization, before other threads lose the GIL for good.
bool python_runs() noexcept { return Py_IsInitialized() != 0; }

WithoutGil::WithoutGil() noexcept : state_(python_runs() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() noexcept(false) {
  if (state_) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

std::shared_ptr<torch::CapturedTraceback> python_stack() {
  // torch's bindings release the GIL before they dispatch; gather() takes it again, and must not do so on threads of others.
  if (!known_to_python()) return nullptr;
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}

std::string symbolised(torch::CapturedTraceback& stack) {
  if (!python_runs()) return {};
  WithGil gil;
  const auto symbols = torch::symbolize({&stack});
  std::ostringstream lines;
  const auto& frames = symbols.tracebacks.at(0);
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const auto& at = symbols.all_frames.at(*frame);
    lines << "  File \"" << at.filename << "\", line " << at.lineno << ", in " << at.funcname << '\n';
  }
  append_forward_call(lines, stack);
  return lines.str();
}

std::optional<std::string> take_python_exception() {
  if (!known_to_python()) return std::nullopt;
  WithGil gil;
  if (!PyErr_Occurred()) return std::nullopt;
  python_error raised;
  raised.persist();
  return std::string(reinterpret_cast<PyTypeObject*>(raised.type)->tp_name) + ": " + raised.what();
}

void issue(const std::vector<c10::Warning>& warnings, bool failing) {
  if (warnings.empty()) return;
  if (!known_to_python()) {
    for (const auto& warning : warnings) c10::warn(warning);
    return;
  }
  // Not all of torch's bindings that wait collect warnings: those of torch.accelerator would print them to the terminal.
  torch::PyWarningHandler handler;
  for (const auto& warning : warnings) c10::warn(warning);
  if (failing) handler.set_in_exception();
}

bool caught_interrupt() {
  try {
    throw;
  } catch (const python_error& error) {
    WithGil gil;
    return PyErr_GivenExceptionMatches(error.type, PyExc_Exception) == 0;
  } catch (...) {
    return false;
  }
}

void check_signals() {
  if (!on_main_thread() || !python_runs()) return;
  WithGil gil;
  if (PyErr_CheckSignals() == 0) return;
  python_error raised;
  raised.persist();
  throw std::move(raised);
}

}  // namespace anyaccel::sim
