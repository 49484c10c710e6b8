"""Each `acc.X` against `torch.accelerator.X`: what the indirection costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch

import anyaccel as acc
from benchmarks.compare import Result, compare, timed


def entered(make: Callable[[], AbstractContextManager[object]]) -> Callable[[], None]:
    def call() -> None:
        with make():
            pass

    return call


def pairs() -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    """What anyaccel's form is called, torch's form, anyaccel's form."""
    theirs = torch.accelerator
    stream, event = torch.Stream(), torch.Event()
    for name in ("is_available", "device_count", "current_accelerator", "current_device_index", "current_stream", "synchronize"):
        yield f"acc.{name}()", getattr(theirs, name), getattr(acc, name)
    yield "acc.set_device_index(0)", lambda: theirs.set_device_index(0), lambda: acc.set_device_index(0)
    yield "acc.set_stream(s)", lambda: theirs.set_stream(stream), lambda: acc.set_stream(stream)
    yield "acc.device_index(0)", entered(lambda: theirs.device_index(0)), entered(lambda: acc.device_index(0))
    yield "acc.stream(s)", entered(lambda: stream), entered(lambda: acc.stream(stream))
    yield "acc.Stream()", torch.Stream, acc.Stream
    yield "acc.Event()", torch.Event, acc.Event
    yield "event.record()", event.record, acc.Event().record
    yield "acc.get_device_capability()", theirs.get_device_capability, acc.get_device_capability
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "memory_stats", "get_memory_info", "empty_cache"):
        yield f"acc.memory.{name}()", getattr(theirs, name), getattr(acc.memory, name)
    for name in ("reset_peak_memory_stats", "reset_accumulated_memory_stats", "empty_host_cache"):
        yield f"acc.memory.{name}()", getattr(theirs, name), getattr(acc.memory, name)


def run() -> Iterator[Result]:
    torch.ones(8, device="sim")
    for name, theirs, ours in pairs():
        yield compare(
            "api", name, "torch.accelerator", timed(theirs, 300, torch.accelerator.synchronize), timed(ours, 300, acc.synchronize)
        )
