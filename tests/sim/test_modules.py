"""Every module of torch.nn, on the inputs that torch tests it with: results, gradients and buffers are those of the CPU."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.operator_samples import whole
from torch.utils._pytree import tree_leaves, tree_map

import anyaccel as acc

pytestmark = pytest.mark.sim

DRAWN = 0.3  # of the inputs, unless all are asked for


def cases(training: bool) -> Iterator[tuple[str, torch.nn.Module, tuple[Any, Any]]]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for case in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training):
            if case.forward_input is None:
                continue
            module = info.module_cls(*case.constructor_input.args, **case.constructor_input.kwargs)
            yield info.name, module.train(training), (case.forward_input.args, case.forward_input.kwargs)


def on(device: str, values: Any) -> Any:
    def move(value: Any) -> Any:
        return value.detach().clone().to(device).requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value

    return tree_map(move, values)


def tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def run(module: torch.nn.Module, inputs: tuple[Any, Any], device: str, seed: int) -> list[torch.Tensor | None]:
    """What the module returns, then the gradients of its inputs and weights, then its buffers."""
    module, (args, kwargs) = copy.deepcopy(module).to(device), on(device, inputs)
    torch.manual_seed(seed)
    results = tensors(module(*args, **kwargs))
    smooth = [result.abs().sum() for result in results if result.requires_grad]
    if smooth:
        torch.stack(smooth).sum().backward()
    leaves = [*tensors((args, kwargs)), *module.parameters()]
    found = [*(result.detach() for result in results), *(leaf.grad for leaf in leaves if leaf.is_leaf), *module.buffers()]
    return [value if value is None else value.cpu() for value in found]


def differ(found: list[torch.Tensor | None], expected: list[torch.Tensor | None]) -> str:
    try:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("training", [True, False])
def test_modules_give_what_they_give_on_the_cpu(training: bool, seed: int) -> None:
    wrong: list[str] = []
    compared, rng = 0, random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated forms and arguments, which torch tests as well
        torch.manual_seed(seed)
        for name, module, inputs in cases(training):
            if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
                continue  # what it becomes is in the list, too
            if not whole() and rng.random() > DRAWN:
                continue
            try:
                expected = run(module, inputs, "cpu", seed=1)
            except Exception:  # noqa: S112  the CPU is the judge of what is possible
                continue
            try:
                found = run(module, inputs, "sim", seed=1)
                torch.accelerator.synchronize()
            except Exception as error:
                acc.sim.reset_errors()
                wrong.append(f"{name}: {type(error).__name__}: {error}")
                continue
            difference = differ(found, expected)
            if difference and differ(run(module, inputs, "cpu", seed=2), expected):
                difference = ""  # it draws: the sim's numbers are others
            if difference:
                wrong.append(f"{name}: {difference}")
            compared += not difference
    assert not wrong, f"seed {seed}: " + "\n".join(wrong)
    assert compared > (1000 if whole() else 200)
