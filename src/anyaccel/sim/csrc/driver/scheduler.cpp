#include "driver/scheduler.h"

#include <utility>

#include "driver/errors.h"

namespace anyaccel::driver {

namespace {

constexpr std::pair<const char*, std::unique_ptr<Scheduler> (*)(Runtime&)> kSchedules[] = {
    {"threads", make_threads},
    {"serial", make_serial},
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(const std::string& name, Runtime& runtime) {
  std::string known;
  for (const auto& [schedule, make] : kSchedules) {
    if (name == schedule) return make(runtime);
    known += (known.empty() ? "\"" : ", \"") + std::string(schedule) + '"';
  }
  throw InvalidArgument("There is no schedule \"" + name + "\". Choose one of " + known + ".");
}

}  // namespace anyaccel::driver
