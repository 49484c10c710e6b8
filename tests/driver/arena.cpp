#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <system_error>

#include "common.h"

TEST(an_arena_hands_out_all_it_has_and_merges_what_comes_back) {
  Arena arena(64 * kMebi);
  CHECK(!arena.contains(&arena));
  std::vector<void*> ranges;
  while (void* range = arena.allocate(kMebi)) ranges.push_back(range);
  CHECK_EQ(ranges.size(), std::size_t{64});
  CHECK_EQ(arena.used_bytes(), arena.total_bytes());
  for (void* range : ranges) {
    CHECK(arena.contains(range));
    CHECK(arena.contains(static_cast<char*>(range) + kMebi - 1));
    *static_cast<int*>(range) = 1;
  }
  CHECK(!arena.allocate(512));
  std::shuffle(ranges.begin(), ranges.end(), std::mt19937(1));
  for (void* range : ranges) arena.free(range, kMebi);
  CHECK_EQ(arena.used_bytes(), std::size_t{0});
  void* const whole = arena.allocate(64 * kMebi);
  CHECK(whole);
  CHECK(!arena.allocate(512));
  CHECK_EQ(*static_cast<int*>(whole), 0);  // The old pages are gone.
  arena.free(whole, 64 * kMebi);
  CHECK(!arena.allocate(64 * kMebi + 512));
  CHECK(!arena.allocate(~std::size_t{0}));
}

TEST(an_arena_keeps_small_ranges_apart) {
  Arena arena(kMebi);
  auto* const first = static_cast<int*>(arena.allocate(512));
  auto* const second = static_cast<int*>(arena.allocate(512));
  CHECK_EQ(reinterpret_cast<std::uintptr_t>(second) % Arena::kAlignment, std::uintptr_t{0});
  *second = 7;
  arena.free(first, 512);
  CHECK_EQ(*second, 7);
  arena.free(second, 512);
}

TEST(holes_between_segments_do_not_use_memory_up) {
  Arena arena(64 * kMebi);
  std::vector<void*> ranges;
  while (void* range = arena.allocate(2 * kMebi)) ranges.push_back(range);
  arena.free(ranges[3], 2 * kMebi);
  arena.free(ranges[9], 2 * kMebi);
  CHECK(arena.allocate(4 * kMebi));
  CHECK(!arena.allocate(512));
}

TEST(sixty_four_devices_have_memory) {
  // The thread sanitizer keeps most of the address space for itself.
  const std::size_t bytes = kSanitized ? kGibi : 16 * kGibi;
  Runtime runtime({.devices = 64, .memory_bytes = bytes});
  for (int index = 0; index < 64; ++index) {
    Device& device = runtime.device(index);
    CHECK_EQ(device.arena().total_bytes(), bytes);
    Block* block = device.allocator().allocate(bytes - 2 * kMebi, device.default_stream());
    auto* const data = static_cast<char*>(CachingAllocator::address(block));
    CHECK(device.arena().contains(data));
    device.default_stream().enqueue("write", [data, bytes] { data[0] = data[bytes - 2 * kMebi - 1] = 1; });
    device.synchronize();
    device.allocator().free(block);
  }
}

TEST(address_space_is_taken_late_and_its_lack_explained) {
  if (kSanitized) return;  // They need address space of their own.
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{2 * kGibi, 2 * kGibi};
    setrlimit(RLIMIT_AS, &limit);
    Runtime runtime({.memory_bytes = 16 * kGibi});
    Device& device = runtime.device(0);
    CHECK_THROWS(std::system_error, "ulimit -v", device.allocator().allocate(1, device.default_stream()));
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}
