#pragma once
#include <thread>

namespace anyaccel::driver {

/// Tells the core that this thread spins, so that the other one on it gets on.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#else
  std::this_thread::yield();
#endif
}

}  // namespace anyaccel::driver
