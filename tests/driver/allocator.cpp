#include <cstring>
#include <random>
#include <thread>

#include "common.h"

namespace {

/// The figures that change most, of all pools together.
struct Figures {
  std::int64_t allocations, active, segments, splits, allocated_bytes, active_bytes, reserved_bytes, split_bytes, requested_bytes;
  bool operator==(const Figures&) const = default;
};

Figures figures(const CachingAllocator& allocator, std::size_t pool = 0) {
  const auto stats = allocator.stats();
  return {stats.allocation[pool].current,      stats.active[pool].current,
          stats.segment[pool].current,         stats.inactive_split[pool].current,
          stats.allocated_bytes[pool].current, stats.active_bytes[pool].current,
          stats.reserved_bytes[pool].current,  stats.inactive_split_bytes[pool].current,
          stats.requested_bytes[pool].current};
}

Figures figures_of_snapshot(const CachingAllocator& allocator) {
  Figures sum{};
  for (const auto& segment : allocator.snapshot()) {
    ++sum.segments;
    sum.reserved_bytes += static_cast<std::int64_t>(segment.total_bytes);
    sum.requested_bytes += static_cast<std::int64_t>(segment.requested_bytes);
    const char* next = static_cast<const char*>(segment.address);
    std::size_t total = 0;
    bool free_before = false;
    for (const auto& block : segment.blocks) {
      CHECK(block.address == next);
      CHECK(block.size_bytes % 512 == 0);
      CHECK(!(free_before && !block.active));  // Neighbours that are free are one block.
      free_before = !block.active;
      next += block.size_bytes;
      total += block.size_bytes;
      const auto bytes = static_cast<std::int64_t>(block.size_bytes);
      if (block.allocated) ++sum.allocations, sum.allocated_bytes += bytes;
      if (block.active) ++sum.active, sum.active_bytes += bytes;
      if (!block.active && segment.blocks.size() > 1) ++sum.splits, sum.split_bytes += bytes;
    }
    CHECK_EQ(total, segment.total_bytes);
  }
  return sum;
}

std::size_t size_of(const Block* block) {
  for (const auto& segment : CachingAllocator::owner(block).snapshot()) {
    for (const auto& info : segment.blocks) {
      if (info.address == CachingAllocator::address(block)) return info.size_bytes;
    }
  }
  FAIL("a block is in no segment");
}

}  // namespace

TEST(a_tensor_of_256_floats_adds_1024_active_bytes) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  CHECK(figures(allocator) == Figures{});
  Block* block = allocator.allocate(1024, device.default_stream());
  CHECK(figures(allocator) == (Figures{1, 1, 1, 1, 1024, 1024, 2 * kMebi, 2 * kMebi - 1024, 1024}));
  CHECK(figures(allocator, 1) == figures(allocator));
  CHECK(figures(allocator, 2) == Figures{});
  allocator.free(block);
  CHECK(figures(allocator) == (Figures{0, 0, 1, 0, 0, 0, 2 * kMebi, 0, 0}));
  CHECK_EQ(allocator.stats().active_bytes[0].peak, 1024);
  CHECK_EQ(allocator.stats().allocated_bytes[0].allocated, 1024);
  CHECK_EQ(allocator.stats().allocated_bytes[0].freed, 1024);
}

TEST(sizes_are_rounded_as_cuda_does) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  const struct {
    std::size_t asked, block, segment;
  } cases[] = {
      {1, 512, 2 * kMebi},
      {512, 512, 2 * kMebi},
      {513, 1024, 2 * kMebi},
      {kMebi, kMebi, 2 * kMebi},
      {kMebi + 1, kMebi + 512, 20 * kMebi},
      {10 * kMebi - 512, 10 * kMebi - 512, 20 * kMebi},
      {10 * kMebi, 10 * kMebi, 10 * kMebi},
      {10 * kMebi + 1, 10 * kMebi + 512, 12 * kMebi},
      {19 * kMebi - 512, 19 * kMebi - 512, 20 * kMebi},
      {19 * kMebi, 20 * kMebi, 20 * kMebi},  // 1 MiB would be left over: not worth a block.
      {64 * kMebi, 64 * kMebi, 64 * kMebi},
  };
  for (const auto& [asked, block_bytes, segment] : cases) {
    Block* block = allocator.allocate(asked, device.default_stream());
    CHECK_EQ(size_of(block), block_bytes);
    CHECK_EQ(allocator.stats().reserved_bytes[0].current, static_cast<std::int64_t>(segment));
    CHECK_EQ(allocator.stats().requested_bytes[0].current, static_cast<std::int64_t>(asked));
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(CachingAllocator::address(block)) % 512, std::uintptr_t{0});
    std::memset(CachingAllocator::address(block), 0xff, asked);
    allocator.free(block);
    allocator.empty_cache();
    CHECK_EQ(allocator.stats().reserved_bytes[0].current, 0);
  }
}

