#pragma once
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace anyaccel::sim {

/// The thread state that a kernel expects, whichever thread runs it: no gradients, no autocast, no modes of the caller.
class KernelScope {
 public:
  KernelScope() : no_grad_(false), keys_(state()) {}

 private:
  static c10::impl::LocalDispatchKeySet state() {
    c10::impl::PODLocalDispatchKeySet plain{};
    plain.set_included(c10::default_included_set);
    plain.set_excluded(c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    return c10::impl::LocalDispatchKeySet(plain);
  }

  c10::AutoGradMode no_grad_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

}  // namespace anyaccel::sim
