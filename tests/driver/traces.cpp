#include <map>
#include <mutex>

#include "common.h"

namespace {

/// Writes down what it hears, in the order in which it hears it.
class Listener : public Trace {
 public:
  void enqueued(Stream&, const char* name, std::uint64_t sequence) override { add("enqueued", name, sequence); }
  void began(Stream&, const char* name, std::uint64_t sequence) override { add("began", name, sequence); }
  void ended(Stream&, const char* name, std::uint64_t sequence) override { add("ended", name, sequence); }
  void recorded(Stream&, const Signal&) override { add("recorded"); }
  void waits(Stream&, const Signal&) override { add("waits"); }
  void host_waited(const Signal&) override { add("host_waited"); }
  void allocated(Stream&, const void*, std::size_t bytes) override { add("allocated", "", bytes); }
  void freed(Stream&, const void*, std::size_t bytes) override { add("freed", "", bytes); }
  void used_on(Stream&, const void*) override { add("used_on"); }

  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(heard_, {});
  }

 private:
  void add(const std::string& point, const std::string& name = "", std::uint64_t number = 0) {
    const std::lock_guard lock(mutex_);
    heard_.push_back(point + (name.empty() && number == 0 ? "" : " " + name + std::to_string(number)));
  }

  std::mutex mutex_;
  std::vector<std::string> heard_;
};

using Heard = std::vector<std::string>;

}  // namespace

TEST(an_observer_hears_every_point_in_order) {
  Listener listener;
  Runtime runtime({.schedule = "serial"});
  runtime.trace = &listener;
  Device& device = runtime.device(0);
  Stream &stream = device.new_stream(0), &other = device.new_stream(0);
  stream.enqueue("a", [] {});
  stream.enqueue("b", [] {});
  CHECK(listener.take() == Heard({"enqueued a0", "began a0", "ended a0", "enqueued b1", "began b1", "ended b1"}));
  other.wait(stream.record());
  CHECK(listener.take() == Heard({"recorded", "waits"}));
  stream.synchronize();
  CHECK(listener.take() == Heard({"recorded", "host_waited"}));
  Block* block = device.allocator().allocate(1000, stream);
  device.allocator().record_stream(block, other);
  device.allocator().free(block);
  CHECK(listener.take() == Heard({"allocated 1024", "used_on", "freed 1024", "recorded"}));
  runtime.trace = nullptr;
  stream.enqueue("c", [] {});
  CHECK(listener.take().empty());
}

TEST(an_observer_hears_the_end_of_tasks_that_throw_or_are_skipped) {
  Listener listener;
  Runtime runtime({});
  runtime.trace = &listener;
  Stream& stream = runtime.device(0).default_stream();
  stream.hold();
  stream.enqueue("throws", [] { throw std::runtime_error("broken"); });
  stream.enqueue("skipped", [] {});
  stream.release();
  CHECK_THROWS(std::runtime_error, "broken", stream.synchronize());
  const auto heard = listener.take();
  CHECK(std::find(heard.begin(), heard.end(), "ended throws0") != heard.end());
  CHECK(std::find(heard.begin(), heard.end(), "began skipped1") == heard.end());
  CHECK(std::find(heard.begin(), heard.end(), "ended skipped1") != heard.end());
}

TEST(an_observer_hears_that_the_host_waited_for_each_used_stream_of_a_device) {
  Listener listener;
  Runtime runtime({.schedule = "serial"});
  runtime.trace = &listener;
  Device& device = runtime.device(0);
  device.new_stream(0).enqueue("a", [] {});
  device.new_stream(0).enqueue("b", [] {});
  listener.take();
  device.synchronize();
  CHECK(listener.take() == Heard({"recorded", "recorded", "host_waited", "host_waited"}));
  // What the driver waits for by itself is no order that a program may rely on.
  device.allocator().free(device.allocator().allocate(1, device.default_stream()));
  device.default_stream().enqueue("c", [] {});
  listener.take();
  device.allocator().empty_cache();
  for (const auto& point : listener.take()) CHECK(point != "host_waited");
}
