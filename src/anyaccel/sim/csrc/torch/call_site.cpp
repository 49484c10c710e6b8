#include "torch/call_site.h"

#include <c10/util/Exception.h>

#include <exception>
#include <sstream>

#include "driver/device.h"
#include "driver/errors.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

/// What left a task: the device keeps it, and every wait raises it.
class KernelError : public std::exception {
 public:
  KernelError(std::string message, CallSite site) : message_(std::move(message)), site_(std::move(site)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const CallSite& site() const noexcept { return site_; }

 private:
  std::string message_;
  CallSite site_;
};

/// As torch.AcceleratorError.error_code. Vendors put their own numbers there; the sim knows one kind of failure.
constexpr std::int32_t kKernelFailed = 1;

std::string current_message() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    // Where Python code failed, the C++ exception may only say that it did, and the rest is still set on this thread.
    return take_python_exception().value_or(error.what());
  } catch (...) {
    return "something that is no std::exception was thrown";
  }
}

}  // namespace

CallSite CallSite::here(const char* op, const driver::Stream& stream) {
  auto forward = forward_call();
  return {op, stream, PythonStack::here(), forward.empty() ? nullptr : std::make_shared<const std::string>(std::move(forward))};
}

void CallSite::rethrow() const { throw KernelError(current_message(), *this); }

std::string CallSite::describe() const {
  std::ostringstream text;
  text << "Raised by " << op_ << " on " << kDeviceName << ':' << stream_->device().index() << ", stream " << stream_->id() << ". ";
  const auto lines = stack_.lines();
  if (lines.empty()) {
    text << "The call came from a thread without Python code, such as those that run backward"
         << (forward_ ? ".\n" : "; under torch.autograd.detect_anomaly(check_nan=False) the forward call is named here.\n");
  } else {
    text << "The call was enqueued earlier, from (most recent call last):\n" << lines;
  }
  if (forward_) text << "The forward call that the gradient is of:\n" << *forward_;
  text << "What was enqueued on the device since then is skipped, and every wait raises this error, until anyaccel.sim.reset_errors().";
  return text.str();
}

void translate() {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  try {
    throw;
  } catch (const KernelError& error) {
    throw c10::AcceleratorError(here, kKernelFailed, std::string(error.what()) + '\n' + error.site().describe());
  } catch (const driver::InvalidArgument& error) {
    throw c10::ValueError(here, error.what());
  } catch (const driver::OutOfMemory& error) {
    throw c10::OutOfMemoryError(here, error.what());
  } catch (const driver::QueueFull& error) {
    throw c10::Error(here, error.what());
  } catch (const driver::Stopped& error) {
    throw c10::Error(here, error.what());
  }
}

}  // namespace anyaccel::sim
