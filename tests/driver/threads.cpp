// The schedule "threads".
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "common.h"

namespace {

/// A runtime whose only worker is busy until `gate` opens.
struct OneWorker {
  OneWorker() {
    Gate begun;
    runtime.device(0).new_stream(kLeastPriority).enqueue("busy", [&] {
      begun.open();
      gate.pass();
    });
    begun.pass();
  }
  Runtime runtime{{.workers = 1}};
  Gate gate;
  std::vector<int> order;
  void add(Stream& stream, int number) {
    stream.enqueue("task", [this, number] { order.push_back(number); });
  }
};

}  // namespace

TEST(an_unknown_schedule_is_refused_with_those_there_are) {
  CHECK_THROWS(InvalidArgument, "\"threads\", \"serial\"", Runtime({.schedule = "fastest"}));
}

TEST(workers_start_when_they_are_needed_and_are_bounded) {
  Runtime runtime({.workers = 3});
  Device& device = runtime.device(0);
  CHECK_EQ(runtime.scheduler().thread_count(), 0);
  device.new_stream(0).enqueue("task", [] {});
  device.synchronize();
  CHECK_EQ(runtime.scheduler().thread_count(), 1);
  for (int i = 0; i < 200; ++i) device.new_stream(0).enqueue("task", [] { std::this_thread::yield(); });
  device.synchronize();
  CHECK(runtime.scheduler().thread_count() <= 3);
}

TEST(streams_run_in_parallel) {
  Runtime runtime({.workers = 3});
  Device& device = runtime.device(0);
  std::barrier all(3);
  std::vector<Stream*> streams{&device.new_stream(0), &device.new_stream(0), &device.new_stream(-1)};
  // Each task needs the two others to run at the same time.
  for (int round = 0; round < 3000; ++round) {
    for (Stream* stream : streams) stream->enqueue("meet", [&] { all.arrive_and_wait(); });
    for (int i = 0; i < round % 50 * 10; ++i) (void)streams[0]->query();
    if (round % 20 == 0) device.synchronize();
  }
  device.synchronize();
  CHECK_EQ(runtime.scheduler().thread_count(), 3);
}

TEST(a_stream_that_waits_keeps_no_worker) {
  Runtime runtime({.workers = 1});
  Device& device = runtime.device(0);
  Stream& producer = device.new_stream(0);
  Held held(producer);
  const auto signal = producer.record();
  for (int i = 0; i < 100; ++i) device.new_stream(0).wait(signal);
  bool ran = false;
  device.default_stream().enqueue("task", [&] { ran = true; });
  device.default_stream().synchronize();
  CHECK(ran);
  held.release();
  device.synchronize();
}

TEST(urgent_streams_go_first) {
  OneWorker one;
  Device& device = one.runtime.device(0);
  for (const int priority : {0, -1, -3, -2, 0, -3}) one.add(device.new_stream(priority), -priority);
  one.gate.open();
  device.synchronize();
  CHECK(one.order == std::vector<int>({3, 3, 2, 1, 0, 0}));
}

TEST(an_urgent_stream_overtakes_one_that_runs_between_two_tasks) {
  OneWorker one;
  Device& device = one.runtime.device(0);
  Stream &slow = device.new_stream(0), &second = device.new_stream(0), &urgent = device.new_stream(-1);
  slow.enqueue("task", [&] {
    one.order.push_back(1);
    urgent.enqueue("urgent", [&] { one.order.push_back(2); });
  });
  one.add(slow, 3);
  one.add(second, 4);
  one.gate.open();
  device.synchronize();
  CHECK(one.order == std::vector<int>({1, 2, 3, 4}));  // And `slow` keeps its place before `second`.
}

TEST(a_long_stream_does_not_starve_another) {
  OneWorker one;
  Device& device = one.runtime.device(0);
  Stream &first = device.new_stream(0), &second = device.new_stream(0);
  for (int i = 0; i < 1000; ++i) one.add(first, 1);
  one.add(second, 2);
  one.gate.open();
  device.synchronize();
  const auto place = std::find(one.order.begin(), one.order.end(), 2) - one.order.begin();
  CHECK(place < 100);
  CHECK_EQ(one.order.size(), std::size_t{1001});
}

TEST(workers_have_names_and_are_prepared) {
  Runtime runtime({.workers = 1});
  std::atomic<int> prepared{0};
  runtime.on_worker_start = [&] { ++prepared; };
  char name[32] = "";
  Stream& stream = runtime.device(0).default_stream();
  stream.enqueue("name", [&] {
    CHECK_EQ(prepared.load(), 1);
    pthread_getname_np(pthread_self(), name, sizeof name);
  });
  stream.synchronize();
  CHECK(std::string(name) == "sim-worker-0");
}

TEST(workers_leave_the_signals_of_the_process_to_the_host) {
  Runtime runtime({.workers = 1});
  sigset_t before, mask, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Stream& stream = runtime.device(0).default_stream();
  stream.enqueue("mask", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
  stream.synchronize();
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD}) CHECK(sigismember(&mask, signal));
  CHECK(!sigismember(&mask, SIGSEGV));
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK_EQ(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
}

TEST(sleeping_workers_are_woken_for_every_task) {
  // Enough rounds, far enough apart, for every way to fall asleep at the wrong moment.
  Runtime runtime({.workers = 2});
  Device& device = runtime.device(0);
  Stream* streams[] = {&device.new_stream(0), &device.new_stream(0), &device.new_stream(-1)};
  std::atomic<int> ran{0};
  for (int round = 0; round < 2000; ++round) {
    for (int i = 0; i <= round % 3; ++i) streams[i]->enqueue("task", [&ran] { ++ran; });
    for (int i = 0; i < round % 97 * 20; ++i) (void)streams[0]->query();
    if (round % 7 == 0) device.synchronize();
  }
  device.synchronize();
  CHECK_EQ(ran.load(), 3999);
}
