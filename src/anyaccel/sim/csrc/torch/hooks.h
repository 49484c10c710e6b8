#pragma once
#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace anyaccel::sim {

/// What torch asks of an accelerator outside of operators. There is one, and it lives for ever.
at::PrivateUse1HooksInterface* hooks();

}  // namespace anyaccel::sim
