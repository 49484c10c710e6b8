#pragma once
#include "driver/runtime.h"

namespace anyaccel::sim {

/// Makes the simulated machine and gives torch its guard, allocators and hooks: all of it, or an exception and nothing.
/// RuntimeError if another library has taken torch's one free place for a device.
void install(driver::Options options);

}  // namespace anyaccel::sim