TEST(a_freed_block_is_free_at_once_for_its_stream_and_for_no_other) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream &stream = device.new_stream(0), &other = device.new_stream(0);
  Held held(stream);
  stream.enqueue("pending", [] {});
  for (const std::size_t bytes : {std::size_t{1000}, 3 * kMebi, 30 * kMebi}) {
    Block* block = allocator.allocate(bytes, stream);
    void* const address = CachingAllocator::address(block);
    allocator.free(block);
    Block* elsewhere = allocator.allocate(bytes, other);
    CHECK(CachingAllocator::address(elsewhere) != address);
    Block* again = allocator.allocate(bytes, stream);
    CHECK(CachingAllocator::address(again) == address);
    allocator.free(elsewhere);
    allocator.free(again);
  }
}

TEST(the_best_fit_is_taken_and_neighbours_merge) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream& stream = device.default_stream();
  for (const std::size_t unit : {4 * kKibi, 2 * kMebi}) {
    // [a][b][c][d][e] ...: b and d free, of 3 and 2 units.
    Block* blocks[5];
    for (int i = 0; i < 5; ++i) blocks[i] = allocator.allocate((i == 1 ? 3 : i == 3 ? 2 : 1) * unit, stream);
    void* const two = CachingAllocator::address(blocks[3]);
    void* const three = CachingAllocator::address(blocks[1]);
    allocator.free(blocks[1]);
    allocator.free(blocks[3]);
    Block* fits = allocator.allocate(2 * unit, stream);
    CHECK(CachingAllocator::address(fits) == two);
    Block* part = allocator.allocate(3 * unit, stream);
    CHECK(CachingAllocator::address(part) == three);
    allocator.free(fits);
    allocator.free(part);
    allocator.free(blocks[2]);  // b, c and d are one block of 6 units.
    Block* whole = allocator.allocate(6 * unit, stream);
    CHECK(CachingAllocator::address(whole) == three);
    CHECK(figures(allocator) == figures_of_snapshot(allocator));
    for (Block* block : {whole, blocks[0], blocks[4]}) allocator.free(block);
    CHECK_EQ(allocator.stats().inactive_split[0].current, 0);
  }
}

TEST(record_stream_delays_the_reuse_until_that_stream_has_passed) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.schedule = schedule});
    Device& device = runtime.device(0);
    auto& allocator = device.allocator();
    Stream &stream = device.new_stream(0), &user = device.new_stream(0), &second = device.new_stream(0);
    Block* block = allocator.allocate(4096, stream);
    void* const address = CachingAllocator::address(block);
    Held held(user), second_held(second);
    user.enqueue("use", [] {});
    second.enqueue("use", [] {});
    allocator.record_stream(block, user);
    allocator.record_stream(block, user);
    allocator.record_stream(block, second);
    allocator.record_stream(block, stream);
    allocator.free(block);
    CHECK_EQ(allocator.stats().allocated_bytes[0].current, 0);
    CHECK_EQ(allocator.stats().active_bytes[0].current, 4096);
    Block* next = allocator.allocate(4096, stream);
    CHECK(CachingAllocator::address(next) != address);
    allocator.free(next);
    held.release();
    user.synchronize();
    CHECK_EQ(allocator.stats().active_bytes[0].current, 4096);
    second_held.release();
    second.synchronize();
    CHECK_EQ(allocator.stats().active_bytes[0].current, 0);
    next = allocator.allocate(4096, stream);
    CHECK(CachingAllocator::address(next) == address);
    // The uses went with the old allocation.
    const Held again(user);
    user.enqueue("other", [] {});
    allocator.free(next);
    CHECK_EQ(allocator.stats().active_bytes[0].current, 0);
  }
}

