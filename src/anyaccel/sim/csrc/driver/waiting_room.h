#pragma once
#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace anyaccel::driver {

/// Where host threads sleep, whatever they wait for. Shared condition variables keep signals and streams small.
class WaitingRoom {
 public:
  /// Sleeps until `over()`; calls `interrupt`, which may throw, from time to time and with no lock held.
  /// Whoever makes `over()` true calls wake(about) afterwards.
  void wait(const void* about, const std::function<bool()>& over, const std::function<void()>& interrupt);

  void wake(const void* about) noexcept;
  void wake_all() noexcept;

 private:
  struct alignas(64) Bench {
    std::mutex mutex;
    std::condition_variable changed;
    void wake() noexcept;
  };

  Bench& bench(const void* about) noexcept;

  std::array<Bench, 16> benches_;
};

}  // namespace anyaccel::driver
