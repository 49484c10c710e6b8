// The schedule "serial".
#include <atomic>
#include <thread>

#include "common.h"

TEST(serial_runs_each_task_at_its_call_on_the_calling_thread) {
  Runtime runtime({.schedule = "serial"});
  Device& device = runtime.device(0);
  std::thread::id on;
  device.new_stream(0).enqueue("task", [&] { on = std::this_thread::get_id(); });
  CHECK(on == std::this_thread::get_id());
  CHECK_EQ(runtime.scheduler().thread_count(), 0);
}

TEST(serial_runs_what_a_task_enqueues_before_the_outer_call_returns) {
  Runtime runtime({.schedule = "serial"});
  Device& device = runtime.device(0);
  Stream &stream = device.new_stream(0), &other = device.new_stream(0);
  std::vector<int> order;
  stream.enqueue("outer", [&] {
    stream.enqueue("same stream", [&] { order.push_back(2); });
    other.enqueue("other stream", [&] { order.push_back(3); });
    order.push_back(1);
  });
  CHECK(order == std::vector<int>({1, 2, 3}));
}

TEST(serial_runs_held_work_on_the_thread_that_releases) {
  Runtime runtime({.schedule = "serial"});
  Device& device = runtime.device(0);
  Stream &stream = device.new_stream(0), &waits = device.new_stream(0);
  stream.hold();
  std::thread::id on;
  waits.wait(stream.record());
  waits.enqueue("task", [&] { on = std::this_thread::get_id(); });
  CHECK(on == std::thread::id());
  std::thread releaser([&] {
    stream.release();
    CHECK(on == std::this_thread::get_id());
  });
  releaser.join();
}

TEST(serial_waits_for_another_thread_to_release) {
  Runtime runtime({.schedule = "serial"});
  Stream& stream = runtime.device(0).default_stream();
  Gate blocked;
  std::atomic<bool> once{false};
  runtime.on_host_wait = [&] {
    if (!once.exchange(true)) blocked.open();
  };
  stream.hold();
  bool ran = false;
  stream.enqueue("task", [&] { ran = true; });
  std::thread releaser([&] {
    blocked.pass();
    stream.release();
  });
  stream.synchronize();
  CHECK(ran);
  releaser.join();
}

TEST(serial_lets_a_second_thread_append_while_a_task_runs) {
  Runtime runtime({.schedule = "serial"});
  Stream& stream = runtime.device(0).default_stream();
  Gate begun, gate;
  std::vector<int> order;
  std::thread first([&] {
    stream.enqueue("first", [&] {
      begun.open();
      gate.pass();
      order.push_back(1);
    });
  });
  begun.pass();
  stream.enqueue("second", [&] { order.push_back(2); });
  gate.open();
  stream.synchronize();
  first.join();
  CHECK(order == std::vector<int>({1, 2}));
}

TEST(serial_runtimes_do_not_mix) {
  Runtime outer({.schedule = "serial"}), inner({.schedule = "serial"});
  bool ran = false;
  outer.device(0).default_stream().enqueue("outer", [&] {
    inner.device(0).default_stream().enqueue("inner", [&] { ran = true; });
    CHECK(ran);
  });
  CHECK(ran);
}
