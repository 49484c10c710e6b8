// The yardstick for events: two threads hand a turn to each other by a condition variable.
#include <condition_variable>
#include <mutex>
#include <thread>

extern "C" void hand_over(int times) {
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0;
  auto play = [&](int parity) {
    for (std::unique_lock lock(mutex); turn < times;) {
      changed.wait(lock, [&] { return turn % 2 == parity || turn >= times; });
      if (turn < times) ++turn;
      changed.notify_one();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
}
