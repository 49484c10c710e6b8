#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>

#include "driver/stream.h"

namespace anyaccel::sim {

/// torch's allocator for all devices: each allocation is on the current device, for the current stream. It lives for ever.
c10::DeviceAllocator* allocator();

/// Memory for work on `stream`; null, but with the device, for 0 bytes.
c10::DataPtr allocate(std::size_t bytes, driver::Stream& stream);

/// The index of the device that `address` belongs to. ValueError if it belongs to none.
c10::DeviceIndex device_of(const void* address);

}  // namespace anyaccel::sim
