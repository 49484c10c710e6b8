// The schedule "serial": each entry runs at its call, on the thread that calls.
#include <condition_variable>
#include <mutex>
#include <vector>

#include "driver/runtime.h"

namespace anyaccel::driver {

namespace {

class Serial final : public Scheduler {
 public:
  explicit Serial(Runtime& runtime) : runtime_(runtime) {}

  void runnable(Stream& stream) override {
    for (Turn* turn = current_; turn; turn = turn->outer) {
      if (turn->scheduler == this) {
        // A task has enqueued, or a signal let another stream go on: the loop below is already running on this thread.
        turn->streams.push_back(&stream);
        return;
      }
    }
    if (!begin()) return;
    Turn turn{this, current_, {}};
    current_ = &turn;
    Stream* next = &stream;
    for (std::size_t others = 0;; next = turn.streams[others++]) {
      while (!runtime_.stopped() && next->advance()) {
      }
      if (others == turn.streams.size()) break;
    }
    current_ = turn.outer;
    end();
  }

  void wait(Signal& signal, const std::function<void()>& interrupt) override {
    // Whatever could run has run or is running on another thread; the rest needs a release() from elsewhere.
    runtime_.sleep_until_done(signal, interrupt);
  }

  void wait_for_room(Stream& stream, const std::function<void()>& interrupt) override { runtime_.sleep_until_room(stream, interrupt); }

  void stop() noexcept override {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    ended_.wait(lock, [this] { return turns_ == 0; });
  }

  int thread_count() const noexcept override { return 0; }

 private:
  /// What one host thread runs before its call returns.
  struct Turn {
    const Serial* scheduler;
    Turn* outer;
    std::vector<Stream*> streams;
  };

  bool begin() {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    ++turns_;
    return true;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    if (--turns_ == 0 && stopping_) ended_.notify_all();
  }

  static thread_local Turn* current_;

  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int turns_ = 0;
  bool stopping_ = false;
};

thread_local Serial::Turn* Serial::current_ = nullptr;

}  // namespace

std::unique_ptr<Scheduler> make_serial(Runtime& runtime) { return std::make_unique<Serial>(runtime); }

}  // namespace anyaccel::driver
