"""With no accelerator: what torch.cuda answers on a CPU build is answered, the rest says how to get one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import anyaccel as acc
from anyaccel.backends import registry


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    monkeypatch.delenv("ANYACCEL_ALLOW_CPU", raising=False)
    registry.forget()
    yield
    registry.forget()


def test_what_is_answered() -> None:
    assert acc.current_accelerator() is None
    assert acc.is_available() is False
    assert acc.device_count() == 0
    assert acc.is_initialized() is False
    for device in (None, 0, "cuda", "cuda:1"):
        assert acc.memory_allocated(device) == 0
        assert acc.max_memory_reserved(device) == 0
        assert set(acc.memory_stats(device).values()) == {0}
        acc.reset_peak_memory_stats(device)
        acc.reset_accumulated_memory_stats(device)
    acc.empty_cache()
    acc.empty_host_cache()
    acc.set_stream(None)
    with acc.stream(None), acc.device(None), acc.device_of(torch.zeros(1)):
        pass


NEEDS: dict[str, Callable[[], Any]] = {
    "synchronize": lambda: acc.synchronize(0),
    "init": acc.init,
    "current_device_index": acc.current_device_index,
    "set_device_index": lambda: acc.set_device_index(0),
    "device": lambda: acc.device(0).__enter__(),
    "Event": acc.Event,
    "Stream": lambda: acc.Stream("cuda:1"),
    "current_stream": acc.current_stream,
    "default_stream": acc.default_stream,
    "set_stream": lambda: acc.set_stream(torch.Stream(device="cpu")),
    "stream_priority_range": acc.stream_priority_range,
    "get_memory_info": acc.get_memory_info,
    "get_device_name": acc.get_device_name,
    "get_device_properties": acc.get_device_properties,
    "get_device_capability": acc.get_device_capability,
}


@pytest.mark.parametrize("asked", NEEDS)
def test_what_needs_a_device_names_itself(asked: str) -> None:
    with pytest.raises(acc.NoAccelerator) as caught:
        NEEDS[asked]()
    assert caught.value.asked == asked


def test_nothing_on_the_way_to_the_error_wakes_the_stand_in() -> None:
    with pytest.raises(acc.NoAccelerator):
        acc.synchronize()
    assert registry._cpu_allowed is None
    assert registry.active is None
