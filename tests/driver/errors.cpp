#include <atomic>
#include <barrier>
#include <memory>
#include <stdexcept>
#include <thread>

#include "common.h"

namespace {

struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

TEST(what_a_task_throws_surfaces_at_every_wait_until_reset) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.devices = 2, .schedule = schedule});
    Device& device = runtime.device(0);
    Stream& stream = device.new_stream(0);
    CHECK(!device.failed());
    stream.enqueue("broken", [] { throw Broken("first"); });
    const auto signal = stream.record();
    CHECK_THROWS(Broken, "first", stream.synchronize());
    CHECK_THROWS(Broken, "first", stream.synchronize());
    CHECK_THROWS(Broken, "first", device.synchronize());
    CHECK_THROWS(Broken, "first", device.default_stream().synchronize());
    CHECK_THROWS(Broken, "first", runtime.wait(*signal));
    CHECK(device.failed());
    CHECK_THROWS(Broken, "first", std::rethrow_exception(device.error()));

    device.reset_error();
    CHECK(!device.failed());
    CHECK(!device.error());
    bool ran = false;
    stream.enqueue("sound", [&] { ran = true; });
    stream.synchronize();
    CHECK(ran);
  }
}

TEST(after_an_error_tasks_are_dropped_and_signals_still_come) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Stream &stream = device.new_stream(0), &other = device.new_stream(0);
    Held held(stream);
    const auto token = std::make_shared<int>(0);
    std::atomic<int> ran{0};
    stream.enqueue("broken", [] { throw Broken("first"); });
    stream.enqueue("broken", [] { throw Broken("second"); });
    stream.enqueue("skipped", [&ran, token] { ++ran; });
    Event event(false);
    stream.record(event);
    other.wait(event);
    other.enqueue("skipped", [&ran, token] { ++ran; });
    const auto last = other.record();
    held.release();
    CHECK_THROWS(Broken, "first", runtime.wait(*last));
    CHECK(event.query());
    CHECK_EQ(ran.load(), 0);
    CHECK_EQ(token.use_count(), 1L);
  }
}

TEST(the_first_error_is_kept) {
  Runtime runtime({.workers = 2});
  Device& device = runtime.device(0);
  Stream &first = device.new_stream(0), &second = device.new_stream(0);
  std::barrier both(2);
  first.enqueue("broken", [&] {
    both.arrive_and_wait();
    throw Broken("first");
  });
  second.enqueue("broken", [&] {
    both.arrive_and_wait();
    while (!device.failed()) std::this_thread::yield();
    throw Broken("second");
  });
  CHECK_THROWS(Broken, "first", device.synchronize());
}

TEST(an_error_belongs_to_its_device) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.devices = 2, .schedule = schedule});
    Stream &broken = runtime.device(0).default_stream(), &sound = runtime.device(1).default_stream();
    broken.enqueue("broken", [] { throw Broken("first"); });
    Event event(false);
    broken.record(event);
    bool ran = false;
    sound.wait(event);
    sound.enqueue("task", [&] { ran = true; });
    sound.synchronize();
    runtime.device(1).synchronize();
    CHECK(ran);
    CHECK(!runtime.device(1).failed());
    CHECK_THROWS(Broken, "first", broken.synchronize());
  }
}

TEST(an_error_does_not_surface_where_nothing_waits) {
  Runtime runtime({.schedule = "serial"});
  Device& device = runtime.device(0);
  Stream& stream = device.default_stream();
  stream.enqueue("broken", [] { throw Broken("first"); });
  stream.enqueue("skipped", [] {});
  Event event(false);
  stream.record(event);
  CHECK(stream.query());
  CHECK(event.query());
  device.allocator().free(device.allocator().allocate(1, stream));
  device.allocator().empty_cache();
}

TEST(reset_waits_for_what_is_queued) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  Stream& stream = device.default_stream();
  Gate gate;
  std::atomic<int> ran{0};
  stream.enqueue("broken", [&] {
    gate.pass();
    throw Broken("first");
  });
  for (int i = 0; i < 500; ++i) stream.enqueue("skipped", [&ran] { ++ran; });
  gate.open();
  device.reset_error();
  CHECK(stream.query());
  CHECK_EQ(ran.load(), 0);
  stream.synchronize();
}
