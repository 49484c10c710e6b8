// Operators that programs call so often that the host's time matters: their arguments go straight into a call, over no stack of boxed
// values. What is not known yet of a call, or cannot be, takes the boxed way.
#include "torch/hot.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/zero_ops.h>

#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "torch/call.h"
#include "torch/fallback.h"
#include "torch/plan.h"

namespace anyaccel::sim {
namespace {

/// From fresh results, or from the values that a boxed kernel left, to what the operator returns.
template <class Return>
struct Returned;

template <>
struct Returned<void> {
  template <class Arguments>
  static void from(c10::IValue*, const Arguments&) {}
};

template <>
struct Returned<at::Tensor> {
  template <class Arguments>
  static at::Tensor from(c10::IValue* results, const Arguments&) {
    return std::move(*results).toTensor();
  }
};

template <>
struct Returned<std::vector<at::Tensor>> {
  template <class Arguments>
  static std::vector<at::Tensor> from(c10::IValue* results, const Arguments&) {
    return std::move(*results).toTensorVector();
  }
};

/// The argument that is written comes first in operators that return it.
template <>
struct Returned<at::Tensor&> {
  template <class Arguments>
  static at::Tensor& from(c10::IValue*, const Arguments& arguments) {
    return std::get<0>(arguments);
  }
};

template <class... Tensors>
struct Returned<std::tuple<Tensors...>> {
  template <class Arguments>
  static std::tuple<Tensors...> from(c10::IValue* results, const Arguments&) {
    return take(results, std::index_sequence_for<Tensors...>());
  }
  template <std::size_t... I>
  static std::tuple<Tensors...> take(c10::IValue* results, std::index_sequence<I...>) {
    return {std::move(results[I]).toTensor()...};
  }
};

template <class Op, class Schema = typename Op::schema>
struct Hot;

template <class Op, class Return, class... Arguments>
struct Hot<Op, Return(Arguments...)> {
  static Return run(Arguments... arguments) {
    static const Plan& plan = plan_of(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name));
    const std::tuple<Arguments&...> all(arguments...);
    auto call = std::make_unique<Call>(plan.op.schema(), arguments...);
    Values results;
    if (start(plan, call, results)) return Returned<Return>::from(results.data(), all);
    torch::jit::Stack stack;
    (stack.emplace_back(arguments), ...);
    fallback(plan.op, &stack);
    return Returned<Return>::from(stack.data(), all);
  }
};

template <class Op>
std::pair<const std::string, torch::CppFunction (*)()> hot() {
  std::string name = Op::name;
  if (*Op::overload_name) name += std::string(".") + Op::overload_name;
  return {name, [] { return torch::CppFunction(TORCH_FN(Hot<Op>::run)); }};
}

}  // namespace

