#include "torch/capability.h"

#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "torch/kernel_scope.h"

namespace anyaccel::sim {
namespace {

class Silent : public c10::WarningHandler {
  void process(const c10::Warning&) override {}  // complex numbers lose a part on the way, and say so
};

bool cpu_converts(at::ScalarType dtype) {
  try {
    const auto number = at::zeros({1}, at::TensorOptions(at::kDouble));
    return number.to(dtype).to(at::kDouble).defined();
  } catch (const c10::Error&) {
    return false;
  }
}

c10::DeviceCapability probe() {
  const KernelScope scope;
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  c10::DeviceCapability found;
  found.capability_data.capability_bits = 0;
#define ANYACCEL_PROBE(_, name) found.capability_data.supported_scalar_types.has_##name = cpu_converts(at::ScalarType::name);
  AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(ANYACCEL_PROBE)
#undef ANYACCEL_PROBE
  return found;
}

}  // namespace

c10::DeviceCapability capability() {
  static const c10::DeviceCapability answer = probe();
  return answer;
}

}  // namespace anyaccel::sim
