"""Operators that a program brings along: a kernel for "sim" runs at the call, on the host, and a kernel for "cpu" on the stream."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import pytest
import torch
from tests.helpers import run_python
from torch import Tensor

import anyaccel as acc

pytestmark = pytest.mark.sim

# opcheck's fourth test (test_autograd_registration) knows three device types by name, and this is none of them.
CHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
_names = itertools.count()


@pytest.fixture(autouse=True)
def healthy():
    yield
    acc.sim.reset_errors()


def fresh_name() -> str:
    """An operator lives as long as the process: every test makes its own."""
    return f"anyaccel_test::operator_{next(_names)}"


class Scale:
    """y = x * factor as an operator of one's own, which notes what its kernel was called with and on which thread."""

    def __init__(self, kernel_for: str, *, fake: bool = True) -> None:
        self.calls: list[tuple[str, threading.Thread]] = []

        @torch.library.custom_op(fresh_name(), mutates_args=(), device_types=kernel_for)
        def scale(x: Tensor, factor: float) -> Tensor:
            self.calls.append((x.device.type, threading.current_thread()))
            return x * factor

        def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.factor = inputs[1]

        if fake:
            scale.register_fake(lambda x, factor: torch.empty_like(x))
        scale.register_autograd(lambda ctx, grad: (scale(grad, ctx.factor), None), setup_context=setup)
        self.operator = scale


def host_waits() -> int:
    return sum(acc.sim.stats()["host_waits"].values())


def test_a_kernel_for_the_sim_runs_at_the_call_and_what_it_launches_is_queued() -> None:
    scale = Scale("sim")
    x = torch.ones(3, device="sim")
    torch.accelerator.synchronize()
    stream = torch.accelerator.current_stream()
    with acc.sim.hold(stream):
        y = scale.operator(x, 2.0)
        assert scale.calls == [("sim", threading.current_thread())]
        assert not stream.query()
    assert y.tolist() == [2, 2, 2]


def test_a_kernel_for_the_cpu_runs_on_the_stream() -> None:
    scale = Scale("cpu")
    x = torch.ones(3, device="sim")
    torch.accelerator.synchronize()
    before = host_waits()
    with acc.sim.hold(torch.accelerator.current_stream()):
        y = scale.operator(x, 2.0)
        assert host_waits() == before
        assert not scale.calls
        assert y.device.type == "sim"
        x.fill_(5)  # in order after it
    assert y.tolist() == [2, 2, 2]
    [(device, thread)] = scale.calls
    assert device == "cpu"
    assert thread is not threading.current_thread()


def test_a_kernel_without_a_rule_for_shapes_makes_the_host_wait() -> None:
    scale = Scale("cpu", fake=False)
    x = torch.ones(3, device="sim")
    torch.accelerator.synchronize()
    before = host_waits()
    with torch.no_grad():
        y = scale.operator(x, 2.0)
    assert host_waits() == before + 1
    assert len(scale.calls) == 1
    assert y.tolist() == [2, 2, 2]


@pytest.mark.parametrize("kernel_for", ["cpu", "sim"])
def test_gradients_go_through(kernel_for: str) -> None:
    scale = Scale(kernel_for)
    x = torch.ones(3, device="sim", requires_grad=True)
    scale.operator(x, 3.0).square().sum().backward()
    assert x.grad.tolist() == [18, 18, 18]
    assert len(scale.calls) == 2


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("kernel_for", ["cpu", "sim"])
def test_opcheck_finds_nothing(kernel_for: str) -> None:
    scale = Scale(kernel_for)
    torch.library.opcheck(scale.operator, (torch.ones(3, device="sim", requires_grad=True), 2.0), test_utils=CHECKS)
    torch.library.opcheck(scale.operator, (torch.ones(3, 2, device="sim").t(), 2.0), test_utils=CHECKS)


def test_opcheck_finds_a_wrong_rule_for_shapes() -> None:
    scale = Scale("sim", fake=False)
    scale.operator.register_fake(lambda x, factor: x.new_empty(x.numel() + 1))
    with pytest.raises(Exception, match="test_faketensor failed"):
        torch.library.opcheck(scale.operator, (torch.ones(3, device="sim"), 2.0), test_utils="test_faketensor")


