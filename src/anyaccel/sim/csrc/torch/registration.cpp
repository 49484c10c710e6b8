#include "torch/registration.h"

#include <c10/core/DeviceType.h>
#include <dlfcn.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <string>
#include <utility>

#include "torch/allocator.h"
#include "torch/guard.h"
#include "torch/hooks.h"
#include "torch/pinned.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

/// The library that the class of `object` comes from: its first word points at the virtual functions.
std::string library_of(const void* object) {
  Dl_info library{};
  const auto known = dladdr(*static_cast<void* const*>(object), &library);
  return known && library.dli_fname ? library.dli_fname : "an unknown library";
}

void check_place_is_free() {
  constexpr auto kAdvice = " A process can have one such device: run without the other one, or without anyaccel.sim.";
  const auto name = c10::get_privateuse1_backend();
  TORCH_CHECK(name == "privateuseone" || name == kDeviceName,
              "torch's place for a device from outside (PrivateUse1) is taken: it is named '", name, "'.", kAdvice);
  const auto* guard = c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kDeviceType)].load();
  TORCH_CHECK(!guard, "torch's place for a device from outside (PrivateUse1) is taken: ", library_of(guard),
              " has registered a device guard.", kAdvice);
  TORCH_CHECK(!at::isPrivateUse1HooksRegistered(),
              "torch's place for a device from outside (PrivateUse1) is taken: ", library_of(&at::detail::getPrivateUse1Hooks()),
              " has registered hooks.", kAdvice);
}

}  // namespace

void install(driver::Options options) {
  TORCH_CHECK(!started(), "The ", kDeviceName, " device was started already, and a process can start it only once.");
  check_place_is_free();
  // Whatever may throw comes first: what follows start() only stores pointers.
  auto* const its_guard = guard();
  auto* const its_hooks = hooks();
  auto* const its_allocator = allocator();
  auto* const its_pinned_allocator = pinned_allocator();
  start(std::move(options));
  // torch.accelerator's waits do nothing before a device is initialised, and this one needs no initialisation.
  torch::utils::set_requires_device_init(kDeviceType, false);
  c10::SetAllocator(kDeviceType, its_allocator);
  at::setHostAllocator(kDeviceType, its_pinned_allocator);
  at::RegisterPrivateUse1HooksInterface(its_hooks);
  c10::impl::registerDeviceGuard(kDeviceType, its_guard);
}

}  // namespace anyaccel::sim
