// The Python module: thin functions over plain numbers and strings. The only file that uses pybind11.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <limits>
#include <string>

#include "torch/allocator.h"
#include "torch/disagreements.h"
#include "torch/generator.h"
#include "torch/infer.h"
#include "torch/pinned.h"
#include "torch/registration.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

namespace py = pybind11;

/// The device with that index, -1 being the current one. Python's numbers are wider than torch's indices: no silent cut.
driver::Device& device(std::int64_t index) {
  using Limits = std::numeric_limits<int>;
  if (index == -1) return device_at(-1);
  return driver_call([&]() -> driver::Device& {
    return runtime().device(static_cast<int>(std::clamp<std::int64_t>(index, Limits::min(), Limits::max())));
  });
}

c10::DeviceIndex checked(std::int64_t index) { return static_cast<c10::DeviceIndex>(device(index).index()); }

driver::Stream& stream(std::int64_t index, std::int64_t id) { return device(index).stream(id); }

void start_machine(int devices, std::size_t memory_bytes, std::string schedule, int workers) {
  install({devices, memory_bytes, std::move(schedule), workers});
}

py::dict options() {
  const auto& options = runtime().options();
  py::dict result;
  result["devices"] = options.devices;
  result["memory_bytes"] = options.memory_bytes;
  result["schedule"] = options.schedule;
  result["workers"] = options.workers;
  return result;
}

void stop() {
  if (!started()) return;
  const WithoutGil no_gil;
  runtime().stop();
}

std::int64_t exchange(std::int64_t index) { return index < 0 ? -1 : exchange_device(checked(index)); }

void set_device(std::int64_t index) { exchange(index); }

void synchronize(std::int64_t index) {
  auto& chosen = device(index);
  host_wait("device.synchronize", [&] { chosen.synchronize(); });
}

void reset_errors(std::int64_t index) {
  host_wait("reset_errors", [&] {
    if (index != -1) return device(index).reset_error();
    for (int each = 0; each < runtime().device_count(); ++each) runtime().device(each).reset_error();
  });
}

bool is_initialized() {
  if (!started()) return false;
  if (runtime().scheduler().thread_count() > 0) return true;
  for (int index = 0; index < runtime().device_count(); ++index) {
    if (runtime().device(index).arena().used_bytes() > 0) return true;
  }
  return false;
}

py::object default_generator_object(std::int64_t index) {
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(checked(index))));
}

const char* state_of(const driver::BlockInfo& block) {
  if (block.allocated) return "active_allocated";
  return block.active ? "active_pending_free" : "inactive";
}

py::list blocks_of(const driver::SegmentInfo& segment) {
  py::list blocks;
  for (const auto& block : segment.blocks) {
    py::dict entry;
    entry["address"] = reinterpret_cast<std::uintptr_t>(block.address);
    entry["size"] = block.size_bytes;
    entry["requested_size"] = block.requested_bytes;
    entry["state"] = state_of(block);
    entry["frames"] = py::list();
    blocks.append(std::move(entry));
  }
  return blocks;
}

/// As torch.cuda.memory_snapshot().
py::list memory_snapshot(std::int64_t index) {
  auto& chosen = device(index);
  py::list segments;
  for (const auto& segment : chosen.allocator().snapshot()) {
    py::dict entry;
    entry["device"] = chosen.index();
    entry["address"] = reinterpret_cast<std::uintptr_t>(segment.address);
    entry["total_size"] = segment.total_bytes;
    entry["allocated_size"] = segment.allocated_bytes;
    entry["active_size"] = segment.active_bytes;
    entry["requested_size"] = segment.requested_bytes;
    entry["stream"] = segment.stream;
    entry["segment_type"] = segment.is_large ? "large" : "small";
    entry["segment_pool_id"] = py::make_tuple(0, 0);
    entry["is_expandable"] = false;
    entry["frames"] = py::list();
    entry["blocks"] = blocks_of(segment);
    segments.append(std::move(entry));
  }
  return segments;
}

/// The keys are those of torch.cuda.host_memory_stats().
py::dict host_memory_stats() {
  const auto stats = pinned_allocator()->get_stats();
  py::dict result;
  result["active_bytes.current"] = stats.active_bytes.current;
  result["active_bytes.peak"] = stats.active_bytes.peak;
  result["allocated_bytes.current"] = stats.allocated_bytes.current;
  result["allocated_bytes.peak"] = stats.allocated_bytes.peak;
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  return result;
}

/// Adds a function to the module that raises torch's exceptions and passes on its warnings.
template <class Function>
void define(py::module_& module, const char* name, Function&& function) {
  module.def(name, torch::wrap_pybind_function(std::forward<Function>(function)));
}

void define_devices(py::module_& module) {
  define(module, "device_count", [] { return runtime().device_count(); });
  define(module, "current_device", [] { return static_cast<int>(current_device()); });
  define(module, "set_device", set_device);
  define(module, "exchange_device", exchange);
  define(module, "maybe_exchange_device", exchange);
  define(module, "synchronize", synchronize);
  define(module, "reset_errors", reset_errors);
  define(module, "default_generator", default_generator_object);
}

void define_streams(py::module_& module) {
  define(module, "hold", [](std::int64_t index, std::int64_t id) { driver_call([&] { stream(index, id).hold(); }); });
  define(module, "release", [](std::int64_t index, std::int64_t id) { driver_call([&] { stream(index, id).release(); }); });
  define(module, "stream_priority",
         [](std::int64_t index, std::int64_t id) { return driver_call([&] { return stream(index, id).priority(); }); });
  define(module, "priority_range", [] { return std::pair(driver::kLeastPriority, driver::kGreatestPriority); });
}

void define_memory(py::module_& module) {
  define(module, "memory_snapshot", memory_snapshot);
  define(module, "memory_limit", [](std::int64_t index) { return device(index).allocator().limit(); });
  define(module, "set_memory_limit", [](std::int64_t index, std::size_t bytes) {
    auto& chosen = device(index);
    driver_call([&] { chosen.allocator().set_limit(bytes); });
  });
  define(module, "host_memory_stats", host_memory_stats);
  define(module, "reset_peak_host_memory_stats", [] { pinned_allocator()->reset_peak_stats(); });
  define(module, "reset_accumulated_host_memory_stats", [] { pinned_allocator()->reset_accumulated_stats(); });
  define(module, "empty_host_cache", [] { pinned_allocator()->empty_cache(); });
}

/// Operators that run otherwise than most, and what disagrees: its Meta kernel or its `out=` form.
py::dict disagreeing_operators() {
  py::dict result;
  for (const auto& [name, what] : disagreements()) result[name.c_str()] = what == Disagreement::kMeta ? "meta" : "out";
  return result;
}

void define_machine(py::module_& module) {
  define(module, "start", start_machine);
  define(module, "options", options);
  define(module, "stop", stop);
  define(module, "in_bad_fork", [] { return started() && runtime().forked(); });
  define(module, "is_initialized", is_initialized);
  define(module, "thread_count", [] { return runtime().scheduler().thread_count(); });
  define(module, "host_waits", host_waits);
  define(module, "reset_host_waits", reset_host_waits);
  define(module, "remembered_shapes", remembered_shapes);
  define(module, "disagreeing_operators", disagreeing_operators);
}

}  // namespace
}  // namespace anyaccel::sim

PYBIND11_MODULE(_anyaccel_sim, module) {
  anyaccel::sim::define_machine(module);
  anyaccel::sim::define_devices(module);
  anyaccel::sim::define_streams(module);
  anyaccel::sim::define_memory(module);
}
