#include "torch/guard.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdint>

#include "torch/allocator.h"
#include "torch/capability.h"
#include "torch/gpu_trace.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

/// What a c10::Event owns from its first record on.
driver::Event& recorded(void* event) { return *static_cast<driver::Event*>(event); }

bool timed(c10::EventFlag flag) {
  TORCH_CHECK_VALUE(flag == c10::EventFlag::PYTORCH_DEFAULT || flag == c10::EventFlag::BACKEND_DEFAULT, "Unknown event flag.");
  return flag == c10::EventFlag::BACKEND_DEFAULT;
}

struct SimGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDeviceType; }

  // Devices

  c10::Device exchangeDevice(c10::Device device) const override { return {kDeviceType, exchange_device(device.index())}; }
  c10::Device getDevice() const override { return {kDeviceType, current_device()}; }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { unchecked_set_device(device.index()); }

  c10::DeviceIndex deviceCount() const noexcept override {
    return started() ? static_cast<c10::DeviceIndex>(runtime().device_count()) : c10::DeviceIndex{0};
  }

  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    device_at(device.index());  // raises if there is none
    return capability();
  }

  void synchronizeDevice(const c10::DeviceIndex index) const override {
    auto& device = device_at(index);
    trace(&TracePoints::trace_gpu_device_synchronization);
    host_wait("device.synchronize", [&] { device.synchronize(); });
  }

  // Streams

  c10::Stream getStream(c10::Device device) const override { return wrap(current_stream(device.index())); }
  c10::Stream getDefaultStream(c10::Device device) const override { return wrap(device_at(device.index()).default_stream()); }

  // Every stream has its own identity: a pool that hands one out twice would hide missing waits.
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? driver::kGreatestPriority : driver::kLeastPriority);
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    auto& stream = driver_call([&]() -> driver::Stream& { return device_at(device.index()).new_stream(priority); });
    trace(&TracePoints::trace_gpu_stream_creation, handle(&stream));
    return wrap(stream);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override { return wrap(exchange_stream(unwrap(stream))); }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return &unwrap(stream); }

  bool queryStream(const c10::Stream& stream) const override {
    return driver_call([&] { return unwrap(stream).query(); });
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    auto& own = unwrap(stream);
    trace(&TracePoints::trace_gpu_stream_synchronization, handle(&own));
    host_wait("stream.synchronize", [&] { own.synchronize(); });
  }

  bool isStreamCapturing(const c10::Stream&) const override { return false; }

  // Events

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index, const c10::EventFlag flag) const override {
    auto& own = unwrap(stream);
    TORCH_CHECK(index == -1 || index == stream.device_index(), "The event belongs to ", kDeviceName, ':', static_cast<int>(index),
                ", so it cannot be recorded on a stream of ", stream.device(), ". Use another event, or wait for this one there.");
    if (!*event) {
      *event = new driver::Event(timed(flag));
      trace(&TracePoints::trace_gpu_event_creation, handle(*event));
    }
    trace(&TracePoints::trace_gpu_event_record, handle(*event), handle(&own));
    driver_call([&] { own.record(recorded(*event)); });
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    auto& own = unwrap(stream);
    trace(&TracePoints::trace_gpu_event_wait, handle(event), handle(&own));
    driver_call([&] { own.wait(recorded(event)); });
  }

  bool queryEvent(void* event) const override {
    return !event || driver_call([&] { return recorded(event).query(); });
  }

  void synchronizeEvent(void* event) const override {
    if (!event) return;
    trace(&TracePoints::trace_gpu_event_synchronization, handle(event));
    host_wait("event.synchronize", [&] {
      if (const auto signal = recorded(event).current()) runtime().wait(*signal);
    });
  }

  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    constexpr double kNanosecondsPerMillisecond = 1e6;
    const auto begin = from ? recorded(from).current() : nullptr;
    const auto end = to ? recorded(to).current() : nullptr;
    TORCH_CHECK_VALUE(begin && end, "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK_VALUE(recorded(from).timing() && recorded(to).timing(), "Both events must be created with argument 'enable_timing=True'.");
    TORCH_CHECK(begin->done() && end->done(), "Both events must be completed before calculating elapsed time.");
    return static_cast<double>(std::max<std::int64_t>(0, end->time_ns() - begin->time_ns())) / kNanosecondsPerMillisecond;
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (!event) return;
    trace(&TracePoints::trace_gpu_event_deletion, handle(event));
    delete &recorded(event);
  }

  // Memory

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator()->recordStream(data, stream);
  }
};

}  // namespace

const c10::impl::DeviceGuardImplInterface* guard() {
  static const auto* guard = new SimGuard;
  return guard;
}

}  // namespace anyaccel::sim