std::optional<torch::CppFunction> hot_kernel(const c10::OperatorName& op) {
  static const std::unordered_map<std::string, torch::CppFunction (*)()> kernels{
      hot<at::_ops::add_Tensor>(),
      hot<at::_ops::add__Tensor>(),
      hot<at::_ops::sub_Tensor>(),
      hot<at::_ops::sub__Tensor>(),
      hot<at::_ops::mul_Tensor>(),
      hot<at::_ops::mul__Tensor>(),
      hot<at::_ops::div_Tensor>(),
      hot<at::_ops::div__Tensor>(),
      hot<at::_ops::neg>(),
      hot<at::_ops::abs>(),
      hot<at::_ops::exp>(),
      hot<at::_ops::log>(),
      hot<at::_ops::sqrt>(),
      hot<at::_ops::rsqrt>(),
      hot<at::_ops::reciprocal>(),
      hot<at::_ops::sin>(),
      hot<at::_ops::cos>(),
      hot<at::_ops::tanh>(),
      hot<at::_ops::tanh_backward>(),
      hot<at::_ops::sigmoid>(),
      hot<at::_ops::sigmoid_backward>(),
      hot<at::_ops::relu>(),
      hot<at::_ops::relu_>(),
      hot<at::_ops::threshold_backward>(),
      hot<at::_ops::gelu>(),
      hot<at::_ops::gelu_backward>(),
      hot<at::_ops::silu>(),
      hot<at::_ops::silu_backward>(),
      hot<at::_ops::pow_Tensor_Scalar>(),
      hot<at::_ops::maximum>(),
      hot<at::_ops::minimum>(),
      hot<at::_ops::clamp>(),
      hot<at::_ops::eq_Tensor>(),
      hot<at::_ops::eq_Scalar>(),
      hot<at::_ops::ne_Tensor>(),
      hot<at::_ops::ne_Scalar>(),
      hot<at::_ops::lt_Tensor>(),
      hot<at::_ops::lt_Scalar>(),
      hot<at::_ops::le_Tensor>(),
      hot<at::_ops::le_Scalar>(),
      hot<at::_ops::gt_Tensor>(),
      hot<at::_ops::gt_Scalar>(),
      hot<at::_ops::ge_Tensor>(),
      hot<at::_ops::ge_Scalar>(),
      hot<at::_ops::where_self>(),
      hot<at::_ops::logical_and>(),
      hot<at::_ops::logical_or>(),
      hot<at::_ops::logical_not>(),
      hot<at::_ops::bitwise_and_Tensor>(),
      hot<at::_ops::bitwise_or_Tensor>(),
      hot<at::_ops::bitwise_not>(),
      hot<at::_ops::addcmul>(),
      hot<at::_ops::addcmul_>(),
      hot<at::_ops::addcdiv>(),
      hot<at::_ops::addcdiv_>(),
      hot<at::_ops::lerp_Scalar>(),
      hot<at::_ops::lerp__Scalar>(),
      hot<at::_ops::fill__Scalar>(),
      hot<at::_ops::zero_>(),
      hot<at::_ops::masked_fill_Scalar>(),
      hot<at::_ops::masked_fill__Scalar>(),
      hot<at::_ops::sum>(),
      hot<at::_ops::sum_dim_IntList>(),
      hot<at::_ops::mean>(),
      hot<at::_ops::mean_dim>(),
      hot<at::_ops::amax>(),
      hot<at::_ops::amin>(),
      hot<at::_ops::argmax>(),
      hot<at::_ops::max>(),
      hot<at::_ops::max_dim>(),
      hot<at::_ops::any>(),
      hot<at::_ops::all>(),
      hot<at::_ops::_softmax>(),
      hot<at::_ops::_softmax_backward_data>(),
      hot<at::_ops::_log_softmax>(),
      hot<at::_ops::_log_softmax_backward_data>(),
      hot<at::_ops::cumsum>(),
      hot<at::_ops::native_layer_norm>(),
      hot<at::_ops::native_layer_norm_backward>(),
      hot<at::_ops::nll_loss_forward>(),
      hot<at::_ops::nll_loss_backward>(),
      hot<at::_ops::mm>(),
      hot<at::_ops::addmm>(),
      hot<at::_ops::bmm>(),
      hot<at::_ops::baddbmm>(),
      hot<at::_ops::cat>(),
      hot<at::_ops::index_select>(),
      hot<at::_ops::gather>(),
      hot<at::_ops::index_Tensor>(),
      hot<at::_ops::embedding_dense_backward>(),
      hot<at::_ops::_foreach_add_Scalar>(),
      hot<at::_ops::_foreach_add__Scalar>(),
      hot<at::_ops::_foreach_add_List>(),
      hot<at::_ops::_foreach_add__List>(),
      hot<at::_ops::_foreach_mul_Scalar>(),
      hot<at::_ops::_foreach_mul__Scalar>(),
      hot<at::_ops::_foreach_mul_List>(),
      hot<at::_ops::_foreach_mul__List>(),
      hot<at::_ops::_foreach_addcmul__Scalar>(),
      hot<at::_ops::_foreach_addcdiv__ScalarList>(),
      hot<at::_ops::_foreach_lerp__Scalar>(),
      hot<at::_ops::_foreach_sqrt>(),
      hot<at::_ops::_foreach_div__ScalarList>(),
  };
  const auto place = kernels.find(c10::toString(op));
  return place == kernels.end() ? std::nullopt : std::optional<torch::CppFunction>(place->second());
}

}  // namespace anyaccel::sim