TEST(without_record_stream_memory_is_reused_under_its_user) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream &stream = device.new_stream(0), &user = device.new_stream(0);
  Block* block = allocator.allocate(4, stream);
  int* const data = static_cast<int*>(CachingAllocator::address(block));
  int seen = 0;
  stream.enqueue("write", [data] { *data = 1; });
  user.wait(stream.record());
  Held held(user);
  user.enqueue("read", [data, &seen] { seen = *data; });
  allocator.free(block);
  Block* next = allocator.allocate(4, stream);
  CHECK(CachingAllocator::address(next) == data);
  stream.enqueue("overwrite", [data] { *data = 2; });
  stream.synchronize();
  held.release();
  user.synchronize();
  CHECK_EQ(seen, 2);
  allocator.free(next);
}

TEST(exhaustion_flushes_retries_and_then_says_what_there_is) {
  Runtime runtime({.memory_bytes = 64 * kMebi});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream &stream = device.new_stream(0), &other = device.new_stream(0);
  Block* kept = allocator.allocate(30 * kMebi, stream);
  Block* cached = allocator.allocate(30 * kMebi, other);
  CHECK_THROWS(OutOfMemory,
               "sim out of memory. Tried to allocate 40.00 MiB. sim:0 has a total capacity of 64.00 MiB of which 4.00 MiB is free. "
               "60.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
               allocator.allocate(40 * kMebi, stream));
  CHECK_EQ(allocator.stats().num_ooms, 1);
  CHECK_EQ(allocator.stats().num_alloc_retries, 1);
  CHECK_THROWS(OutOfMemory, "Tried to allocate 16777216.00 GiB", allocator.allocate(std::size_t{1} << 54, stream));
  CHECK_THROWS(OutOfMemory, "Tried to allocate", allocator.allocate(~std::size_t{0}, stream));

  // A segment that another stream has cached is enough: no full flush.
  allocator.free(cached);
  const auto before = allocator.stats();
  Block* taken = allocator.allocate(32 * kMebi, stream);
  CHECK_EQ(allocator.stats().num_alloc_retries, before.num_alloc_retries);
  CHECK_EQ(allocator.stats().num_device_free, before.num_device_free + 1);
  allocator.free(taken);
  allocator.free(kept);
  CHECK_EQ(static_cast<std::int64_t>(allocator.memory_info().first), std::int64_t{2} << 20);
  allocator.empty_cache();
  CHECK_EQ(allocator.memory_info().first, 64 * kMebi);
  CHECK_EQ(allocator.memory_info().second, 64 * kMebi);
  allocator.free(allocator.allocate(64 * kMebi, other));
}

TEST(exhaustion_waits_for_recorded_streams) {
  Runtime runtime({.memory_bytes = 64 * kMebi});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream &stream = device.new_stream(0), &user = device.new_stream(0);
  Gate begun, gate;
  Block* block = allocator.allocate(60 * kMebi, stream);
  user.enqueue("use", [&] {
    begun.open();
    gate.pass();
  });
  begun.pass();
  allocator.record_stream(block, user);
  allocator.free(block);
  std::atomic<bool> once{false};
  runtime.on_host_wait = [&] {
    // Only now, since the allocation waits: it is not before the use has ended.
    if (!once.exchange(true)) gate.open();
  };
  Block* next = allocator.allocate(40 * kMebi, user);
  CHECK(once);
  CHECK_EQ(allocator.stats().num_alloc_retries, 1);
  allocator.free(next);
}

