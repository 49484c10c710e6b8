#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

#include "driver/runtime.h"
#include "torch/call_site.h"
#include "torch/worker.h"

namespace anyaccel::sim {

using driver::kDeviceName;
constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

/// The one simulated machine of this process. It is leaked on purpose: torch's statics outlive ours.
/// start() makes it (once), runtime() throws before that.
void start(driver::Options options);
bool started() noexcept;
driver::Runtime& runtime();

/// The device with that index, -1 being the current one. ValueError, naming those there are, for any other.
driver::Device& device_at(c10::DeviceIndex index);

/// The current device and stream are per thread, as everywhere in torch.
c10::DeviceIndex current_device() noexcept;
c10::DeviceIndex exchange_device(c10::DeviceIndex index);
driver::Stream& current_stream(c10::DeviceIndex device);
driver::Stream& exchange_stream(driver::Stream& stream);

/// Sets the current device without looking whether it exists: for destructors, which restore one that did.
void unchecked_set_device(c10::DeviceIndex index) noexcept;

/// ValueError for a stream of another device type, or one that was never handed out.
driver::Stream& unwrap(const c10::Stream& stream);
c10::Stream wrap(driver::Stream& stream) noexcept;

/// Runs `wait`, a call that blocks the host, without the GIL; counts it under `op`; turns what it throws into torch's exceptions
/// (a task's error becomes torch.AcceleratorError with the Python stack of the call that caused it), and passes on what workers
/// have warned of.
void host_wait(const char* op, const std::function<void()>& wait);

/// How often the host has waited, by op.
std::unordered_map<std::string, std::int64_t> host_waits();
void reset_host_waits();

/// Appends `work` to `stream` under `op`, so that what it throws carries the stack of this call. Every task goes through here.
template <class Work>
void enqueue(driver::Stream& stream, const char* op, Work work) {
  auto task = [work = std::move(work), site = CallSite::here(op, stream)]() mutable {
    try {
      OneThread one_thread;
      work();
    } catch (...) {
      site.rethrow();
    }
  };
  driver_call([&] { stream.enqueue(op, std::move(task)); });
}

}  // namespace anyaccel::sim
