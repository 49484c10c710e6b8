#pragma once
#include <atomic>
#include <cstdint>

namespace anyaccel::driver {

namespace detail {
inline std::atomic<std::uint32_t> fork_generation{1};
}

/// A number that differs between a process and its forked children. A child finds out with one load, and without a lock that a
/// thread of the parent might have kept.
inline std::uint32_t fork_generation() noexcept { return detail::fork_generation.load(std::memory_order_relaxed); }

/// Makes fork_generation() work; to be called before anything relies on it.
void watch_forks();

}  // namespace anyaccel::driver
