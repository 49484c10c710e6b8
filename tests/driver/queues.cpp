// Closed and full queues.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "common.h"

namespace {

struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void fill(Stream& stream, std::atomic<int>& ran) {
  for (std::size_t i = 0; i < Stream::kCapacity; ++i) stream.enqueue("task", [&ran] { ++ran; });
}

}  // namespace

TEST(a_held_stream_starts_nothing) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Stream& stream = device.new_stream(0);
    std::atomic<bool> ran{false};
    stream.hold();
    stream.hold();
    stream.enqueue("task", [&] { ran = true; });
    let_others_run(device);
    CHECK(!ran);
    stream.release();
    let_others_run(device);
    CHECK(!ran);
    CHECK(!stream.query());
    stream.release();
    stream.synchronize();
    CHECK(ran);
    CHECK_THROWS(InvalidArgument, "not held", stream.release());
  }
}

TEST(what_runs_when_a_stream_is_held_goes_on_and_the_next_does_not) {
  Runtime runtime({.workers = 2});
  Device& device = runtime.device(0);
  Stream& stream = device.new_stream(0);
  Gate begun, gate;
  std::atomic<int> ran{0};
  stream.enqueue("running", [&] {
    begun.open();
    gate.pass();
    ++ran;
  });
  const auto first = stream.record();
  stream.enqueue("next", [&] { ++ran; });
  begun.pass();
  Held held(stream);
  gate.open();
  let_others_run(device);
  while (ran == 0) std::this_thread::yield();
  let_others_run(device);
  CHECK_EQ(ran.load(), 1);
  CHECK(!first->done());
  held.release();
  stream.synchronize();
  CHECK_EQ(ran.load(), 2);
}

TEST(an_idle_stream_synchronizes_though_held_but_an_event_on_it_waits) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Stream& stream = runtime.device(0).default_stream();
    Held held(stream);
    CHECK(stream.query());
    stream.synchronize();
    runtime.device(0).synchronize();
    Event event(false);
    stream.record(event);
    CHECK(!event.query());
    CHECK(!stream.query());
    held.release();
    runtime.wait(*event.current());
    CHECK(event.query());
  }
}

TEST(a_full_held_queue_says_so_at_once) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Stream& stream = runtime.device(0).default_stream();
    std::atomic<int> ran{0};
    Held held(stream);
    fill(stream, ran);
    CHECK_THROWS(QueueFull, "Release it", stream.enqueue("one more", [&ran] { ++ran; }));
    // Signals and waits are no tasks.
    Event event(false);
    stream.record(event);
    stream.wait(runtime.device(0).new_stream(0).record());
    held.release();
    stream.synchronize();
    CHECK_EQ(ran.load(), static_cast<int>(Stream::kCapacity));
    CHECK(event.query());
  }
}

TEST(a_full_queue_blocks_the_host_until_a_task_has_started) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  Gate begun, gate, blocked;
  std::atomic<bool> once{false}, returned{false};
  runtime.on_host_wait = [&] {
    if (!once.exchange(true)) blocked.open();
  };
  std::atomic<int> ran{0};
  stream.enqueue("running", [&] {
    begun.open();
    gate.pass();
  });
  begun.pass();
  fill(stream, ran);
  std::thread host([&] {
    stream.enqueue("one more", [&ran] { ++ran; });
    returned = true;
  });
  blocked.pass();
  CHECK(!returned);
  gate.open();
  host.join();
  stream.synchronize();
  CHECK_EQ(ran.load(), static_cast<int>(Stream::kCapacity) + 1);
}

TEST(a_host_blocked_on_a_full_queue_is_woken) {
  // A host that was not woken would look by itself after a while, and call on_host_wait each time.
  Runtime runtime({.workers = 1});
  Stream& stream = runtime.device(0).default_stream();
  std::atomic<int> looked{0};
  runtime.on_host_wait = [&] { ++looked; };
  int ran = 0;
  const int tasks = kSanitized ? 50000 : 500000;
  for (int i = 0; i < tasks; ++i) stream.enqueue("task", [&ran] { ++ran; });
  stream.synchronize();
  CHECK_EQ(ran, tasks);
  CHECK(looked < tasks / static_cast<int>(2 * Stream::kCapacity));
}

TEST(a_host_blocked_on_a_full_queue_can_be_interrupted) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  Gate begun, gate;
  std::atomic<int> ran{0};
  stream.enqueue("running", [&] {
    begun.open();
    gate.pass();
  });
  begun.pass();
  fill(stream, ran);
  runtime.on_host_wait = [] { throw Interrupted("Ctrl-C"); };
  CHECK_THROWS(Interrupted, "Ctrl-C", stream.enqueue("one more", [&ran] { ran += 1000000; }));
  CHECK_THROWS(Interrupted, "Ctrl-C", stream.synchronize());
  CHECK_THROWS(Interrupted, "Ctrl-C", runtime.device(0).synchronize());
  runtime.on_host_wait = nullptr;
  gate.open();
  stream.synchronize();
  CHECK_EQ(ran.load(), static_cast<int>(Stream::kCapacity));
}

TEST(a_host_blocked_on_a_full_queue_learns_that_the_stream_is_held) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  Stream& stream = device.default_stream();
  Gate blocked;
  std::atomic<bool> once{false};
  runtime.on_host_wait = [&] {
    if (!once.exchange(true)) blocked.open();
  };
  // Parked, not held: a host that appends waits.
  Stream& other = device.new_stream(0);
  Held other_held(other);
  stream.wait(other.record());
  std::atomic<int> ran{0};
  fill(stream, ran);
  std::thread host([&] { CHECK_THROWS(QueueFull, "Release it", stream.enqueue("one more", [&ran] { ++ran; })); });
  blocked.pass();
  stream.hold();
  host.join();
  stream.release();
  other_held.release();
  stream.synchronize();
  CHECK_EQ(ran.load(), static_cast<int>(Stream::kCapacity));
}
