#pragma once
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "check.h"
#include "driver/runtime.h"

using namespace anyaccel::driver;  // NOLINT: every file here is about it

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

constexpr std::size_t kKibi = 1024, kMebi = 1024 * kKibi, kGibi = 1024 * kMebi;

inline const std::string kSchedules[] = {"threads", "serial"};

/// The seed of a random test: ANYACCEL_TEST_SEED, or a new one. Printed, so that a failure can be repeated.
inline unsigned test_seed() {
  const char* const given = std::getenv("ANYACCEL_TEST_SEED");
  const unsigned seed = given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  std::printf("  ANYACCEL_TEST_SEED=%u\n", seed);
  return seed;
}

/// A stream that runs nothing until the end of the scope.
class Held {
 public:
  explicit Held(Stream& stream) : stream_(&stream) { stream.hold(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { release(); }
  void release() {
    if (stream_) std::exchange(stream_, nullptr)->release();
  }

 private:
  Stream* stream_;
};

/// Gives the workers every chance to run what is runnable: the ready queue is first come, first served, so what became
/// runnable before this call has been taken by a worker when it returns, and what can run at once has run.
inline void let_others_run(Device& device) {
  Stream& probe = device.new_stream(kLeastPriority);
  for (int i = 0; i < 50; ++i) {
    probe.enqueue("probe", [] {});
    probe.synchronize();
  }
}
