#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "common.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

TEST(a_task_runs_after_its_call_has_returned) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  Gate gate;
  std::atomic<bool> ran{false};
  stream.enqueue("task", [&] {
    gate.pass();
    ran = true;
  });
  CHECK(!ran);
  CHECK(!stream.query());
  gate.open();
  stream.synchronize();
  CHECK(ran);
  CHECK(stream.query());
}

TEST(query_is_false_while_the_last_task_runs) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  Gate begun, gate;
  stream.enqueue("task", [&] {
    begun.open();
    gate.pass();
  });
  begun.pass();
  CHECK(!stream.query());
  gate.open();
  stream.synchronize();
  CHECK(stream.query());
}

TEST(tasks_of_a_stream_run_in_order) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Stream& stream = runtime.device(0).new_stream(0);
    int next = 0;
    bool in_order = true;
    for (int i = 0; i < 20000; ++i) {
      stream.enqueue("task", [&, i] { in_order = in_order && next++ == i; });
    }
    stream.synchronize();
    CHECK(in_order);
    CHECK_EQ(next, 20000);
  }
}

TEST(each_host_thread_keeps_its_order_on_a_shared_stream) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Stream& stream = runtime.device(0).new_stream(0);
    constexpr int kThreads = 4, kTasks = 3000;
    std::array<int, kThreads> next{};
    bool in_order = true;
    std::vector<std::thread> hosts;
    for (int host = 0; host < kThreads; ++host) {
      hosts.emplace_back([&, host] {
        for (int i = 0; i < kTasks; ++i) {
          // Only one task of a stream runs at a time, so plain integers do.
          stream.enqueue("task", [&, host, i] { in_order = in_order && next[static_cast<std::size_t>(host)]++ == i; });
        }
      });
    }
    for (auto& host : hosts) host.join();
    stream.synchronize();
    CHECK(in_order);
    for (const int count : next) CHECK_EQ(count, kTasks);
  }
}

TEST(a_blocked_stream_does_not_stop_another) {
  Runtime runtime({.workers = 2});
  Device& device = runtime.device(0);
  Stream &blocked = device.new_stream(0), &free = device.new_stream(0);
  Gate gate;
  blocked.enqueue("blocked", [&] { gate.pass(); });
  bool ran = false;
  free.enqueue("free", [&] { ran = true; });
  free.synchronize();
  CHECK(ran);
  CHECK(!blocked.query());
  gate.open();
}

TEST(callables_are_of_any_size_and_may_be_move_only) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  std::array<int, 200> large{};
  large[199] = 7;
  auto owned = std::make_unique<int>(5);
  int sum = 0;
  stream.enqueue("large", [&sum, large] { sum += large[199]; });
  stream.enqueue("move only", [&sum, owned = std::move(owned)] { sum += *owned; });
  stream.synchronize();
  CHECK_EQ(sum, 12);
}

TEST(a_callable_is_destroyed_before_its_task_counts_as_complete) {
  struct Last {
    Gate &begun, &gate;
    ~Last() {
      begun.open();
      gate.pass();
    }
  };
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  Gate begun, gate;
  stream.enqueue("task", [last = std::unique_ptr<Last>(new Last{begun, gate})] {});
  const auto signal = stream.record();
  begun.pass();
  CHECK(!stream.query());
  CHECK(!signal->done());
  gate.open();
  stream.synchronize();
  CHECK(signal->done());
}

TEST(a_device_synchronizes_all_of_its_streams_and_no_other_device) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.devices = 2, .schedule = schedule});
    Stream &mine = runtime.device(1).new_stream(0), &other = runtime.device(0).new_stream(0);
    std::atomic<int> ran{0};
    Held held(other);
    other.enqueue("other", [&] { ran += 100; });
    runtime.device(1).default_stream().enqueue("mine", [&] { ++ran; });
    mine.enqueue("mine", [&] { ++ran; });
    runtime.device(1).synchronize();
    CHECK_EQ(ran.load(), 2);
    CHECK(!other.query());
    held.release();
    runtime.device(0).synchronize();
    CHECK_EQ(ran.load(), 102);
    runtime.device(0).synchronize();
  }
}

TEST(a_device_synchronizes_streams_again_after_they_were_idle) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  std::vector<Stream*> streams;
  for (int i = 0; i < 100; ++i) streams.push_back(&device.new_stream(0));
  int ran[100] = {};
  for (int round = 1; round <= 50; ++round) {
    for (int i = round % 3; i < 100; i += 3) streams[static_cast<std::size_t>(i)]->enqueue("task", [&ran, i] { ++ran[i]; });
    device.synchronize();
    for (int i = 0; i < 100; ++i) CHECK_EQ(ran[i], (round + (i % 3 == 0 ? 0 : 3 - i % 3)) / 3);
  }
}

TEST(streams_are_found_by_their_ids) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  CHECK(&device.stream(0) == &device.default_stream());
  for (int i = 1; i < 1000; ++i) {
    Stream& stream = device.new_stream(-1);
    CHECK_EQ(stream.id(), i);
    CHECK(&device.stream(i) == &stream);
  }
  CHECK(&device.stream(0) == &device.default_stream());
  CHECK_THROWS(InvalidArgument, "streams are 0 to 999", device.stream(1000));
  CHECK_THROWS(InvalidArgument, "no stream -1", device.stream(-1));
  CHECK_EQ(device.new_stream(-99).priority(), kGreatestPriority);
  CHECK_EQ(device.new_stream(99).priority(), kLeastPriority);
}

TEST(bad_indices_and_options_are_refused) {
  Runtime runtime({.devices = 3});
  CHECK_THROWS(InvalidArgument, "devices 0 to 2", runtime.device(3));
  CHECK_THROWS(InvalidArgument, "no device -1", runtime.device(-1));
  CHECK_THROWS(InvalidArgument, "choose 1 to", Runtime({.devices = 0}));
  CHECK_THROWS(InvalidArgument, "at least", Runtime({.memory_bytes = 1000}));
  CHECK_THROWS(InvalidArgument, "at least 1", Runtime({.workers = -1}));
}

TEST(idle_streams_cost_less_than_a_kilobyte) {
#ifdef __GLIBC__
  if (kSanitized) return;
  Runtime runtime({});
  Device& device = runtime.device(0);
  constexpr std::size_t kStreams = 10000;
  std::atomic<int> ran{0};
  const auto before = mallinfo2().uordblks + mallinfo2().hblkhd;
  for (std::size_t i = 0; i < kStreams; ++i) device.new_stream(0).enqueue("task", [&ran] { ++ran; });
  device.synchronize();
  CHECK_EQ(ran.load(), static_cast<int>(kStreams));
  CHECK((mallinfo2().uordblks + mallinfo2().hblkhd - before) / kStreams < 1000);
#endif
}

TEST(a_task_may_enqueue_on_a_full_queue) {
  Runtime runtime({.workers = 1});
  Stream& stream = runtime.device(0).default_stream();
  int ran = 0;
  constexpr int kMany = static_cast<int>(Stream::kCapacity) * 2;
  stream.enqueue("task", [&] {
    for (int i = 0; i < kMany; ++i) stream.enqueue("inner", [&ran] { ++ran; });
  });
  stream.synchronize();  // What was appended so far: the outer task.
  stream.synchronize();
  CHECK_EQ(ran, kMany);
}

TEST(a_task_cannot_wait_for_its_own_end) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Stream& stream = runtime.device(0).default_stream();
    stream.enqueue("task", [&] { stream.synchronize(); });
    CHECK_THROWS(InvalidArgument, "wait for its own end", stream.synchronize());
  }
}
