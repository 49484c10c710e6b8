#pragma once
#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace anyaccel::sim {

/// The numbers that one random op draws from: taken from a generator at the call, which moves on.
struct Philox {
  std::uint64_t seed;
  std::uint64_t offset;
};

/// Takes the next seed and offset from `generator`, or from the default generator of `device`.
/// Raises if the generator is of another device.
Philox take(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

/// A private CPU generator that yields the numbers of `philox`: what a task runs with.
at::Generator cpu_generator(Philox philox);

/// -1 is the current device.
const at::Generator& default_generator(c10::DeviceIndex device);

/// A generator of its own, seeded as every new one is.
at::Generator new_generator(c10::DeviceIndex device);

}  // namespace anyaccel::sim
