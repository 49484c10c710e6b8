#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "driver/task.h"

namespace anyaccel::driver {

class Signal;

/// One entry of a stream's queue. A task takes the most room, so an entry is exactly two cache lines.
struct Item {
  enum class Kind : std::uint8_t { kTask, kRecord, kWait };

  Item(const char* task_name, Task&& work) noexcept : kind(Kind::kTask), name(task_name), task(std::move(work)) {}
  Item(Kind record_or_wait, std::shared_ptr<Signal>&& what) noexcept : kind(record_or_wait), name(nullptr), signal(std::move(what)) {}
  Item(const Item&) = delete;
  Item& operator=(const Item&) = delete;
  ~Item() {
    if (kind == Kind::kTask) {
      task.~Task();
    } else {
      signal.~shared_ptr();
    }
  }

  const Kind kind;
  const char* const name;
  union {
    Task task;
    std::shared_ptr<Signal> signal;
  };
};

/// A run of entries; a queue is a chain of these.
struct Chunk {
  static constexpr std::size_t kItems = 16;

  Item* at(std::size_t index) noexcept { return reinterpret_cast<Item*>(room) + index; }

  Chunk* next = nullptr;
  alignas(Item) std::byte room[kItems * sizeof(Item)];
};

/// The chunks that no queue needs at the moment, so that an idle stream keeps none.
class ChunkPool {
 public:
  ChunkPool() = default;
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;
  ~ChunkPool();

  Chunk* take();
  void give(Chunk* chunk) noexcept;

 private:
  /// Half a mebibyte; what a burst needed beyond that goes back to the heap.
  static constexpr int kKept = 256;

  std::mutex mutex_;
  Chunk* free_ = nullptr;
  int count_ = 0;
};

/// A first-in first-out queue with one producer and one consumer at a time; the two never wait for each other.
class Queue {
 public:
  explicit Queue(ChunkPool& pool) noexcept : pool_(pool) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();

  /// For the producer.
  template <class... Args>
  void push(Args&&... args) {
    if (tail_index_ == Chunk::kItems) add_chunk();
    new (tail_->at(tail_index_++)) Item(std::forward<Args>(args)...);
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (tail_index_ < Chunk::kItems) {
      // The consumer had these lines last; they come over while the producer does something else.
      const auto* const next = reinterpret_cast<const std::byte*>(tail_->at(tail_index_));
      __builtin_prefetch(next, 1);
      __builtin_prefetch(next + 64, 1);
    }
  }

  /// For the consumer: the oldest entry, which stays in the queue; null if there is none.
  Item* front() noexcept {
    if (popped_.load(std::memory_order_relaxed) == seen_) {
      seen_ = pushed_.load(std::memory_order_acquire);
      if (popped_.load(std::memory_order_relaxed) == seen_) return nullptr;
    }
    if (head_index_ == Chunk::kItems) drop_chunk();
    return head_->at(head_index_);
  }

  /// For the consumer: destroys the oldest entry, then counts it as done.
  void pop() noexcept {
    head_->at(head_index_++)->~Item();
    popped_.store(popped_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// True once everything that was pushed before the call has been popped.
  bool empty() const noexcept {
    const auto pushed = pushed_.load(std::memory_order_acquire);
    return popped_.load(std::memory_order_acquire) >= pushed;
  }

  /// Gives the last chunk back. For whoever is producer and consumer at once, while the queue is empty.
  void shrink() noexcept;

 private:
  void add_chunk();
  void drop_chunk() noexcept;

  // The producer's.
  alignas(64) ChunkPool& pool_;
  Chunk* tail_ = nullptr;
  std::size_t tail_index_ = Chunk::kItems;
  std::atomic<std::uint64_t> pushed_{0};
  // The consumer's, but for head_ while there is no chunk at all.
  alignas(64) Chunk* head_ = nullptr;
  std::size_t head_index_ = 0;
  std::atomic<std::uint64_t> popped_{0};
  std::uint64_t seen_ = 0;  ///< what pushed_ was when the consumer last needed to know
};

}  // namespace anyaccel::driver
