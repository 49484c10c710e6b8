"""What torch's database of operators says is wrong is refused by the sim as by the CPU: the same exception, at the call.

But for what is wrong with the elements of a tensor: that belongs to the device, as on a GPU.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.operator_samples import Arguments, Mover, arguments_of, name_of, operators, whole
from torch.utils import _pytree as pytree

import anyaccel as acc

pytestmark = [pytest.mark.sim, pytest.mark.filterwarnings("ignore")]

# What raises something else than on the CPU, or later, and why.
KNOWN = {
    "multinomial": "2^24 categories are too many for the CPU kernel alone, and too much to try at the call",
}


DRAWN = 0.3


@pytest.fixture(autouse=True)
def healthy() -> Iterator[None]:
    yield
    acc.sim.reset_errors()


def error_of(op: Any, arguments: Arguments) -> Exception | None:
    try:
        op(arguments[0], *arguments[1], **arguments[2])
    except Exception as error:
        return error
    return None


def error_of_the_device() -> Exception | None:
    try:
        torch.accelerator.synchronize()
    except torch.AcceleratorError as error:
        acc.sim.reset_errors()
        return error
    return None


def is_about_elements(op: Any, arguments: Arguments) -> bool:
    """True if the CPU takes the same call with other numbers in its tensors."""

    def filled(number: int) -> Arguments:
        return pytree.tree_map(lambda x: torch.full_like(x.detach(), number) if isinstance(x, torch.Tensor) else x, arguments)

    return any(error_of(op, filled(number)) is None for number in (0, 1))


def describe(error: Exception | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}: {error}"[:200]


def faults(op: Any) -> Iterator[str]:
    for index, wrong in enumerate(op.error_inputs("cpu")):
        arguments = arguments_of(wrong.sample_input)
        try:
            given = Mover().move(arguments)
        except NotImplementedError:
            continue  # a sample with a meta tensor
        expected = error_of(op, arguments)
        if expected is None:
            continue
        raised, later = error_of(op, given), error_of_the_device()
        if type(raised) is type(expected) and later is None:
            continue
        if later is not None and raised is None and is_about_elements(op, arguments):
            continue
        yield f"{name_of(op)}, {index}: the CPU raises {describe(expected)}; the sim {describe(raised)}, and later {describe(later)}"


def test_what_is_wrong_is_refused_at_the_call_as_on_the_cpu(seed: int) -> None:
    candidates = [op for op in operators() if op.error_inputs_func is not None]
    rng = random.Random(seed)
    tested = {name_of(op): list(faults(op)) for op in candidates if whole() or name_of(op) in KNOWN or rng.random() < DRAWN}
    assert len(candidates) > 100 and len(tested) > DRAWN * 50
    wrong = [fault for name, found in tested.items() if name not in KNOWN for fault in found]
    assert not wrong, f"seed {seed}: " + "\n".join(wrong)
    assert all(len(tested[name]) == 1 for name in KNOWN), "no longer wrong: take it off the list"


LATE = {
    "a range that is none": lambda d, n: torch.empty(n, device=d).uniform_(3, -1),
    "a probability above one": lambda d, n: torch.empty(n, device=d).bernoulli_(2.0),
    "no integer to draw": lambda d, n: torch.empty(n, device=d).random_(5, 2),
    "a negative deviation": lambda d, n: torch.empty(n, device=d).normal_(0, -1),
    "a number too large": lambda d, n: torch.zeros(n, dtype=torch.int8, device=d).fill_(1000),
    "a number too large where a mask says so": lambda d, n: torch.zeros(n, device=d).masked_fill_(torch.ones(n, device=d) > 0, 1e300),
    "integers as weights": lambda d, n: torch.multinomial(torch.ones(n, dtype=torch.int64, device=d), 1),
    "nothing drawn": lambda d, n: torch.multinomial(torch.ones(n, device=d), 0),
    "more drawn than there is": lambda d, n: torch.multinomial(torch.ones(n, device=d), n + 1),
}


@pytest.mark.parametrize("size", [4, 2**16])
@pytest.mark.parametrize("call", LATE.values(), ids=LATE.keys())
def test_numbers_that_the_kernel_refuses_raise_at_the_call(call: Any, size: int) -> None:
    with pytest.raises(RuntimeError) as expected:
        call("cpu", size)
    with pytest.raises(type(expected.value)):
        call("sim", size)
    assert error_of_the_device() is None


SEVERAL_TENSORS = {
    "complex of two types": lambda d: torch.complex(torch.ones(3, device=d), torch.ones(3, dtype=torch.float64, device=d)),
    "a mask of bytes": lambda d: torch.ones(3, device=d).masked_scatter_(
        torch.ones(3, dtype=torch.uint8, device=d), torch.ones(3, device=d)
    ),
    "boundaries in two dimensions": lambda d: torch.bucketize(torch.ones(3, device=d), torch.ones(2, 2, device=d)),
    "results of another type": lambda d: torch.aminmax(torch.ones(3, device=d), dim=0, out=(torch.ones(1, device=d).double(),) * 2),
    "the mode of nothing": lambda d: torch.ones(0, device=d).mode(),
}


@pytest.mark.parametrize("call", SEVERAL_TENSORS.values(), ids=SEVERAL_TENSORS.keys())
def test_tensors_that_the_kernel_refuses_raise_at_the_call(call: Any) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        call("cpu")
    with pytest.raises(type(expected.value)):
        call("sim")
    assert error_of_the_device() is None


def test_numbers_that_only_elements_make_wrong_are_not_waited_for() -> None:
    weights = torch.tensor([0.5, -1.0], device="sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(torch.accelerator.current_stream()):
        torch.multinomial(weights, 1)
    assert error_of_the_device() is not None


def test_a_call_that_is_only_asked_about_leaves_the_hosts_numbers_alone() -> None:
    state = torch.get_rng_state()
    torch.empty(4, device="sim").uniform_(3, 5)
    with pytest.raises(RuntimeError):
        torch.empty(4, device="sim").uniform_(3, -1)
    assert torch.equal(torch.get_rng_state(), state)
