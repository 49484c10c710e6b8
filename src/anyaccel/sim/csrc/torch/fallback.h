#pragma once
#include <cstdint>

namespace anyaccel::sim {

/// How many shapes of results are remembered.
std::int64_t remembered_shapes();

}  // namespace anyaccel::sim
