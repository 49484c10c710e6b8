#pragma once
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace anyaccel::driver {

/// Work for a stream: a move-only `void()` callable, kept in place when it fits.
class Task {
 public:
  static constexpr std::size_t kRoom = 96;

  Task() noexcept = default;

  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Task>>>
  Task(F&& callable) {  // NOLINT: any callable is a task
    using Callable = std::decay_t<F>;
    if constexpr (sizeof(Callable) <= kRoom && alignof(Callable) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<Callable>) {
      new (room_) Callable(std::forward<F>(callable));
      kind_ = &kInPlace<Callable>;
    } else {
      *reinterpret_cast<Callable**>(room_) = new Callable(std::forward<F>(callable));
      kind_ = &kOnHeap<Callable>;
    }
  }

  Task(Task&& other) noexcept : kind_(std::exchange(other.kind_, nullptr)) {
    if (kind_) kind_->move(room_, other.room_);
  }

  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      kind_ = std::exchange(other.kind_, nullptr);
      if (kind_) kind_->move(room_, other.room_);
    }
    return *this;
  }

  ~Task() { reset(); }

  explicit operator bool() const noexcept { return kind_ != nullptr; }

  void operator()() { kind_->run(room_); }

  void reset() noexcept {
    if (kind_) std::exchange(kind_, nullptr)->drop(room_);
  }

 private:
  struct Kind {
    void (*run)(void* room);
    void (*move)(void* to, void* from) noexcept;
    void (*drop)(void* room) noexcept;
  };

  template <class C>
  static constexpr Kind kInPlace{[](void* room) { (*static_cast<C*>(room))(); },
                                 [](void* to, void* from) noexcept {
                                   new (to) C(std::move(*static_cast<C*>(from)));
                                   static_cast<C*>(from)->~C();
                                 },
                                 [](void* room) noexcept { static_cast<C*>(room)->~C(); }};

  template <class C>
  static constexpr Kind kOnHeap{[](void* room) { (**static_cast<C**>(room))(); },
                                [](void* to, void* from) noexcept { *static_cast<C**>(to) = *static_cast<C**>(from); },
                                [](void* room) noexcept { delete *static_cast<C**>(room); }};

  const Kind* kind_ = nullptr;
  alignas(std::max_align_t) std::byte room_[kRoom];
};

}  // namespace anyaccel::driver