def test_what_breaks_its_own_rule_for_shapes_is_named() -> None:
    scale = Scale("cpu", fake=False)
    scale.operator.register_fake(lambda x, factor: x.new_empty(x.numel() + 1))
    scale.operator(torch.ones(3, device="sim"), 2.0)
    with pytest.raises(torch.AcceleratorError, match=r"(?s)operator_\d+ returned a tensor of shape \[3\].*test_what_breaks_its_own_rule"):
        torch.accelerator.synchronize()


@pytest.mark.parametrize("kernel_for", ["cpu", "sim"])
def test_vmap(kernel_for: str) -> None:
    scale = Scale(kernel_for)
    x = torch.arange(6.0, device="sim").view(3, 2)
    scale.operator.register_vmap(lambda info, in_dims, x, factor: (scale.operator(x, factor), in_dims[0]))
    assert torch.equal(torch.func.vmap(scale.operator, in_dims=(1, None))(x, 2.0), (x * 2).t())
    assert len(scale.calls) == 1


def test_what_a_queued_kernel_raises_comes_with_both_stacks() -> None:
    @torch.library.custom_op(fresh_name(), mutates_args=(), device_types="cpu")
    def fail(x: Tensor) -> Tensor:
        raise LookupError("no such row")

    fail.register_fake(torch.empty_like)

    def the_call() -> Tensor:
        return fail(torch.ones(3, device="sim"))

    the_call()
    with pytest.raises(torch.AcceleratorError, match=r"(?s)LookupError: no such row.*enqueued earlier.*the_call"):
        torch.accelerator.synchronize()
    acc.sim.reset_errors()
    assert Scale("cpu").operator(torch.ones(1, device="sim"), 2.0).item() == 2


def test_what_a_kernel_for_the_sim_raises_is_raised_at_the_call() -> None:
    @torch.library.custom_op(fresh_name(), mutates_args=(), device_types="sim")
    def fail(x: Tensor) -> Tensor:
        raise LookupError("no such row")

    with pytest.raises(LookupError, match="no such row"):
        fail(torch.ones(3, device="sim"))
    torch.accelerator.synchronize()


@pytest.mark.parametrize("kernel_for", ["cpu", "sim"])
def test_arguments_of_all_kinds(kernel_for: str) -> None:
    @torch.library.custom_op(fresh_name(), mutates_args=("into",), device_types=kernel_for)
    def gather(
        parts: list[Tensor], into: Tensor, bias: Tensor | None, sizes: list[int], name: str, dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, list[Tensor]]:
        assert (sizes, name, dtype) == ([1, 2], "name", torch.float64)
        assert device.type == into.device.type
        total = sum(parts[1:], parts[0].clone())
        into.copy_(total)
        return total.to(dtype), [part + 1 for part in parts]

    @gather.register_fake
    def _(
        parts: list[Tensor], into: Tensor, bias: Tensor | None, sizes: list[int], name: str, dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, list[Tensor]]:
        return into.new_empty(3, dtype=dtype), [torch.empty_like(part) for part in parts]

    parts = [torch.full((3,), float(i), device="sim") for i in range(3)]
    into = torch.zeros(3, device="sim")
    torch.accelerator.synchronize()
    before = host_waits()
    with acc.sim.hold():
        total, more = gather(parts, into, None, [1, 2], "name", torch.float64, torch.device("sim:0"))
        assert host_waits() == before
    assert total.dtype == torch.float64
    assert total.tolist() == into.tolist() == [3, 3, 3]
    assert [each.tolist() for each in more] == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]


def test_a_kernel_whose_shapes_depend_on_the_data_makes_the_host_wait() -> None:
    @torch.library.custom_op(fresh_name(), mutates_args=(), device_types="cpu")
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]

    positive.register_fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))
    assert positive(torch.tensor([-1.0, 2.0, 3.0], device="sim")).tolist() == [2, 3]


