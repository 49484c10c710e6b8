"""Dynamo traces a function with anyaccel's names wherever it traces the same one with torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import anyaccel as acc
from anyaccel.backends import registry

pytestmark = [pytest.mark.sim, pytest.mark.filterwarnings("ignore:Dynamo:UserWarning")]

Traced = Callable[[torch.Tensor], Any]

# The same names for what torch spells in other ways.
THEIRS = SimpleNamespace(
    **{name: getattr(torch.accelerator, name) for name in torch.accelerator.__all__},
    device=torch.accelerator.device_index,
    device_of=lambda tensor: torch.accelerator.device_index(tensor.device.index),
    stream=lambda stream: stream,
    Stream=torch.Stream,
    Event=torch.Event,
)


def context_of(make: Callable[[], Any]) -> Traced:
    def function(x: torch.Tensor) -> torch.Tensor:
        with make():
            return x + 1

    return function


def after(call: Callable[[], Any]) -> Traced:
    def function(x: torch.Tensor) -> torch.Tensor:
        call()
        return x + 1

    return function


def adding(call: Callable[[], Any]) -> Traced:
    return lambda x: x + call()


def on_a_side_stream(api: Any, make: Callable[[], Any]) -> Traced:
    def function(x: torch.Tensor) -> torch.Tensor:
        side = make()
        side.wait_stream(api.current_stream())
        with api.stream(side):
            y = x * 2
        api.current_stream().wait_stream(side)
        return y + 1

    return function


def with_an_event(make: Callable[[], Any]) -> Traced:
    def function(x: torch.Tensor) -> torch.Tensor:
        event = make()
        y = x + 1
        event.record()
        event.wait()
        return y

    return function


FUNCTIONS: dict[str, Callable[[Any], Traced]] = {
    "current_accelerator": lambda api: lambda x: x.to(api.current_accelerator()),
    "current_accelerator(True)": lambda api: lambda x: x.to(api.current_accelerator(True)),
    "is_available": lambda api: adding(lambda: api.is_available()),
    "device_count": lambda api: adding(lambda: api.device_count()),
    "current_device_index": lambda api: adding(lambda: api.current_device_index()),
    "set_device_index": lambda api: after(lambda: api.set_device_index(0)),
    "device": lambda api: context_of(lambda: api.device(1)),
    "device_index": lambda api: context_of(lambda: api.device_index(1)),
    "device_of": lambda api: lambda x: context_of(lambda: api.device_of(x))(x),
    "synchronize": lambda api: after(lambda: api.synchronize()),
    "synchronize(1)": lambda api: after(lambda: api.synchronize(1)),
    "synchronize('sim:1')": lambda api: after(lambda: api.synchronize("sim:1")),
    "current_stream": lambda api: after(lambda: api.current_stream().synchronize()),
    "current_stream(0)": lambda api: after(lambda: api.current_stream(0).synchronize()),
    "set_stream": lambda api: after(lambda: api.set_stream(api.current_stream())),
    "Stream": lambda api: on_a_side_stream(api, lambda: api.Stream()),
    "Stream(device)": lambda api: on_a_side_stream(api, lambda: api.Stream(torch.device("sim", 0))),
    "Stream(priority)": lambda api: on_a_side_stream(api, lambda: api.Stream(priority=-1)),
    "Event": lambda api: with_an_event(lambda: api.Event()),
    "Event(enable_timing)": lambda api: with_an_event(lambda: api.Event(enable_timing=True)),
    "empty_cache": lambda api: after(lambda: api.empty_cache()),
    "empty_host_cache": lambda api: after(lambda: api.empty_host_cache()),
    "memory_allocated": lambda api: adding(lambda: api.memory_allocated()),
    "memory_stats": lambda api: adding(lambda: len(api.memory_stats())),
    "reset_peak_memory_stats": lambda api: after(lambda: api.reset_peak_memory_stats()),
    "get_memory_info": lambda api: adding(lambda: api.get_memory_info()[1]),
    "get_device_capability": lambda api: adding(lambda: len(api.get_device_capability())),
}
TRACED_BY_TORCH_2_13 = {
    name
    for name in FUNCTIONS
    if name.partition("(")[0] not in ("device_count", "set_device_index", "get_memory_info", "get_device_capability")
    and "cache" not in name
    and not name.startswith(("memory_", "reset_"))
}


@pytest.fixture
def x() -> Iterator[torch.Tensor]:
    torch._dynamo.reset()
    device, stream = acc.current_device_index(), acc.current_stream()
    yield torch.arange(8.0, device="sim:0")
    acc.set_stream(stream)
    acc.set_device_index(device)


def compiled(function: Traced, x: torch.Tensor) -> Any:
    result = torch.compile(function, fullgraph=True, backend="eager")(x)
    acc.synchronize()
    return result


@pytest.mark.parametrize("name", FUNCTIONS)
def test_traced_where_torch_s_is(name: str, x: torch.Tensor) -> None:
    try:
        expected = compiled(FUNCTIONS[name](THEIRS), x)
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.InternalTorchDynamoError):
        assert name not in TRACED_BY_TORCH_2_13
        pytest.skip("torch's own is not traced")
    torch._dynamo.reset()
    assert torch.equal(compiled(FUNCTIONS[name](acc), x), expected)


def test_the_accelerator_may_be_unknown_when_it_is_traced(x: torch.Tensor) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with acc.device(1), acc.stream(acc.current_stream()):
            acc.synchronize()
            return x + acc.current_device_index()

    registry.forget()
    assert compiled(function, x)[0].item() == 1
    acc.current_device_index()
    assert compiled(function, x)[0].item() == 1


def test_one_function_that_uses_them_all(x: torch.Tensor) -> None:
    event = acc.Event()

    def function(x: torch.Tensor) -> torch.Tensor:
        assert acc.is_available()
        x = x.to(acc.current_accelerator())
        side = acc.Stream(priority=-1)
        with acc.stream(None), acc.device(None), acc.device_of(x), acc.device("sim:0"):
            side.wait_stream(acc.current_stream())
            with acc.stream(side):
                y = x * 2
                event.record(side)
            acc.current_stream(0).wait_event(event)
            done = acc.Event(enable_timing=True)
            z = y + acc.current_device_index()
            done.record()
        acc.default_stream().synchronize()
        acc.set_stream(acc.current_stream())
        acc.synchronize(0)
        return z

    expected = function(x)
    acc.synchronize()
    assert torch.equal(compiled(function, x), expected)


def test_a_stream_from_outside(x: torch.Tensor) -> None:
    side = acc.Stream()

    def function(x: torch.Tensor) -> torch.Tensor:
        side.wait_stream(acc.current_stream())
        with acc.stream(side):
            y = x + 3
        acc.current_stream().wait_stream(side)
        return y

    assert compiled(function, x).tolist() == [3.0 + i for i in range(8)]
    assert acc.current_stream() != side
