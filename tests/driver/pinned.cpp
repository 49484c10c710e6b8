#include <cstring>

#include "common.h"

TEST(pinned_blocks_are_whole_pages_and_powers_of_two) {
  Runtime runtime({});
  auto& pinned = runtime.pinned();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, 3 * kMebi}) {
    void* const address = pinned.allocate(bytes);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(address) % 4096, std::uintptr_t{0});
    std::memset(address, 1, bytes);
    const auto reserved = pinned.stats().reserved_bytes;
    CHECK((reserved & (reserved - 1)) == 0 && reserved >= static_cast<std::int64_t>(bytes));
    pinned.free(address);
    pinned.empty_cache();
    CHECK_EQ(pinned.stats().reserved_bytes, 0);
  }
}

TEST(pinned_memory_is_known_by_any_address_inside) {
  Runtime runtime({});
  auto& pinned = runtime.pinned();
  char* const block = static_cast<char*>(pinned.allocate(8192));
  char* const other = static_cast<char*>(pinned.allocate(8192));
  int local = 0;
  CHECK(pinned.contains(block));
  CHECK(pinned.contains(block + 8191));
  CHECK(pinned.contains(other + 100));
  CHECK(!pinned.contains(&local));
  CHECK(!pinned.contains(nullptr));
  pinned.free(block);
  CHECK(!pinned.contains(block));
  CHECK(pinned.contains(other));
  pinned.free(other);
}

TEST(pinned_memory_is_handed_out_again_only_after_its_copies) {
  for (const auto& schedule : kSchedules) {
    Runtime runtime({.devices = 2, .schedule = schedule});
    auto& pinned = runtime.pinned();
    Stream &copies = runtime.device(0).default_stream(), &other = runtime.device(1).default_stream();
    char* const block = static_cast<char*>(pinned.allocate(10000));
    Held held(copies), other_held(other);
    copies.enqueue("copy", [] {});
    other.enqueue("copy", [] {});
    pinned.record_stream(block + 500, copies);
    pinned.record_stream(block, other);
    pinned.free(block);
    CHECK_EQ(pinned.stats().allocated_bytes, 16384);
    void* const second = pinned.allocate(10000);
    CHECK(second != block);
    held.release();
    copies.synchronize();
    CHECK_EQ(pinned.stats().allocated_bytes, 32768);
    other_held.release();
    other.synchronize();
    CHECK_EQ(pinned.stats().allocated_bytes, 16384);
    CHECK(pinned.allocate(10000) == block);
    // The uses went with the old allocation.
    pinned.free(block);
    CHECK(pinned.allocate(9000) == block);
    pinned.free(block);
    pinned.free(second);
  }
}

TEST(pinned_memory_counts_what_it_does) {
  Runtime runtime({});
  auto& pinned = runtime.pinned();
  void* const first = pinned.allocate(16384);
  pinned.free(pinned.allocate(32768));
  pinned.free(pinned.allocate(32768));
  CHECK_EQ(pinned.stats().num_alloc, 2);
  CHECK_EQ(pinned.stats().allocated_bytes, 16384);
  CHECK_EQ(pinned.stats().allocated_bytes_peak, 49152);
  CHECK_EQ(pinned.stats().reserved_bytes, 49152);
  pinned.empty_cache();
  CHECK_EQ(pinned.stats().num_free, 1);
  CHECK_EQ(pinned.stats().reserved_bytes, 16384);
  CHECK_EQ(pinned.stats().reserved_bytes_peak, 49152);
  pinned.reset_peak_stats();
  pinned.reset_accumulated_stats();
  CHECK_EQ(pinned.stats().allocated_bytes_peak, 16384);
  CHECK_EQ(pinned.stats().reserved_bytes_peak, 16384);
  CHECK_EQ(pinned.stats().num_alloc, 0);
  pinned.free(first);
}

TEST(pinned_memory_refuses_foreign_addresses) {
  Runtime runtime({});
  int local = 0;
  CHECK_THROWS(InvalidArgument, "not pinned", runtime.pinned().record_stream(&local, runtime.device(0).default_stream()));
  CHECK_THROWS(std::bad_alloc, "", runtime.pinned().allocate(~std::size_t{0}));
}
