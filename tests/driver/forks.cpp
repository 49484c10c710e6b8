#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "common.h"

namespace {

/// Runs `body` in a forked child; a child that hangs is ended and counts as failed.
void in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    body();
    std::fflush(nullptr);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}

}  // namespace

TEST(a_child_may_use_what_its_parent_has_not_used) {
  Runtime runtime({});
  CHECK(!runtime.forked());
  in_child([&] {
    CHECK(!runtime.forked());
    Stream& stream = runtime.device(0).default_stream();
    bool ran = false;
    stream.enqueue("task", [&] { ran = true; });
    stream.synchronize();
    CHECK(ran);
    in_child([&] { CHECK_THROWS(Stopped, "spawn", stream.synchronize()); });
    runtime.stop();
  });
  // The child's use is not ours.
  Stream& stream = runtime.device(0).default_stream();
  stream.enqueue("task", [] {});
  stream.synchronize();
}

TEST(after_a_use_every_call_in_a_child_says_spawn_and_none_hangs) {
  auto* runtime = new Runtime({});
  Device& device = runtime->device(0);
  Stream &stream = device.default_stream(), &parked = device.new_stream(0);
  auto& allocator = device.allocator();
  auto& pinned = runtime->pinned();
  Block* block = allocator.allocate(1, stream);
  void* host = pinned.allocate(1);
  Event event(true);
  Held held(stream);
  stream.enqueue("task", [] {});
  stream.record(event);
  parked.wait(event);
  const auto signal = event.current();
  in_child([&] {
    CHECK(runtime->forked());
    CHECK_THROWS(Stopped, "spawn", runtime->check_usable());
    CHECK_THROWS(Stopped, "spawn", stream.enqueue("task", [] {}));
    CHECK_THROWS(Stopped, "spawn", stream.record(event));
    CHECK_THROWS(Stopped, "spawn", stream.record());
    CHECK_THROWS(Stopped, "spawn", parked.wait(event));
    CHECK_THROWS(Stopped, "spawn", parked.wait(Event(false)));
    CHECK_THROWS(Stopped, "spawn", parked.wait(signal));
    CHECK_THROWS(Stopped, "spawn", stream.query());
    CHECK_THROWS(Stopped, "spawn", event.query());
    CHECK_THROWS(Stopped, "spawn", stream.synchronize());
    CHECK_THROWS(Stopped, "spawn", stream.hold());
    CHECK_THROWS(Stopped, "spawn", stream.release());
    CHECK_THROWS(Stopped, "spawn", device.synchronize());
    CHECK_THROWS(Stopped, "spawn", device.reset_error());
    CHECK_THROWS(Stopped, "spawn", device.new_stream(0));
    CHECK_THROWS(Stopped, "spawn", runtime->wait(*signal));
    CHECK_THROWS(Stopped, "spawn", allocator.allocate(1, stream));
    CHECK_THROWS(Stopped, "spawn", allocator.record_stream(block, parked));
    CHECK_THROWS(Stopped, "spawn", allocator.empty_cache());
    CHECK_THROWS(Stopped, "spawn", allocator.stats());
    CHECK_THROWS(Stopped, "spawn", allocator.memory_info());
    CHECK_THROWS(Stopped, "spawn", allocator.snapshot());
    CHECK_THROWS(Stopped, "spawn", allocator.set_limit(1));
    CHECK_THROWS(Stopped, "spawn", allocator.reset_peak_stats());
    CHECK_THROWS(Stopped, "spawn", pinned.allocate(1));
    CHECK_THROWS(Stopped, "spawn", pinned.record_stream(host, stream));
    CHECK_THROWS(Stopped, "spawn", pinned.empty_cache());
    CHECK_THROWS(Stopped, "spawn", pinned.stats());
    CHECK(!pinned.contains(host));
    // What identifies things stays.
    CHECK(&device.stream(1) == &parked);
    // Whatever ends there ends quietly.
    allocator.free(block);
    pinned.free(host);
    runtime->stop();
    delete runtime;
  });
  held.release();
  device.synchronize();
  allocator.free(block);
  pinned.free(host);
  delete runtime;
}

TEST(a_child_does_not_hang_on_locks_that_were_taken_at_the_fork) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  std::atomic<bool> over{false};
  std::thread busy([&] {
    Stream& stream = device.new_stream(0);
    while (!over) {
      Block* block = device.allocator().allocate(1024, stream);
      stream.enqueue("task", [] {});
      device.allocator().free(block);
      stream.synchronize();
    }
  });
  Block* block = device.allocator().allocate(1024, device.default_stream());
  for (int i = 0; i < 20; ++i) {
    in_child([&] {
      CHECK_THROWS(Stopped, "spawn", device.allocator().allocate(1, device.default_stream()));
      CHECK_THROWS(Stopped, "spawn", device.synchronize());
      device.allocator().free(block);
      runtime.stop();
    });
  }
  over = true;
  busy.join();
  device.allocator().free(block);
}
