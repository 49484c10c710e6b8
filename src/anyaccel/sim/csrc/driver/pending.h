#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "driver/errors.h"
#include "driver/stream.h"

namespace anyaccel::driver {

/// Freed blocks that streams still use, in the order in which each stream gets past them.
///
/// `Block` has a count `pending` of the streams that it waits for. No locks here: the owner has one.
template <class Block>
class PendingBlocks {
 public:
  using Marks = std::vector<std::shared_ptr<Signal>>;

  /// Marks for where `streams` are now. To be called with no lock held: a serial schedule may run tasks in it.
  static Marks marks(const std::vector<Stream*>& streams) {
    Marks marks;
    for (Stream* stream : streams) {
      try {
        marks.push_back(stream->mark());
      } catch (const Stopped&) {
        // Nothing runs any more, so nothing uses the block either.
      }
    }
    return marks;
  }

  /// Keeps `block` until all `marks` are done; false if there are none.
  bool add(Block* block, Marks marks) {
    block->pending = marks.size();
    for (auto& mark : marks) {
      queue_of(mark->stream()).entries.emplace_back(std::move(mark), block);
      ++count_;
    }
    return block->pending != 0;
  }

  bool empty() const noexcept { return count_ == 0; }

  /// Calls `passed(block)` for each block that no stream uses any longer. Looks only at what each stream reaches next.
  template <class Passed>
  void poll(Passed passed) {
    for (std::size_t i = 0; i < queues_.size();) {
      auto& entries = queues_[i].entries;
      while (!entries.empty() && entries.front().first->done()) {
        Block* block = entries.front().second;
        entries.pop_front();
        --count_;
        if (--block->pending == 0) passed(block);
      }
      if (entries.empty()) {
        std::swap(queues_[i], queues_.back());
        queues_.pop_back();
      } else {
        ++i;
      }
    }
  }

 private:
  struct OneStream {
    Stream* stream;
    std::deque<std::pair<std::shared_ptr<Signal>, Block*>> entries;
  };

  OneStream& queue_of(Stream& stream) {
    for (auto& queue : queues_) {
      if (queue.stream == &stream) return queue;
    }
    return queues_.emplace_back(OneStream{&stream, {}});
  }

  std::vector<OneStream> queues_;
  std::size_t count_ = 0;
};

}  // namespace anyaccel::driver
