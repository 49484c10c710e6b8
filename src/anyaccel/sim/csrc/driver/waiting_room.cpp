#include "driver/waiting_room.h"

#include <chrono>
#include <cstdint>

namespace anyaccel::driver {

namespace {
/// How long a Ctrl-C may go unnoticed.
constexpr std::chrono::milliseconds kInterruptEvery{30};
}  // namespace

WaitingRoom::Bench& WaitingRoom::bench(const void* about) noexcept {
  return benches_[(reinterpret_cast<std::uintptr_t>(about) >> 5) % benches_.size()];
}

void WaitingRoom::wait(const void* about, const std::function<bool()>& over, const std::function<void()>& interrupt) {
  const auto next_interrupt = [] { return std::chrono::steady_clock::now() + kInterruptEvery; };
  Bench& here = bench(about);
  std::unique_lock lock(here.mutex);
  for (auto next = next_interrupt(); !over();) {
    if (here.changed.wait_until(lock, next) == std::cv_status::no_timeout) continue;
    lock.unlock();
    interrupt();
    next = next_interrupt();
    lock.lock();
  }
}

void WaitingRoom::wake(const void* about) noexcept { bench(about).wake(); }

void WaitingRoom::wake_all() noexcept {
  for (auto& bench : benches_) bench.wake();
}

void WaitingRoom::Bench::wake() noexcept {
  // Whoever saw the old state under the mutex is asleep by the time that it is ours.
  {
    const std::lock_guard lock(mutex);
  }
  changed.notify_all();
}

}  // namespace anyaccel::driver