def test_a_kernel_that_is_registered_later_takes_over() -> None:
    scale = Scale("cpu")
    x = torch.ones(2, device="sim")
    assert scale.operator(x, 2.0).tolist() == [2, 2]
    scale.operator.register_kernel("sim", lambda x, factor: x * factor + 1)
    assert scale.operator(x, 2.0).tolist() == [3, 3]
    assert scale.operator(x.cpu(), 2.0).tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")
def test_an_operator_of_torch_replaced_for_the_sim() -> None:
    library = torch.library.Library("aten", "IMPL")
    calls = []

    def hypot(x: Tensor, y: Tensor) -> Tensor:
        calls.append(x.device.type)
        return (x * x + y * y).sqrt()

    try:
        library.impl("hypot", hypot, "PrivateUse1")
        assert torch.hypot(torch.full((2,), 3.0, device="sim"), torch.full((2,), 4.0, device="sim")).tolist() == [5, 5]
    finally:
        library._destroy()
    assert calls == ["sim"]
    assert torch.hypot(torch.full((2,), 3.0, device="sim"), torch.full((2,), 4.0, device="sim")).tolist() == [5, 5]
    assert calls == ["sim"]


def test_waits_of_the_host_let_python_kernels_run() -> None:
    """Each of these would hang if the host kept the GIL while it waits."""
    mebibyte = 2**20
    scale = Scale("cpu")
    x = torch.ones(3, device="sim")

    def queue(count: int) -> Tensor:
        for _ in range(count):
            y = scale.operator(x, 2.0)
        return y

    assert queue(3000).tolist() == [2, 2, 2]  # more than a queue holds
    total = torch.sim.get_device_properties().total_memory
    torch.sim.empty_cache()
    torch.sim.set_per_process_memory_fraction((torch.sim.memory_reserved() + 40 * mebibyte) / total)
    try:
        for _ in range(5):
            used = torch.empty(24 * mebibyte, dtype=torch.uint8, device="sim")
            queue(50)
            used.record_stream(torch.Stream("sim"))
            del used
            torch.empty(32 * mebibyte, dtype=torch.uint8, device="sim")  # fits only once that memory has come back
    finally:
        torch.sim.set_per_process_memory_fraction(1.0)
    queue(50)
    torch.sim.empty_cache()
    queue(50)
    acc.sim.reset_errors()
    queue(50)
    torch.accelerator.current_stream().synchronize()
    assert len(scale.calls) == 3000 + 5 * 50 + 3 * 50


def test_python_kernels_may_be_pending_at_exit() -> None:
    program = """
        import torch
        @torch.library.custom_op("anyaccel_test::slow", mutates_args=(), device_types="cpu")
        def slow(x: torch.Tensor) -> torch.Tensor:
            sum(range(100_000))
            return x.clone()
        slow.register_fake(torch.empty_like)
        x = torch.ones(3, device="sim")
        for _ in range(300):
            slow(x)
        print("done")
    """
    result = run_python(program, {"ANYACCEL_SIM": "1"})
    assert result.stdout.split() == ["done"]
    assert not result.stderr


