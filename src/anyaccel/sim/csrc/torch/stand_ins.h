#pragma once
#include <cstdint>

#include "torch/operands.h"

namespace anyaccel::sim {

/// What a stand-in holds.
enum class StandIn {
  kUsual,  ///< ones, which are also probabilities; but where whole numbers may be indices, zeros
  kOnes,
};

/// CPU tensors of the shapes, types and alias relations of a call's operands, over memory of their own: a CPU kernel that runs over
/// them tells what it does with such arguments. Tensors of the host stand for themselves.
Tensors stand_ins(const Operands& operands, StandIn values);

/// The same, with each dimension cut to a few elements, so that it costs nothing: equal sizes stay equal. On the CPU or on Meta.
Tensors shrunk_stand_ins(const Operands& operands, StandIn values, c10::DeviceType device);

/// How many bytes a kernel works through that is given stand_ins(): those of all elements, however few are in memory, and where it
/// broadcasts those of the result.
double work_on(const Operands& operands, bool broadcasts);

}  // namespace anyaccel::sim
