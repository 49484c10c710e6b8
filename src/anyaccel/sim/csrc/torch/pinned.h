#pragma once
#include <ATen/core/CachingHostAllocator.h>

namespace anyaccel::sim {

/// Host memory that copies may use while the host goes on. There is one allocator for all devices, and it lives for ever.
at::HostAllocator* pinned_allocator();

}  // namespace anyaccel::sim
