#include <atomic>
#include <thread>

#include "common.h"

TEST(a_wait_orders_two_streams) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Stream &producer = device.new_stream(0), &consumer = device.new_stream(0);
    Event event(false);
    Held held(producer);
    std::atomic<int> data{0}, seen{-1};
    producer.enqueue("produce", [&] { data = 1; });
    producer.record(event);
    consumer.wait(event);
    consumer.enqueue("consume", [&] { seen = data.load(); });
    let_others_run(device);
    CHECK_EQ(seen.load(), -1);
    CHECK(!consumer.query());
    held.release();
    consumer.synchronize();
    CHECK_EQ(seen.load(), 1);
  }
}

TEST(without_a_wait_the_consumer_sees_old_data) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Stream &producer = device.new_stream(0), &consumer = device.new_stream(0);
    Held held(producer);
    std::atomic<int> data{0}, seen{-1};
    producer.enqueue("produce", [&] { data = 1; });
    consumer.enqueue("consume", [&] { seen = data.load(); });
    consumer.synchronize();
    CHECK_EQ(seen.load(), 0);
  }
}

TEST(a_wait_keeps_the_version_that_was_current) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Stream &first = device.new_stream(0), &second = device.new_stream(0), &waits = device.new_stream(0), &later = device.new_stream(0);
    Event event(false);
    Held first_held(first), second_held(second);
    first.record(event);
    waits.wait(event);
    second.record(event);
    later.wait(event);
    std::atomic<bool> ran{false}, later_ran{false};
    waits.enqueue("task", [&] { ran = true; });
    later.enqueue("task", [&] { later_ran = true; });
    let_others_run(device);
    CHECK(!ran);
    first_held.release();
    waits.synchronize();
    CHECK(ran);
    CHECK(!event.query());  // The second version.
    let_others_run(device);
    CHECK(!later_ran);
    second_held.release();
    later.synchronize();
    CHECK(later_ran);
  }
}

TEST(an_event_that_was_never_recorded_holds_nothing_up) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  Event event(true);
  CHECK(event.query());
  CHECK(event.timing());
  CHECK(!event.current());
  stream.wait(event);
  CHECK(stream.query());
  stream.synchronize();
}

TEST(a_stream_may_wait_for_its_own_event) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Stream& stream = runtime.device(0).default_stream();
    Held held(stream);
    Event event(false);
    stream.record(event);
    stream.wait(event);
    held.release();
    stream.synchronize();
    CHECK(event.query());
  }
}

TEST(a_wait_crosses_devices) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.devices = 2, .schedule = schedule});
    Stream &producer = runtime.device(0).default_stream(), &consumer = runtime.device(1).default_stream();
    Held held(producer);
    int data = 0, seen = -1;
    producer.enqueue("produce", [&] { data = 1; });
    Event event(false);
    producer.record(event);
    consumer.wait(event);
    consumer.enqueue("consume", [&] { seen = data; });
    let_others_run(runtime.device(1));
    CHECK(!consumer.query());
    held.release();
    consumer.synchronize();
    CHECK_EQ(seen, 1);
  }
}

TEST(all_streams_parked_on_a_signal_go_on_in_the_order_of_their_waits) {
  Runtime runtime({.workers = 1});
  Device& device = runtime.device(0);
  Stream& producer = device.new_stream(0);
  Held held(producer);
  const auto signal = producer.record();
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    Stream& stream = device.new_stream(0);
    stream.wait(signal);
    stream.enqueue("task", [&order, i] { order.push_back(i); });
  }
  let_others_run(device);  // All of them are parked now.
  held.release();
  device.synchronize();
  CHECK_EQ(order.size(), std::size_t{100});
  for (int i = 0; i < 100; ++i) CHECK_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(a_parked_stream_that_is_held_stays_until_both_are_over) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Stream &producer = device.new_stream(0), &consumer = device.new_stream(0);
    Held producer_held(producer);
    consumer.wait(producer.record());
    std::atomic<bool> ran{false};
    consumer.enqueue("task", [&] { ran = true; });
    let_others_run(device);
    Held consumer_held(consumer);
    producer_held.release();
    producer.synchronize();
    let_others_run(device);
    CHECK(!ran);
    consumer_held.release();
    consumer.synchronize();
    CHECK(ran);
  }
}

TEST(a_long_chain_of_waits_needs_no_deep_stack) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    Held held(device.default_stream());
    auto signal = device.default_stream().record();
    int count = 0;
    for (int i = 0; i < 5000; ++i) {
      Stream& next = device.new_stream(0);
      next.wait(signal);
      next.enqueue("task", [&count] { ++count; });
      signal = next.record();
    }
    held.release();
    runtime.wait(*signal);
    CHECK_EQ(count, 5000);
  }
}

TEST(times_of_a_stream_never_go_back) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  std::vector<std::shared_ptr<Signal>> signals;
  for (int i = 0; i < 500; ++i) {
    signals.push_back(stream.record());
    if (i % 3 == 0) stream.enqueue("task", [] {});
    if (i % 50 == 0) stream.synchronize();
  }
  stream.synchronize();
  CHECK(signals[0]->time_ns() > 0);
  for (std::size_t i = 1; i < signals.size(); ++i) CHECK(signals[i]->time_ns() >= signals[i - 1]->time_ns());
}

TEST(a_time_is_taken_when_the_stream_gets_there) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  std::int64_t inside = 0;
  const auto before = stream.record();
  stream.enqueue("task", [&] { inside = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); });
  const auto after = stream.record();
  stream.synchronize();
  CHECK(before->time_ns() <= inside);
  CHECK(inside <= after->time_ns());
}

TEST(every_host_thread_that_waits_for_a_signal_wakes) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  constexpr int kHosts = 8;
  std::latch blocked(kHosts);
  static thread_local bool counted;
  runtime.on_host_wait = [&] {
    if (!std::exchange(counted, true)) blocked.count_down();
  };
  Held held(stream);
  bool ran = false;
  stream.enqueue("task", [&] { ran = true; });
  const auto signal = stream.record();
  std::vector<std::thread> hosts;
  for (int i = 0; i < kHosts; ++i) {
    hosts.emplace_back([&] {
      runtime.wait(*signal);
      CHECK(ran);
    });
  }
  blocked.wait();
  held.release();
  for (auto& host : hosts) host.join();
}

TEST(a_stream_and_its_last_signal_say_the_same) {
  Runtime runtime({});
  Stream& stream = runtime.device(0).default_stream();
  for (int i = 0; i < 3000; ++i) {
    stream.enqueue("task", [] {});
    const auto signal = stream.record();
    if (i % 2) {
      while (!stream.query()) std::this_thread::yield();
      CHECK(signal->done());
    } else {
      while (!signal->done()) std::this_thread::yield();
      CHECK(stream.query());
    }
  }
}
