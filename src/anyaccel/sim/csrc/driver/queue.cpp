#include "driver/queue.h"

#include "driver/event.h"

namespace anyaccel::driver {

static_assert(sizeof(Item) == 128);

ChunkPool::~ChunkPool() {
  while (free_) delete std::exchange(free_, free_->next);
}

Chunk* ChunkPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (free_) {
      --count_;
      Chunk* chunk = std::exchange(free_, free_->next);
      chunk->next = nullptr;
      return chunk;
    }
  }
  return new Chunk;
}

void ChunkPool::give(Chunk* chunk) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (count_ < kKept) {
      ++count_;
      chunk->next = std::exchange(free_, chunk);
      return;
    }
  }
  delete chunk;
}

Queue::~Queue() {
  while (front()) pop();
  shrink();
}

void Queue::add_chunk() {
  Chunk* chunk = pool_.take();
  if (tail_) {
    tail_->next = chunk;
  } else {
    head_ = chunk;
    head_index_ = 0;
  }
  tail_ = chunk;
  tail_index_ = 0;
}

void Queue::drop_chunk() noexcept {
  Chunk* drained = std::exchange(head_, head_->next);
  head_index_ = 0;
  pool_.give(drained);
}

void Queue::shrink() noexcept {
  if (!tail_) return;
  pool_.give(tail_);
  head_ = tail_ = nullptr;
  tail_index_ = Chunk::kItems;
}

}  // namespace anyaccel::driver
