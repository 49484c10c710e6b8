"""How to use each feature of the table that is not a function without arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import anyaccel as acc

# None: an attribute of torch's own object, which no code of ours stands before.
USES: dict[str, Callable[[], Any] | None] = {
    "Event.enable_timing": lambda: acc.Event(enable_timing=True),
    "Event.blocking": lambda: acc.Event(blocking=True),
    "Event.interprocess": lambda: acc.Event(interprocess=True),
    "Stream.native_handle": None,
    "Stream.is_capturing": None,
    "set_device_index": lambda: acc.set_device_index(1),
    "device": lambda: enter(acc.device(0)),
    "device_index": lambda: enter(acc.device_index(0)),
    "device_of": lambda: acc.device_of(torch.zeros(1)),
    "stream": lambda: enter(acc.stream(acc.current_stream())),
    "set_stream": lambda: acc.set_stream(acc.current_stream()),
    "stream_priority": lambda: acc.stream_priority(acc.current_stream()),
}


def enter(context: Any) -> None:
    with context:
        pass
