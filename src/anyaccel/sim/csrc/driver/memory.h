#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace anyaccel::driver {

/// A device's memory: a fixed range of address space, committed only where it is in use.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 512;

  /// Takes no address space yet.
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A range of `bytes` (a multiple of kAlignment, taken as whole pages), or null where none is left. What it holds is undefined.
  void* allocate(std::size_t bytes);

  /// Gives a range back and its pages to the operating system. Whoever calls has waited for the device.
  void free(void* address, std::size_t bytes) noexcept;

  std::size_t total_bytes() const noexcept { return bytes_; }
  std::size_t used_bytes() const;
  bool contains(const void* address) const noexcept;

 private:
  void reserve();
  std::size_t whole_pages(std::size_t bytes) const noexcept;

  const std::size_t page_bytes_;
  const std::size_t bytes_;
  /// More than bytes_: a device maps its memory in pages, so holes between ranges must not be what makes it run out.
  const std::size_t span_bytes_;

  mutable std::mutex mutex_;
  std::atomic<std::uintptr_t> base_{0};
  std::size_t used_bytes_ = 0;
  std::map<std::uintptr_t, std::size_t> holes_;  ///< address to size
};

}  // namespace anyaccel::driver
