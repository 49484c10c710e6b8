"""The public list: what it names is there, what is there is named, and importing it does next to nothing."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch
from tests.helpers import run_python

import anyaccel as acc

LATER = {"Graph"}  # names of torch.accelerator that are not here yet


def test_the_list_is_sorted_and_true() -> None:
    assert acc.__all__ == sorted(acc.__all__)
    for name in acc.__all__:
        assert hasattr(acc, name), name


def test_nothing_else_is_public() -> None:
    modules = {"backends", "devices", "errors", "events", "streams", "conformance", "cli"}
    found = {name for name in vars(acc) if not name.startswith("_")}
    assert found - set(acc.__all__) - modules <= {"annotations", "TYPE_CHECKING", "Any"}


def test_all_of_torch_accelerator_is_here() -> None:
    assert set(torch.accelerator.__all__) - set(acc.__all__) == LATER


@pytest.mark.parametrize("name", sorted(set(torch.accelerator.__all__) - LATER))
def test_arguments_of_torch_accelerator_fit(name: str) -> None:
    ours, theirs = inspect.signature(getattr(acc, name)), inspect.signature(getattr(torch.accelerator, name))
    positional = [p for p in ours.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    assert len(positional) == len(theirs.parameters)
    for mine, parameter in zip(positional, theirs.parameters.values(), strict=True):
        assert mine.default == parameter.default


def test_each_public_function_says_whether_it_blocks() -> None:
    for name in acc.__all__:
        thing = getattr(acc, name)
        if inspect.isfunction(thing) and "Deprecated" not in str(thing.__doc__):
            assert "Blocks the host:" in str(thing.__doc__), name


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        acc.no_such_name  # noqa: B018


def test_importing_it_does_next_to_nothing() -> None:
    run_python(
        """
        import sys
        import torch
        before, init = set(sys.modules), torch.cuda.is_initialized()
        import anyaccel
        new = set(sys.modules) - before
        assert not any(name.startswith("torch._dynamo") or name.startswith("anyaccel.sim") for name in new), new
        assert anyaccel.backends.registry.active is None
        """
    )


def test_importing_it_first_works() -> None:
    run_python("import anyaccel; import torch; assert anyaccel.device_count() >= 0")


def test_the_sim_is_an_attribute() -> None:
    assert acc.sim is sys.modules["anyaccel.sim"]
