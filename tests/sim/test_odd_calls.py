"""Calls that few programs make: each gives what the CPU gives, or raises at the call, and leaves the device well."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.helpers import run_python
from torch import Tensor

pytestmark = pytest.mark.sim


@pytest.fixture(autouse=True)
def well() -> Iterator[None]:
    yield
    torch.accelerator.synchronize()


def test_an_operator_that_comes_where_another_one_was() -> None:
    x = torch.arange(3.0, device="sim")
    for turn in range(4):
        with torch.library._scoped_library("tests_odd", "FRAGMENT") as library:
            if turn % 2:
                library.define("in_place(Tensor(a!) x, int a) -> ()")
                library.impl("in_place", lambda x, a: (x.add_(a), None)[1], "CPU")
                library.impl("in_place", lambda x, a: None, "Meta")
                y = x.clone()
                torch.ops.tests_odd.in_place.default(y, 2)
            else:
                library.define("fresh(Tensor x, int a) -> Tensor")
                library.impl("fresh", lambda x, a: x + a, "CPU")
                library.impl("fresh", lambda x, a: torch.empty_like(x), "Meta")
                y = torch.ops.tests_odd.fresh.default(x, 2)
            assert y.tolist() == [2, 3, 4]


def test_an_operator_that_is_defined_anew_with_another_shape() -> None:
    x = torch.arange(3.0, device="sim")
    for size in (1, 2, 1, 2):
        with torch.library._scoped_library("tests_odd", "FRAGMENT") as library:
            library.define("first(Tensor x) -> Tensor")
            library.impl("first", lambda x, size=size: x[:size].clone(), "CPU")
            library.impl("first", lambda x, size=size: x.new_empty(size), "Meta")
            assert torch.ops.tests_odd.first.default(x).tolist() == [0, 1][:size]


def test_a_list_of_millions_of_numbers() -> None:
    with pytest.raises(RuntimeError, match="appears multiple times"):
        torch.ops.aten.sum.dim_IntList(torch.ones(3, 3, device="sim"), [0] * (1 << 23))


def test_the_answer_depends_on_whether_nondeterministic_kernels_only_warn() -> None:
    x, i, v = torch.zeros(3, device="sim"), torch.zeros(2, dtype=torch.int64, device="sim"), torch.ones(2, device="sim")
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x.put_(i, v)
            torch.accelerator.synchronize()
        torch.use_deterministic_algorithms(True)
        with pytest.raises(RuntimeError, match="deterministic implementation"):
            x.put_(i, v)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_meta_kernel_goes_on(stop: type[BaseException]) -> None:
    def meta(x: Tensor) -> Tensor:
        raise stop

    with torch.library._scoped_library("tests_odd", "FRAGMENT") as library:
        library.define(f"stops_by_{stop.__name__}(Tensor x) -> Tensor")
        library.impl(f"stops_by_{stop.__name__}", lambda x: x + 1, "CPU")
        library.impl(f"stops_by_{stop.__name__}", meta, "Meta")
        with pytest.raises(stop):
            getattr(torch.ops.tests_odd, f"stops_by_{stop.__name__}").default(torch.ones(2, device="sim"))


def test_a_broadcast_that_no_memory_holds_is_out_of_the_devices_memory() -> None:
    condition = torch.ones(1, dtype=torch.bool, device="sim").expand(1 << 36)
    for call in (lambda: torch.where(condition, 1.0, 0.0), lambda: condition * 1.0, lambda: torch.logical_not(condition)):
        with pytest.raises(torch.OutOfMemoryError):
            call()


IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "cumsum_": lambda x: x.cumsum_(1),
    "cumprod_": lambda x: x.cumprod_(1),
    "addmm_": lambda x: x.addmm_(x.clone(), x.clone()),
    "add_": lambda x: x.add_(1),
    "relu_": lambda x: x.relu_(),
    "renorm_": lambda x: x.renorm_(2, 0, 1.0),
}


@pytest.mark.parametrize("call", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_writing_over_itself_is_refused_at_the_call(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        call(torch.ones(3, 1).expand(3, 3))
    with pytest.raises(RuntimeError, match="single memory location"):
        call(torch.ones(3, 1, device="sim").expand(3, 3))


DRAWING: dict[str, Callable[[torch.Generator], Tensor]] = {
    "randn": lambda g: torch.randn(4, generator=g),
    "rand": lambda g: torch.rand(4, generator=g),
    "randint": lambda g: torch.randint(5, (4,), generator=g),
    "randperm": lambda g: torch.randperm(4, generator=g),
    "normal_": lambda g: torch.zeros(3).normal_(generator=g),
    "bernoulli_": lambda g: torch.ones(3).bernoulli_(0.5, generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.ones(3), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(5), 2, generator=g),
}


@pytest.mark.parametrize("draw", DRAWING.values(), ids=DRAWING.keys())
def test_the_devices_generator_does_not_fill_tensors_of_the_host(draw: Callable[[torch.Generator], Tensor]) -> None:
    with pytest.raises(RuntimeError, match="generator"):
        draw(torch.Generator("sim"))


def test_what_a_kernel_warns_of_once_it_warns_of() -> None:
    warned = run_python(
        """
        import torch, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.searchsorted(torch.arange(3.0, device="sim"), torch.ones(3, 3, device="sim").t())
            torch.accelerator.synchronize()
        print(len(caught))
        """,
        {"ANYACCEL_SIM": "1"},
    )
    assert warned.stdout.strip() == "1"
