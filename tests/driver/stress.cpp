// Random programs over random streams, with the events that they need, against the same program in sequence.
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>

#include "common.h"

namespace {

constexpr std::size_t kCells = 24;
using Cells = std::array<std::uint64_t, kCells>;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t product = (a ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 + b;
  return product ^ product >> 29;
}

/// target = mix(target, source)
struct Op {
  std::size_t target, source;
};

/// Who touched a cell last, and what a stream must wait for before it may.
struct Uses {
  std::shared_ptr<Signal> written;
  std::vector<std::shared_ptr<Signal>> read;
};

void run_random_program(const std::vector<Device*>& devices, std::mt19937& random, int length) {
  std::vector<Stream*> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(&devices[random() % devices.size()]->new_stream(-static_cast<int>(random() % 4)));
  Cells expected{}, cells{};
  for (std::size_t i = 0; i < kCells; ++i) expected[i] = cells[i] = random();
  std::array<Uses, kCells> uses;

  for (int step = 0; step < length; ++step) {
    const Op op{random() % kCells, random() % kCells};
    expected[op.target] = mix(expected[op.target], expected[op.source]);

    Stream& stream = *streams[random() % streams.size()];
    if (uses[op.source].written) stream.wait(uses[op.source].written);
    if (uses[op.target].written) stream.wait(uses[op.target].written);
    for (const auto& read : uses[op.target].read) stream.wait(read);
    stream.enqueue("mix", [&cells, op] { cells[op.target] = mix(cells[op.target], cells[op.source]); });
    const auto signal = stream.record();
    uses[op.source].read.push_back(signal);
    uses[op.target] = Uses{signal, {}};

    switch (random() % 200) {
      case 0:
        stream.synchronize();
        break;
      case 1:
        devices[random() % devices.size()]->synchronize();
        break;
      case 2: {
        // Whatever waits for it parks meanwhile.
        const Held held(stream);
        std::this_thread::yield();
        break;
      }
      default:
        break;
    }
  }
  for (Stream* stream : streams) stream->synchronize();
  CHECK(cells == expected);
}

}  // namespace

TEST(random_programs_give_the_sequential_result) {
  const unsigned seed = test_seed();
  std::mt19937 random(seed);
  const int length = kSanitized ? 1500 : 6000;
  for (const auto& schedule : kSchedules) {
    for (const int workers : {1, 2, 5}) {
      Runtime runtime({.devices = 2, .schedule = schedule, .workers = workers});
      for (int round = 0; round < 3; ++round) run_random_program({&runtime.device(0), &runtime.device(1)}, random, length);
    }
  }
}

TEST(random_programs_of_many_hosts_do_not_disturb_each_other) {
  const unsigned seed = test_seed();
  const int length = kSanitized ? 800 : 4000;
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.devices = 2, .schedule = schedule, .workers = 3});
    std::vector<std::thread> hosts;
    for (unsigned host = 0; host < 4; ++host) {
      hosts.emplace_back([&, host] {
        std::mt19937 random(seed + host);
        run_random_program({&runtime.device(0), &runtime.device(1)}, random, length);
      });
    }
    for (auto& host : hosts) host.join();
  }
}

TEST(a_program_without_its_waits_goes_wrong) {
  // The same check as above, on a program that needs its one wait: it must notice.
  for (const bool with_wait : {true, false}) {
    Runtime runtime({});
    Device& device = runtime.device(0);
    Stream &writer = device.new_stream(0), &reader = device.new_stream(0);
    std::atomic<std::uint64_t> cell{1}, result{0};
    Held held(writer);
    writer.enqueue("write", [&] { cell = 2; });
    if (with_wait) reader.wait(writer.record());
    reader.enqueue("read", [&] { result = mix(cell, 0); });
    let_others_run(device);
    held.release();
    device.synchronize();
    CHECK((result == mix(2, 0)) == with_wait);
  }
}
