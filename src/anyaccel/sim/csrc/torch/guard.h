#pragma once
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace anyaccel::sim {

/// torch's way to devices, streams and events. There is one, and it lives for ever.
const c10::impl::DeviceGuardImplInterface* guard();

}  // namespace anyaccel::sim
