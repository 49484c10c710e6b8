#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>

namespace anyaccel::driver {

/// A call that cannot be honoured: a bad index, a foreign handle, a bad option.
struct InvalidArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The device's memory is exhausted, also after the cache was given back.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The queue of a stream that `hold` keeps closed is full: waiting would never end.
struct QueueFull : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The runtime was stopped, or belongs to the parent of this process.
struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace anyaccel::driver