TEST(memory_on_its_way_back_is_not_lost_for_another_thread) {
  Runtime runtime({.memory_bytes = 64 * kMebi});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream& stream = device.new_stream(0);
  allocator.free(allocator.allocate(60 * kMebi, stream));
  Held held(stream);
  stream.enqueue("task", [] {});

  // The first thread waits for the device, to hand the memory back, and is kept there when the device is through. The second
  // must wait for the first, and not find that there is no memory.
  static thread_local int waits;
  static thread_local bool is_first;
  Gate first_waits, second_waits, go_on;
  std::atomic<bool> released{false}, went_on{false};
  runtime.on_host_wait = [&] {
    if (++waits == 1) (is_first ? first_waits : second_waits).open();
    if (is_first) {
      go_on.pass();
    } else if (released && !went_on.exchange(true)) {
      go_on.open();
    }
  };
  const auto take = [&](bool first) {
    is_first = first;
    allocator.free(allocator.allocate(30 * kMebi, device.new_stream(0)));
  };
  std::thread first(take, true);
  first_waits.pass();
  std::thread second(take, false);
  second_waits.pass();
  held.release();
  released = true;
  first.join();
  second.join();
  CHECK_EQ(allocator.stats().num_ooms, 0);
}

TEST(a_segment_goes_back_only_after_the_device_is_through) {
  Runtime runtime({.memory_bytes = 64 * kMebi});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream& stream = device.new_stream(0);
  Block* block = allocator.allocate(20 * kMebi, stream);
  int* const data = static_cast<int*>(CachingAllocator::address(block));
  Gate begun, gate;
  stream.enqueue("write", [&] {
    begun.open();
    gate.pass();
    for (std::size_t i = 0; i < 5 * kMebi; i += 512) data[i] = 1;  // Faults if the pages are gone.
  });
  begun.pass();
  allocator.free(block);
  std::atomic<bool> once{false};
  runtime.on_host_wait = [&] {
    CHECK_EQ(device.arena().used_bytes(), 20 * kMebi);
    if (!once.exchange(true)) gate.open();
  };
  allocator.empty_cache();
  CHECK(once);
  CHECK_EQ(device.arena().used_bytes(), std::size_t{0});
}

TEST(an_interrupted_flush_loses_nothing) {
  Runtime runtime({.memory_bytes = 64 * kMebi});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream& stream = device.new_stream(0);
  Block* block = allocator.allocate(40 * kMebi, stream);
  void* const address = CachingAllocator::address(block);
  Held held(stream);
  stream.enqueue("task", [] {});
  allocator.free(block);
  runtime.on_host_wait = [] { throw std::runtime_error("Ctrl-C"); };
  CHECK_THROWS(std::runtime_error, "Ctrl-C", allocator.empty_cache());
  CHECK_THROWS(std::runtime_error, "Ctrl-C", allocator.allocate(30 * kMebi, device.default_stream()));
  runtime.on_host_wait = nullptr;
  CHECK(figures(allocator) == figures_of_snapshot(allocator));
  CHECK(figures(allocator) == (Figures{0, 0, 1, 0, 0, 0, 40 * kMebi, 0, 0}));
  block = allocator.allocate(40 * kMebi, stream);
  CHECK(CachingAllocator::address(block) == address);
  allocator.free(block);
}

TEST(a_limit_is_kept_and_named) {
  Runtime runtime({.devices = 2, .memory_bytes = 100 * kMebi});
  Device& device = runtime.device(1);
  auto& allocator = device.allocator();
  CHECK_EQ(allocator.limit(), 100 * kMebi);
  allocator.set_limit(50 * kMebi);
  CHECK_EQ(allocator.limit(), 50 * kMebi);
  Block* block = allocator.allocate(30 * kMebi, device.default_stream());
  CHECK_THROWS(OutOfMemory,
               "sim:1 has a total capacity of 100.00 MiB of which 70.00 MiB is free. 50.00 MiB allowed; 30.00 MiB is allocated",
               allocator.allocate(30 * kMebi, device.default_stream()));
  allocator.set_limit(100 * kMebi);
  allocator.free(allocator.allocate(30 * kMebi, device.default_stream()));
  allocator.free(block);
}

TEST(foreign_streams_and_empty_allocations_are_refused) {
  Runtime runtime({.devices = 2});
  auto& allocator = runtime.device(0).allocator();
  CHECK_THROWS(InvalidArgument, "stream of device 1", allocator.allocate(1, runtime.device(1).default_stream()));
  CHECK_THROWS(InvalidArgument, "0 bytes", allocator.allocate(0, runtime.device(0).default_stream()));
}

