#include "driver/stream.h"

#include <string>
#include <thread>
#include <utility>

#include "driver/runtime.h"

namespace anyaccel::driver {

Stream::Stream(Device& device, std::int64_t id, int priority) noexcept
    : runtime_(device.runtime()), device_(device), id_(id), priority_(priority), queue_(device.chunks()) {}

void Stream::enqueue(const char* name, Task task) {
  runtime_.use();
  std::unique_lock lock(mutex_);
  if (tasks_appended_ >= room_until_) wait_for_room(lock);
  const auto sequence = tasks_appended_;
  // Before the push: a worker may begin it at once.
  if (Trace* trace = runtime_.observer()) trace->enqueued(*this, name, sequence);
  queue_.push(name, std::move(task));
  ++tasks_appended_;
  publish(lock);
}

void Stream::publish(std::unique_lock<std::mutex>& lock) {
  const bool runnable = state_ == State::kResting && held_.load(std::memory_order_relaxed) == 0;
  if (runnable) state_ = State::kActive;
  const bool listed = std::exchange(listed_, true);
  lock.unlock();
  if (!listed) device_.list(*this);
  if (runnable) runtime_.scheduler().runnable(*this);
}

bool Stream::has_room() noexcept {
  const std::lock_guard lock(mutex_);
  return find_room();
}

bool Stream::find_room() noexcept {
  room_until_ = tasks_started_.load() + kCapacity;
  return tasks_appended_ < room_until_;
}

void Stream::wait_for_room(std::unique_lock<std::mutex>& lock) {
  struct Blocked {
    std::atomic<int>& count;
    explicit Blocked(std::atomic<int>& hosts) : count(hosts) { ++count; }
    ~Blocked() { --count; }
  } const blocked(blocked_hosts_);
  while (!find_room()) {
    if (inside_task()) {
      room_until_ = tasks_appended_ + 1;
      return;
    }
    if (held_.load() != 0) {
      throw QueueFull("Cannot append to stream " + std::to_string(id_) + " of device " + std::to_string(device_.index()) +
                      ": it is held and " + std::to_string(kCapacity) +
                      " tasks are waiting, so a place in its queue will never come free. Release it, or enqueue less while it is held.");
    }
    lock.unlock();
    runtime_.wait_for_room(*this);
    lock.lock();
  }
}

void Stream::record(Event& event) {
  auto signal = record();
  const std::lock_guard lock(event.mutex_);
  event.current_ = std::move(signal);
}

std::shared_ptr<Signal> Stream::record() { return append_signal(false); }

std::shared_ptr<Signal> Stream::mark() { return append_signal(true); }

std::shared_ptr<Signal> Stream::append_signal(bool even_if_held) {
  runtime_.use();
  auto signal = std::make_shared<Signal>(*this);
  std::unique_lock lock(mutex_);
  if (Trace* trace = runtime_.observer()) trace->recorded(*this, *signal);
  if (completed() && (even_if_held || held_.load(std::memory_order_relaxed) == 0)) {
    signal->stamp();
    signal->complete();  // Nobody else knows it yet, so nobody is parked on it.
    return signal;
  }
  queue_.push(Item::Kind::kRecord, std::shared_ptr<Signal>(signal));
  publish(lock);
  return signal;
}

void Stream::wait(const Event& event) {
  runtime_.check_usable();
  wait(event.current());
}

void Stream::wait(std::shared_ptr<Signal> signal) {
  runtime_.use();
  if (!signal) return;
  std::unique_lock lock(mutex_);
  if (Trace* trace = runtime_.observer()) trace->waits(*this, *signal);
  // What is done, and what this queue reaches earlier anyhow, holds nothing up.
  if (signal->done() || &signal->stream() == this) return;
  queue_.push(Item::Kind::kWait, std::move(signal));
  publish(lock);
}

bool Stream::query() {
  runtime_.check_usable();
  if (!completed()) runtime_.poll();
  return completed();
}

bool Stream::completed() const noexcept {
  if (!queue_.empty()) return false;
  // The last entry's signal becomes done within nanoseconds; both must say the same.
  while (reaching_.load(std::memory_order_acquire)) std::this_thread::yield();
  return true;
}

void Stream::synchronize() { runtime_.wait(*mark()); }

void Stream::hold() {
  runtime_.use();
  {
    const std::lock_guard lock(mutex_);
    ++held_;
  }
  // They must learn that there will be no room.
  if (blocked_hosts_.load() != 0) runtime_.waiting_room().wake(this);
}

void Stream::release() {
  runtime_.check_not_forked();
  std::unique_lock lock(mutex_);
  if (held_.load(std::memory_order_relaxed) == 0) {
    throw InvalidArgument("Cannot release stream " + std::to_string(id_) + " of device " + std::to_string(device_.index()) +
                          ": it is not held. Call release() once for each hold().");
  }
  if (--held_ == 0 && state_ == State::kResting && pending()) publish(lock);
}

bool Stream::unlist_if_completed() noexcept {
  const std::lock_guard lock(mutex_);
  if (!completed()) return false;
  listed_ = false;
  return true;
}

void Stream::drop() noexcept {
  while (queue_.front()) queue_.pop();
}

}  // namespace anyaccel::driver
