"""The CPU as a stand-in where there is no accelerator, under `allow_cpu()`.

Everything has happened when its call returns, so streams are in order by themselves and an event is a point on the clock.
"""

from __future__ import annotations

import itertools
import platform
import threading
import time
from collections.abc import Mapping
from typing import Any

import torch

from .base import Backend, DeviceProperties

__all__ = ["Cpu", "CpuEvent", "CpuStream"]

_ids = itertools.count(1)


class CpuEvent(torch.Event):
    """An event that is complete as soon as it is recorded."""

    def __new__(cls, enable_timing: bool = False) -> CpuEvent:
        event = super().__new__(cls, device="cpu", enable_timing=enable_timing)
        event._timing = enable_timing
        event._time_ns = None
        return event

    _timing: bool
    _time_ns: int | None

    def record(self, stream: Any = None) -> None:
        self._time_ns = time.perf_counter_ns()

    def wait(self, stream: Any = None) -> None:
        """Do nothing: what was recorded has happened."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Do nothing: what was recorded has happened."""

    def elapsed_time(self, end_event: Any) -> float:
        if not (self._timing and end_event._timing):
            raise ValueError("elapsed_time: both events must be made with enable_timing=True")
        if self._time_ns is None or end_event._time_ns is None:
            raise ValueError("elapsed_time: both events must have been recorded")
        return float(max(0, end_event._time_ns - self._time_ns) / 1e6)


class CpuStream(torch.Stream):
    """A stream whose work is done when its call returns."""

    def __new__(cls, stream_id: int | None = None) -> CpuStream:
        return super().__new__(cls, next(_ids) if stream_id is None else stream_id, 0, Cpu.type_id)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Do nothing: the work of this stream is done."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: what was recorded has happened."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: the work of `stream` is done."""

    def record_event(self, event: Any = None) -> Any:
        event = CpuEvent() if event is None else event
        event.record(self)
        return event


class _Current(threading.local):
    """The current stream of each thread."""

    stream: CpuStream | None = None


class Cpu(Backend):
    """One device, the CPU."""

    type_id = 0

    def __init__(self, device_type: str) -> None:
        self.type = device_type
        self._default = CpuStream(0)
        self._current = _Current()

    def device_count(self) -> int:
        return 1

    def init(self) -> None:
        """Do nothing: the CPU is there."""

    def is_initialized(self) -> bool:
        return True

    def current_device_index(self) -> int:
        return 0

    def set_device_index(self, index: int) -> None:
        """Do nothing: there is one CPU, and the index was checked."""

    def synchronize(self, index: int | None = None) -> None:
        """Do nothing: the CPU's work is done when its call returns."""

    def get_device_name(self, index: int) -> str:
        return platform.processor() or platform.machine()

    def get_device_properties(self, index: int) -> DeviceProperties:
        return DeviceProperties(name=self.get_device_name(index), backend=self.type, compute_units=torch.get_num_threads())

    def new_event(self, enable_timing: bool, blocking: bool, interprocess: bool) -> torch.Event:
        if interprocess:
            raise self.lacks("Event.interprocess")
        return CpuEvent(enable_timing)

    def new_stream(self, index: int | None, priority: int) -> torch.Stream:
        return CpuStream()

    def current_stream(self, index: int | None = None) -> torch.Stream:
        return self._current.stream or self._default

    def default_stream(self, index: int) -> torch.Stream:
        return self._default

    def set_stream(self, stream: torch.Stream) -> None:
        if not isinstance(stream, CpuStream):  # torch's own CPU stream cannot record events
            raise TypeError(f"set_stream: {stream} was not made by anyaccel.Stream")
        self._current.stream = stream

    def stream_priority(self, stream: torch.Stream) -> int:
        return 0

    def stream_priority_range(self, index: int) -> tuple[int, int]:
        return 0, 0

    # As torch.cuda answers on a machine without CUDA: nobody allocates there.

    def empty_cache(self) -> None:
        """Do nothing: the CPU's allocator caches nothing."""

    def empty_host_cache(self) -> None:
        """Do nothing: without an accelerator nothing is pinned."""

    def memory_stats(self, index: int) -> Mapping[str, int]:
        return {}

    def reset_peak_memory_stats(self, index: int) -> None:
        """Do nothing: there are no statistics."""

    def reset_accumulated_memory_stats(self, index: int) -> None:
        """Do nothing: there are no statistics."""