TEST(peaks_and_sums_can_be_reset) {
  Runtime runtime({});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Block* small = allocator.allocate(1000, device.default_stream());
  allocator.free(allocator.allocate(40 * kMebi, device.default_stream()));
  CHECK_EQ(allocator.stats().allocated_bytes[0].peak, static_cast<std::int64_t>(40 * kMebi + 1024));
  allocator.reset_peak_stats();
  CHECK_EQ(allocator.stats().allocated_bytes[0].peak, 1024);
  CHECK_EQ(allocator.stats().allocated_bytes[2].peak, 0);
  CHECK_EQ(allocator.stats().num_device_alloc, 2);
  allocator.reset_accumulated_stats();
  CHECK_EQ(allocator.stats().num_device_alloc, 0);
  CHECK_EQ(allocator.stats().allocated_bytes[0].allocated, 0);
  CHECK_EQ(allocator.stats().allocated_bytes[0].current, 1024);
  allocator.free(small);
  CHECK_EQ(allocator.stats().allocated_bytes[0].freed, 1024);
}

TEST(random_use_keeps_the_figures_exact) {
  const unsigned seed = test_seed();
  std::mt19937 random(seed);
  Runtime runtime({.memory_bytes = 600 * kMebi});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream* streams[] = {&device.default_stream(), &device.new_stream(0), &device.new_stream(-1)};
  std::vector<Block*> live;
  for (int step = 0; step < 6000; ++step) {
    if (random() % 100 < 52) {
      const std::size_t scale = std::size_t{1} << random() % 24;
      try {
        // Few different sizes among the large ones, so that free blocks of one size meet.
        const std::size_t bytes = random() % 4 == 0 ? (1 + random() % 3) * 2 * kMebi : 1 + random() % scale;
        live.push_back(allocator.allocate(bytes, *streams[random() % 3]));
      } catch (const OutOfMemory&) {
        for (Block* block : live) allocator.free(block);
        live.clear();
      }
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      if (random() % 4 == 0) allocator.record_stream(live.back(), *streams[random() % 3]);
      allocator.free(live.back());
      live.pop_back();
    }
    if (random() % 8 == 0) streams[random() % 3]->enqueue("task", [] {});
    if (random() % 1000 == 0) allocator.empty_cache();
    if (step % 20 == 0) {
      device.synchronize();
      const auto snapshot = figures_of_snapshot(allocator);
      CHECK(figures(allocator) == snapshot);
      CHECK_EQ(snapshot.allocations, static_cast<std::int64_t>(live.size()));
      CHECK_EQ(device.arena().used_bytes(), static_cast<std::size_t>(snapshot.reserved_bytes));
    }
  }
  for (Block* block : live) allocator.free(block);
  device.synchronize();
  allocator.empty_cache();
  CHECK(figures(allocator) == Figures{});
}

TEST(many_threads_never_get_the_same_bytes) {
  Runtime runtime({.memory_bytes = 256 * kMebi});
  Device& device = runtime.device(0);
  auto& allocator = device.allocator();
  Stream& shared = device.new_stream(0);
  std::vector<std::thread> hosts;
  for (unsigned host = 0; host < 4; ++host) {
    hosts.emplace_back([&, host] {
      std::mt19937 random(host);
      Stream& user = device.new_stream(0);
      for (int i = 0; i < 800; ++i) {
        const std::size_t bytes = 1 + random() % (i % 10 == 0 ? 8 * kMebi : 4 * kKibi);
        Block* block = allocator.allocate(bytes, shared);
        auto* const data = static_cast<unsigned char*>(CachingAllocator::address(block));
        data[0] = data[bytes - 1] = static_cast<unsigned char>(host);
        // Held until the stream has looked at it, by record_stream alone.
        user.enqueue("look", [data, bytes, host] { CHECK(data[0] == host && data[bytes - 1] == host); });
        allocator.record_stream(block, user);
        if (random() % 2) {
          allocator.free(block);
        } else {
          user.enqueue("free", [&allocator, block] { allocator.free(block); });
        }
      }
      user.synchronize();
    });
  }
  for (auto& host : hosts) host.join();
  device.synchronize();
  allocator.empty_cache();
  CHECK(figures(allocator) == Figures{});
}
