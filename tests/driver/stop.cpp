#include <atomic>
#include <memory>
#include <thread>

#include "common.h"

TEST(stop_ends_what_runs_and_drops_what_waits) {
  for (const int workers : {1, 2, 4}) {
    Runtime runtime({.workers = workers});
    Stream& stream = runtime.device(0).default_stream();
    Gate begun, gate;
    std::atomic<bool> finished{false}, dropped_ran{false};
    const auto token = std::make_shared<int>(0);
    stream.enqueue("running", [&] {
      begun.open();
      gate.pass();
      finished = true;
    });
    stream.enqueue("queued", [&dropped_ran, token] { dropped_ran = true; });
    const auto signal = stream.record();
    begun.pass();
    std::thread opener([&] {
      while (!runtime.stopped()) std::this_thread::yield();
      gate.open();
    });
    runtime.stop();
    opener.join();
    CHECK(finished);
    CHECK(!dropped_ran);
    CHECK(!signal->done());
    CHECK_EQ(token.use_count(), 1L);
    runtime.stop();
    CHECK_THROWS(Stopped, "stopped", stream.enqueue("task", [] {}));
    CHECK_THROWS(Stopped, "stopped", stream.record());
    CHECK_THROWS(Stopped, "stopped", stream.synchronize());
    CHECK_THROWS(Stopped, "stopped", runtime.device(0).synchronize());
    CHECK_THROWS(Stopped, "stopped", runtime.wait(*signal));
    CHECK_THROWS(Stopped, "stopped", runtime.device(0).new_stream(0));
  }
}

TEST(stop_wakes_every_host_that_waits) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Stream &held = device.new_stream(0), &full = device.new_stream(0);
    held.hold();
    held.enqueue("task", [] {});
    const auto signal = held.record();
    full.wait(signal);
    for (std::size_t i = 0; i < Stream::kCapacity; ++i) full.enqueue("task", [] {});
    std::latch blocked(4);
    static thread_local bool counted;
    runtime.on_host_wait = [&] {
      if (!std::exchange(counted, true)) blocked.count_down();
    };
    std::thread hosts[] = {
        std::thread([&] { CHECK_THROWS(Stopped, "stopped", runtime.wait(*signal)); }),
        std::thread([&] { CHECK_THROWS(Stopped, "stopped", full.enqueue("one more", [] {})); }),
        std::thread([&] { CHECK_THROWS(Stopped, "stopped", held.synchronize()); }),
        std::thread([&] { CHECK_THROWS(Stopped, "stopped", device.synchronize()); }),
    };
    blocked.wait();
    runtime.stop();
    for (auto& host : hosts) host.join();
    CHECK(!signal->done());
    held.release();
  }
}

TEST(stop_may_come_from_many_threads_and_while_others_enqueue) {
  for (const auto& schedule : kSchedules) {
    for (int round = 0; round < 20; ++round) {
      Runtime runtime({.schedule = schedule});
      Device& device = runtime.device(0);
      std::latch started(3);
      std::vector<std::thread> hosts;
      for (int host = 0; host < 3; ++host) {
        hosts.emplace_back([&] {
          Stream& stream = device.new_stream(0);
          started.count_down();
          try {
            for (;;) {
              Block* block = device.allocator().allocate(100, stream);
              stream.enqueue("task", [] {});
              device.allocator().record_stream(block, device.default_stream());
              device.allocator().free(block);
              device.default_stream().wait(stream.record());
              stream.synchronize();
            }
          } catch (const Stopped&) {
          }
        });
      }
      started.wait();
      std::thread stoppers[] = {std::thread([&] { runtime.stop(); }), std::thread([&] { runtime.stop(); })};
      for (auto& stopper : stoppers) stopper.join();
      for (auto& host : hosts) host.join();
    }
  }
}

TEST(memory_may_be_freed_after_the_stop) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  Stream &stream = device.default_stream(), &user = device.new_stream(0);
  Block *plain = device.allocator().allocate(100, stream), *used = device.allocator().allocate(100, stream);
  void* host = runtime.pinned().allocate(100);
  user.hold();
  user.enqueue("use", [] {});
  device.allocator().record_stream(used, user);
  runtime.pinned().record_stream(host, user);
  runtime.stop();
  device.allocator().free(plain);
  device.allocator().free(used);
  runtime.pinned().free(host);
  CHECK_EQ(device.allocator().stats().active_bytes[0].current, 0);
  CHECK_EQ(runtime.pinned().stats().allocated_bytes, 0);
}

TEST(a_dropped_task_may_free_memory) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    auto& allocator = device.allocator();
    Stream& stream = device.default_stream();
    stream.hold();
    Block* block = allocator.allocate(100, stream);
    allocator.record_stream(block, device.new_stream(0));
    stream.enqueue("task", [owner = std::shared_ptr<Block>(block, [&](Block* last) { allocator.free(last); })] {});
    runtime.stop();
    CHECK_EQ(allocator.stats().active_bytes[0].current, 0);
  }
}

TEST(a_task_may_stop_the_runtime) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Stream& stream = runtime.device(0).default_stream();
    stream.enqueue("stop", [&] { runtime.stop(); });
    CHECK_THROWS(Stopped, "stopped", for (;;) stream.synchronize());
  }
}

TEST(a_runtime_that_was_never_used_ends_quietly) {
  Runtime runtime({});
  CHECK_EQ(runtime.scheduler().thread_count(), 0);
  runtime.stop();
}
