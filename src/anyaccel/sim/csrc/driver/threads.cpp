// The schedule "threads": runnable streams share a bounded pool of workers.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "driver/pause.h"
#include "driver/runtime.h"

namespace anyaccel::driver {

namespace {

using Clock = std::chrono::steady_clock;

/// Waking a sleeper costs the host a system call, so a worker without work looks around for a while first.
constexpr std::chrono::microseconds kWorkerSpin{50};
constexpr std::chrono::microseconds kHostSpin{10};

/// How many entries a stream runs in a row while others of its priority wait for a worker.
constexpr int kTurn = 16;

/// Spins until `over()`, for at most `duration`; says whether it came to be.
template <class Over>
bool spin(Clock::duration duration, Over over) {
  const auto end = Clock::now() + duration;
  do {
    for (int i = 0; i < 32; ++i) {
      if (over()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return over();
}

/// Signals of the process go to the host's threads, except those that an instruction of the thread itself causes.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, own);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

void name_this_thread(const std::string& name) {
#ifdef __APPLE__
  pthread_setname_np(name.c_str());
#else
  pthread_setname_np(pthread_self(), name.c_str());
#endif
}

class Threads final : public Scheduler {
 public:
  explicit Threads(Runtime& runtime) : runtime_(runtime), most_(most_workers(runtime.options())) {}

  ~Threads() override { stop(); }

  void runnable(Stream& stream) override {
    std::unique_lock lock(mutex_);
    if (stopping_.load(std::memory_order_relaxed)) return;
    put(stream, /*first=*/false);
    call_worker(lock);
  }

  void wait(Signal& signal, const std::function<void()>& interrupt) override {
    if (host_may_spin()) {
      const bool done = spin(kHostSpin, [&signal] { return signal.done(); });
      spins_in_vain_.store(done ? 0 : spins_in_vain_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      if (done) return;
    }
    runtime_.sleep_until_done(signal, interrupt);
  }

  void wait_for_room(Stream& stream, const std::function<void()>& interrupt) override { runtime_.sleep_until_room(stream, interrupt); }

  void stop() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      stopping_.store(true, std::memory_order_relaxed);
    }
    called_.notify_all();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  int thread_count() const noexcept override { return started_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kPriorities = kLeastPriority - kGreatestPriority + 1;
  static constexpr int kNoPriority = kLeastPriority + 1;

  static int most_workers(const Options& options) {
    if (options.workers > 0) return options.workers;
    return std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  }

  /// A host that spins for long work, or on the very core that the worker needs, only makes it later: after a few times in vain
  /// it tries again now and then.
  bool host_may_spin() noexcept {
    return spins_in_vain_.load(std::memory_order_relaxed) < 4 || waits_without_spin_.fetch_add(1, std::memory_order_relaxed) % 16 == 15;
  }

  std::deque<Stream*>& ready(int priority) noexcept { return ready_[static_cast<std::size_t>(priority - kGreatestPriority)]; }

  void put(Stream& stream, bool first) {
    auto& queue = ready(stream.priority());
    first ? queue.push_front(&stream) : queue.push_back(&stream);
    if (stream.priority() < best_.load(std::memory_order_relaxed)) best_.store(stream.priority(), std::memory_order_relaxed);
    waiting_.fetch_add(1);
  }

  Stream* take() {
    const int best = best_.load(std::memory_order_relaxed);
    if (best == kNoPriority) return nullptr;
    Stream* stream = ready(best).front();
    ready(best).pop_front();
    int next = best;
    while (next != kNoPriority && ready(next).empty()) ++next;
    best_.store(next, std::memory_order_relaxed);
    waiting_.fetch_sub(1);
    return stream;
  }

  /// True if more streams wait than workers are on their way to them.
  bool short_of_workers() const noexcept { return waiting_.load() > coming_.load(); }

  /// Wakes or starts a worker if one is wanted and there is one to be had; unlocks.
  void call_worker(std::unique_lock<std::mutex>& lock) {
    if (!short_of_workers() || stopping_.load(std::memory_order_relaxed)) return lock.unlock();
    if (sleeping_ > calls_) {
      coming_.fetch_add(1);
      ++calls_;
      lock.unlock();
      called_.notify_one();
    } else {
      if (static_cast<int>(threads_.size()) < most_) start_worker();
      lock.unlock();
    }
  }

  void start_worker() {
    const BlockedSignals blocked;
    try {
      threads_.emplace_back([this, number = threads_.size()] { work(number); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
      return;  // The system grants no more: those that there are do it all.
    }
    coming_.fetch_add(1);
    started_.fetch_add(1, std::memory_order_relaxed);
  }

  void work(std::size_t number) {
    name_this_thread("sim-worker-" + std::to_string(number));
    if (runtime_.on_worker_start) runtime_.on_worker_start();
    std::unique_lock lock(mutex_);
    // Here a worker counts as coming; it does not while it runs a stream or sleeps.
    while (!stopping_.load(std::memory_order_relaxed)) {
      if (Stream* stream = take()) {
        coming_.fetch_sub(1);
        lock.unlock();
        const Left left = run(*stream);
        lock.lock();
        coming_.fetch_add(1);
        if (left != Left::kGivenBack) put(*stream, left == Left::kForUrgent);
        continue;
      }
      lock.unlock();
      const bool found = look_around([this] { return waiting_.load(std::memory_order_relaxed) > 0; });
      lock.lock();
      if (found || waiting_.load() > 0) continue;
      coming_.fetch_sub(1);
      ++sleeping_;
      called_.wait(lock, [this] { return calls_ > 0 || stopping_.load(std::memory_order_relaxed); });
      --sleeping_;
      if (calls_ > 0) --calls_;
    }
  }

  /// Spins for a while, unless another worker does; says whether it came to be.
  template <class Over>
  bool look_around(Over over) {
    if (looking_.exchange(true)) return false;
    const bool found = spin(kWorkerSpin, [&] { return over() || stopping_.load(std::memory_order_relaxed); });
    looking_.store(false);
    return found;
  }

  enum class Left { kGivenBack, kForUrgent, kForNext };

  /// Runs a stream until it has nothing more to run, or others should go first.
  Left run(Stream& stream) {
    for (int entries = 1;; ++entries) {
      if (!stream.pending() && !linger(stream)) return Left::kGivenBack;
      if (!stream.advance() || stopping_.load(std::memory_order_relaxed)) return Left::kGivenBack;
      if (best_.load(std::memory_order_relaxed) < stream.priority()) return Left::kForUrgent;
      if (entries % kTurn == 0 && short_of_workers()) return Left::kForNext;
    }
  }

  /// Stays with an empty stream for a while: the next task is then appended without a word to the scheduler.
  /// False if none came: the stream is given back.
  bool linger(Stream& stream) {
    coming_.fetch_add(1);
    look_around([&] { return stream.pending() || waiting_.load(std::memory_order_relaxed) > 0; });
    coming_.fetch_sub(1);
    if (!stream.pending() && stream.rest()) return false;
    // A stream may have become runnable for which nobody was called, since this worker was said to come.
    if (short_of_workers()) {
      std::unique_lock lock(mutex_);
      call_worker(lock);
    }
    return true;
  }

  Runtime& runtime_;
  const int most_;

  std::mutex mutex_;
  std::condition_variable called_;
  std::array<std::deque<Stream*>, kPriorities> ready_;
  std::vector<std::thread> threads_;
  int sleeping_ = 0;
  int calls_ = 0;  ///< made to sleepers that have not woken yet

  // Written under the mutex (coming_ also without), read without it.
  std::atomic<int> best_{kNoPriority};  ///< the most urgent priority that waits
  std::atomic<int> waiting_{0};         ///< streams in ready_
  std::atomic<int> coming_{0};          ///< workers that will look into ready_ before they run or sleep
  std::atomic<bool> stopping_{false};
  std::atomic<bool> looking_{false};  ///< a worker spins
  std::atomic<int> started_{0};
  std::atomic<unsigned> spins_in_vain_{0};
  std::atomic<unsigned> waits_without_spin_{0};
};

}  // namespace

std::unique_ptr<Scheduler> make_threads(Runtime& runtime) { return std::make_unique<Threads>(runtime); }

}  // namespace anyaccel::driver
