// The consumer's side of Stream: what happens when a scheduler lets it advance.
#include <utility>

#include "driver/runtime.h"
#include "driver/stream.h"

namespace anyaccel::driver {

namespace {

thread_local int tasks_on_this_thread = 0;

struct InsideTask {
  InsideTask() noexcept { ++tasks_on_this_thread; }
  ~InsideTask() { --tasks_on_this_thread; }
};

}  // namespace

bool Stream::inside_task() noexcept { return tasks_on_this_thread != 0; }

bool Stream::advance() noexcept {
  if (held_.load(std::memory_order_relaxed) != 0 && rest()) return false;
  Item* item = queue_.front();
  while (!item) {
    if (rest()) return false;
    item = queue_.front();
  }
  switch (item->kind) {
    case Item::Kind::kTask:
      run(*item);
      return true;
    case Item::Kind::kRecord:
      reach(*item);
      return true;
    case Item::Kind::kWait:
      return pass(*item);
  }
  return false;
}

bool Stream::rest() noexcept {
  const std::lock_guard lock(mutex_);
  const bool empty = queue_.empty();
  if (!empty && held_.load(std::memory_order_relaxed) == 0) return false;
  if (empty) queue_.shrink();
  state_ = State::kResting;
  return true;
}

void Stream::run(Item& item) noexcept {
  const auto sequence = tasks_started_.load(std::memory_order_relaxed);
  tasks_started_.store(sequence + 1);
  if (blocked_hosts_.load() != 0) runtime_.waiting_room().wake(this);
  const char* const name = item.name;
  Trace* const trace = runtime_.observer();
  {
    const InsideTask inside;
    if (!device_.failed()) {
      if (trace) trace->began(*this, name, sequence);
      try {
        item.task();
      } catch (...) {
        device_.fail(std::current_exception());
      }
    }
    item.task.reset();
  }
  if (trace) trace->ended(*this, name, sequence);
  queue_.pop();
}

void Stream::reach(Item& item) noexcept {
  const auto signal = std::move(item.signal);
  signal->stamp();
  reaching_.store(true, std::memory_order_relaxed);
  queue_.pop();
  Stream* parked = signal->complete();
  reaching_.store(false, std::memory_order_release);
  resume_all(parked);
}

bool Stream::pass(Item& item) noexcept {
  if (!item.signal->done()) {
    {
      const std::lock_guard lock(mutex_);
      state_ = State::kParked;
    }
    // Once parked, another thread may run it on: nothing of it may be touched any more.
    if (item.signal->park(*this)) return false;
    const std::lock_guard lock(mutex_);
    state_ = State::kActive;
  }
  queue_.pop();
  return true;
}

void Stream::resume() noexcept {
  {
    const std::lock_guard lock(mutex_);
    const bool held = held_.load(std::memory_order_relaxed) != 0;
    state_ = held ? State::kResting : State::kActive;
    if (held) return;
  }
  runtime_.scheduler().runnable(*this);
}

void Stream::resume_all(Stream* first) noexcept {
  while (first) {
    Stream* next = std::exchange(first->next_parked_, nullptr);
    std::exchange(first, next)->resume();
  }
}

}  // namespace anyaccel::driver
