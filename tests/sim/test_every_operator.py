"""Every operator of torch's own database: on the sim it gives what the CPU gives, forward and backward, and does not wait.

A run draws one dtype and one sample per operator; with ANYACCEL_TEST_WHOLE=1 it takes all of them.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.operator_samples import (
    DTYPES,
    Arguments,
    Mover,
    arguments_of,
    call_on_cpu,
    dtypes_of,
    name_of,
    operators,
    samples_of,
    tensors_of,
    to_cpu,
)
from torch.testing import assert_close
from torch.utils import _pytree as pytree

import anyaccel as acc

pytestmark = [pytest.mark.sim, pytest.mark.filterwarnings("ignore")]

SHARDS = 16
DOCUMENT = Path(__file__).parents[2] / "docs" / "operators.md"

# On every accelerator this operator takes its indices, a tensor, from the host.
HOST_INDICES = "tensor_split"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    # As the sim's workers: some sums depend on how many threads there are.
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)
    acc.sim.reset_errors()


def waiting() -> dict[str, set[str]]:
    """The table of docs/operators.md: operators that wait, and what their waits are counted as."""
    rows = [line.split("|")[1:3] for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    listed = [(name, counted) for names, counted in rows for name in re.findall(r"`(.+?)`", names)]
    assert len({name for name, _ in listed}) == len(listed), "an operator is listed twice"
    return {name: {f"aten::{what}" for what in re.findall(r"`(.+?)`", counted)} for name, counted in listed}


def call_while_held(call: Callable[[], Any]) -> tuple[Any, set[str]]:
    """What `call` returns, and what the host waited for. The stream is held until the call returns or waits."""
    outcome: dict[str, Any] = {}
    done = threading.Event()

    def run() -> None:
        try:
            outcome["result"] = call()
        except BaseException as error:
            outcome["error"] = error
        finally:
            done.set()

    torch.accelerator.synchronize()
    acc.sim.reset_stats()
    with acc.sim.hold(torch.accelerator.current_stream()):
        thread = threading.Thread(target=run)
        thread.start()
        while not done.wait(0.0005) and not acc.sim.stats()["host_waits"]:  # a wait is counted before it begins
            pass
    thread.join()
    waits = set(acc.sim.stats()["host_waits"])
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"], waits


def gradients(results: Any, sources: Any) -> list[torch.Tensor]:
    """Of a sum that does not depend on the phase of complex results, since eigenvectors have none."""
    outputs = [x for x in tensors_of(results) if x.requires_grad]
    inputs = [x for x in tensors_of(sources) if x.requires_grad]
    sums = [x.abs().sum() if x.is_complex() else x.sum() for x in outputs]
    found = torch.autograd.grad(sums, inputs, allow_unused=True)
    return [x for x in found if x is not None]


def is_dense(value: Any) -> bool:
    return all(x.layout == torch.strided for x in tensors_of(value))


def given_on_sim(op: Any, arguments: Arguments) -> Arguments:
    mover = Mover()
    return (mover.move(arguments[0]), *arguments[1:]) if op.name == HOST_INDICES else mover.move(arguments)


def check(op: Any, arguments: Arguments, given: Arguments, expected: Any, is_random: bool, backward: bool) -> set[str]:
    """Compare one call with the CPU's, and tell what the host waited for."""
    result, waits = call_while_held(lambda: op(given[0], *given[1], **given[2]))
    if pytree.tree_any(lambda leaf: isinstance(leaf, (torch.Tensor, torch.device)), given):  # others don't say where
        elsewhere = {x.device for x, y in zip(tensors_of(result), tensors_of(expected), strict=True) if y.is_cpu and x.device.type != "sim"}
        assert not elsewhere, f"results on {elsewhere}"
    if is_random or "empty" in op.name:  # numbers of its own, or any
        shapes = [[(x.shape, x.dtype) for x in tensors_of(value)] for value in (result, expected)]
        assert shapes[0] == shapes[1]
        torch.accelerator.synchronize()
        return waits
    loose = any(x.dtype in (torch.float16, torch.bfloat16) for x in tensors_of((arguments, expected)))
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if loose else {"rtol": 1e-4, "atol": 1e-5}
    assert_close(to_cpu(result), to_cpu(expected), equal_nan=True, **tolerance)
    if backward and any(x.requires_grad for x in tensors_of(expected)) and any(x.requires_grad for x in tensors_of(arguments)):
        want, have = gradients(expected, arguments), gradients(result, given)
        assert {x.device.type for x in have} <= {"sim"}
        assert_close(to_cpu(have), to_cpu(want), equal_nan=True, rtol=1e-3, atol=1e-4)
    return waits


def check_refusal(op: Any, arguments: Arguments) -> None:
    with pytest.raises(NotImplementedError, match="sim has no"):
        given = given_on_sim(op, arguments)
        op(given[0], *given[1], **given[2])


def faults(op: Any, dtype: torch.dtype, rng: random.Random, may_wait: set[str]) -> Iterator[str]:
    backward = op.supports_autograd and dtype in (torch.float32, torch.float64)
    for sample in samples_of(op, dtype, rng, count=1, requires_grad=backward):
        arguments = arguments_of(sample)
        try:
            given = given_on_sim(op, arguments) if is_dense(arguments) else arguments
            expected, is_random = call_on_cpu(op, arguments)
            if not is_dense((arguments, expected)):
                check_refusal(op, arguments)
            elif unknown := check(op, arguments, given, expected, is_random, backward) - may_wait:
                yield f"{name_of(op)} {dtype}: waits ({unknown}), and {DOCUMENT.name} does not say so"
        except (Exception, pytest.fail.Exception) as error:
            acc.sim.reset_errors()
            yield f"{name_of(op)} {dtype}: {type(error).__name__}: {error}"[:600]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_operators_give_what_the_cpu_gives_and_do_not_wait(shard: int, seed: int) -> None:
    known = waiting()
    wrong: list[str] = []
    for op in operators()[shard::SHARDS]:
        rng = random.Random(f"{seed} {name_of(op)}")
        for dtype in dtypes_of(op, rng):
            torch.manual_seed(seed)
            wrong.extend(faults(op, dtype, rng, known.get(name_of(op), set())))
    assert not wrong, f"seed {seed}:\n" + "\n".join(wrong)


def waits(op: Any, counted: set[str]) -> bool:
    """True if the host waits, as it is `counted`, in some sample of an operator."""
    for dtype in (dtype for dtype in DTYPES if dtype in op.dtypes):
        for sample in op.sample_inputs("cpu", dtype):
            given = given_on_sim(op, arguments_of(sample))
            torch.accelerator.synchronize()
            acc.sim.reset_stats()
            op(given[0], *given[1], **given[2])
            if counted & set(acc.sim.stats()["host_waits"]):
                return True
    return False


def test_what_is_said_to_wait_waits() -> None:
    known = waiting()
    by_name = {name_of(op): op for op in operators()}
    never = [name for name, counted in known.items() if not waits(by_name[name], counted)]
    assert known and not never, f"{DOCUMENT.name} lists operators that do not wait: {never}"
