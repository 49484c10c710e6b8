#pragma once
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

namespace anyaccel::sim {

/// Memory for objects of one size that one thread makes and another one ends, as hosts and workers do with all that is in a task.
///
/// Each thread keeps some; they change hands by the batch, so that neither thread waits for the other's cache lines at each object.
template <std::size_t kBytes>
class Pool {
 public:
  static void* take() {
    auto& mine = local();
    if (!mine.list.first) mine.list = shared().take();
    if (!mine.list.first) return ::operator new(kBytes);
    --mine.list.count;
    void* const memory = std::exchange(mine.list.first, mine.list.first->next);
    // Another thread had these lines last; they come over while this one is busy with the object that it takes now.
    for (std::size_t line = 0; mine.list.first && line < kBytes; line += 64) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(mine.list.first) + line, 1);
    }
    return memory;
  }

  /// Makes what this thread keeps end after what is made on it from now on.
  static void outlive() { local(); }

  static void give(void* memory) noexcept {
    auto& mine = local();
    if (mine.list.count >= kBatch) {
      // The older batch goes on, and what was given last stays in this thread's cache.
      if (mine.spare.first) shared().give(mine.spare);
      mine.spare = std::exchange(mine.list, {});
    }
    mine.list.first = new (memory) Free{mine.list.first};
    ++mine.list.count;
  }

 private:
  static constexpr int kBatch = 32;
  static constexpr int kBatchesKept = 64;

  struct Free {
    Free* next;
  };

  struct List {
    Free* first = nullptr;
    int count = 0;

    void release() noexcept {
      while (first) ::operator delete(std::exchange(first, first->next));
      count = 0;
    }
  };

  class Shared {
   public:
    List take() {
      const std::lock_guard lock(mutex_);
      return count_ ? std::exchange(lists_[--count_], {}) : List{};
    }

    void give(List list) noexcept {
      {
        const std::lock_guard lock(mutex_);
        if (count_ < kBatchesKept) {
          lists_[count_++] = list;
          return;
        }
      }
      list.release();
    }

   private:
    std::mutex mutex_;
    List lists_[kBatchesKept];
    int count_ = 0;
  };

  struct Local {
    List list, spare;
    ~Local() {
      list.release();
      spare.release();
    }
  };

  static Shared& shared() {
    static auto* const shared = new Shared;  // leaked: threads may end after the statics
    return *shared;
  }

  static Local& local() {
    thread_local Local local;
    return local;
  }
};

/// What derives from this is made and ended in memory of a pool.
template <class T>
class Pooled {
 public:
  static void* operator new(std::size_t) { return Pool<sizeof(T)>::take(); }
  static void operator delete(void* memory) noexcept { Pool<sizeof(T)>::give(memory); }
};

}  // namespace anyaccel::sim
