#pragma once
#include <c10/core/DeviceType.h>
#include <c10/core/impl/GPUTrace.h>

#include <cstdint>

namespace anyaccel::sim {

/// What listeners know an object by.
inline std::uintptr_t handle(const void* of) noexcept { return reinterpret_cast<std::uintptr_t>(of); }

/// Tells whoever listens through torch.<device>._gpu_trace that execution came to `point`.
template <class... Parameters, class... Arguments>
void trace(void (c10::impl::PyInterpreterVTable::*point)(c10::DeviceType, Parameters...) const, Arguments... arguments) {
  if (const auto* listener = c10::impl::GPUTrace::get_trace()) ((**listener).*point)(c10::DeviceType::PrivateUse1, arguments...);
}

using TracePoints = c10::impl::PyInterpreterVTable;

}  // namespace anyaccel::sim