EXTENSION = r"""
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

namespace {

// What the device runs: its processors are those of the host, so that a kernel for the CPU is a kernel for it.
at::Tensor scale(const at::Tensor& x, double factor) {
  TORCH_CHECK(factor >= 0, "The factor must not be negative.");
  auto result = at::empty_like(x);
  const auto* from = x.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * static_cast<float>(factor);
  return result;
}

at::Tensor scale_shape(const at::Tensor& x, double) { return at::empty_like(x); }

// What the host runs: it launches, as the kernels of any accelerator do.
at::Tensor add_on_a_stream_of_its_own(const at::Tensor& x, double number) {
  const auto current = at::accelerator::getCurrentStream(x.device().index());
  const c10::impl::VirtualGuardImpl guard(x.device().type());
  const auto own = guard.getNewStream(x.device());
  c10::Event before(x.device().type()), after(x.device().type());
  before.record(current);
  before.block(own);
  at::accelerator::setCurrentStream(own);
  auto result = at::add(x, number);
  after.record(own);
  after.block(current);
  at::accelerator::setCurrentStream(current);
  guard.recordDataPtrOnStream(result.storage().data_ptr(), current);
  return result;
}

std::vector<std::int64_t> state() {
  const auto index = at::accelerator::getDeviceIndex();
  return {static_cast<std::int64_t>(at::accelerator::getAccelerator().value()), at::accelerator::deviceCount(), index,
          at::accelerator::getCurrentStream(index).id()};
}

void set_device(std::int64_t index) { at::accelerator::setDeviceIndex(static_cast<c10::DeviceIndex>(index)); }
void synchronize(std::int64_t index) { at::accelerator::synchronizeDevice(static_cast<c10::DeviceIndex>(index)); }

}  // namespace

TORCH_LIBRARY(anyaccel_test_extension, m) {
  m.def("scale(Tensor x, float factor) -> Tensor", {at::Tag::pt2_compliant_tag});
  m.def("add(Tensor x, float number) -> Tensor");
  m.def("state() -> int[]", &state);
  m.def("set_device(int index) -> ()", &set_device);
  m.def("synchronize(int index) -> ()", &synchronize);
}

TORCH_LIBRARY_IMPL(anyaccel_test_extension, CPU, m) { m.impl("scale", &scale); }
TORCH_LIBRARY_IMPL(anyaccel_test_extension, Meta, m) { m.impl("scale", &scale_shape); }
TORCH_LIBRARY_IMPL(anyaccel_test_extension, PrivateUse1, m) { m.impl("add", &add_on_a_stream_of_its_own); }
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The C++ above, compiled as a user of torch does it."""
    from torch.utils import cpp_extension

    name = "anyaccel_test_extension"
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name  # one for all workers: torch has a lock there
    folder.mkdir(exist_ok=True)
    # Not optimised, and without torch/extension.h: it takes half a minute to compile, what is needed here a fifth.
    cpp_extension.load_inline(
        name, EXTENSION, extra_cflags=["-O0"], build_directory=str(folder), is_python_module=False, no_implicit_headers=True, use_pch=False
    )
    return torch.ops.anyaccel_test_extension


def test_a_cpp_kernel_for_the_cpu_is_a_task_of_its_own(extension: Any) -> None:
    x = torch.ones(3, device="sim")
    torch.accelerator.synchronize()
    before = host_waits()
    with acc.sim.hold():
        y = extension.scale(x, 2.0)
        x.fill_(9)
        assert host_waits() == before
        assert not torch.accelerator.current_stream().query()
    assert y.tolist() == [2, 2, 2]
    torch.library.opcheck(extension.scale.default, (x, 2.0), test_utils=("test_schema", "test_faketensor"))
    extension.scale(x, -1.0)
    with pytest.raises(torch.AcceleratorError, match=r"(?s)must not be negative.*anyaccel_test_extension::scale.*test_a_cpp_kernel"):
        torch.accelerator.synchronize()


def test_a_cpp_kernel_for_the_sim_launches(extension: Any) -> None:
    x = torch.zeros(3, device="sim:1")
    current = torch.accelerator.current_stream(1)
    torch.accelerator.synchronize(1)
    with acc.sim.hold(current):
        x.fill_(1)
        y = extension.add(x, 2.0)
        assert torch.accelerator.current_stream(1) == current
        assert not current.query()
    assert y.tolist() == [3, 3, 3]
    with pytest.raises(NotImplementedError, match="CPU"):
        extension.add(x.cpu(), 2.0)


def test_cpp_and_python_share_device_and_stream(extension: Any) -> None:
    side = torch.Stream("sim:2")
    with acc.stream(side):
        accelerator, count, index, stream = extension.state()
        assert (count, index, stream) == (acc.device_count(), 2, side.stream_id)
        assert accelerator == torch._C._autograd.DeviceType.PrivateUse1.value
    try:
        extension.set_device(1)
        assert torch.accelerator.current_device_index() == 1
        x = torch.zeros(3, device="sim")
        x.add_(1)
        extension.synchronize(1)
        assert torch.accelerator.current_stream(1).query()
    finally:
        extension.set_device(0)
    before = host_waits()
    extension.synchronize(0)
    assert host_waits() == before + 1
