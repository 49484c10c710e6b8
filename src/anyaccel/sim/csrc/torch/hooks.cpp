#include "torch/hooks.h"

#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <cstring>

#include "torch/allocator.h"
#include "torch/generator.h"
#include "torch/pinned.h"
#include "torch/runtime.h"

namespace anyaccel::sim {
namespace {

struct SimHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return started(); }

  // Devices need no context: they are ready once there are any. (Autograd remembers the streams of those devices only that answer yes.)
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return index >= 0 && index < deviceCount(); }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override {
    return started() ? static_cast<c10::DeviceIndex>(runtime().device_count()) : c10::DeviceIndex{0};
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchange_device(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return index < 0 ? -1 : exchange_device(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }

  bool isPinnedPtr(const void* address) const override { return runtime().pinned().contains(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* address) const override { return {kDeviceType, device_of(address)}; }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    auto* impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    const auto device = impl->device().index();
    auto& stream = current_stream(device);
    auto data = allocate(bytes, stream);
    if (const auto kept = std::min(bytes, impl->nbytes())) {
      enqueue(stream, "resize_", [to = data.get(), from = impl->data(), kept] { std::memcpy(to, from, kept); });
    }
    impl->set_data_ptr_noswap(std::move(data));
    impl->set_nbytes(bytes);
  }
};

}  // namespace

at::PrivateUse1HooksInterface* hooks() {
  static auto* hooks = new SimHooks;
  return hooks;
}

}  // namespace anyaccel::sim
