#include "torch/interpreter.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/profiler/combined_traceback.h>
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

}  // namespace

// CPython clears the flag behind this as the first step of its finalization, before other threads lose the GIL for good.
bool python_runs() noexcept { return Py_IsInitialized() != 0; }

WithoutGil::WithoutGil() noexcept : state_(python_runs() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() noexcept(false) {
  if (state_) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

WithGil::WithGil() : state_(PyGILState_Ensure()) {}
WithGil::~WithGil() { PyGILState_Release(static_cast<PyGILState_STATE>(state_)); }

std::string forward_call() {
  if (!torch::autograd::AnomalyMode::is_enabled() || !known_to_python()) return {};
  std::ostringstream text;
  const auto append = [&](const auto& stack) {
    // Not every torch that sim supports keeps it.
    if constexpr (requires { stack.forward_traceback(); }) {
      if (!stack.forward_traceback()) return;
      for (const auto& line : *stack.forward_traceback()) text << line;
    }
  };
  append(*torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false));
  return text.str();
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
  } catch (const pybind11::error_already_set& error) {
    WithGil gil;
    return !error.matches(PyExc_Exception);
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
