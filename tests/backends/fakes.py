"""An accelerator that is not there: torch's functions and a vendor's module, replaced by ones that keep state and note calls.

Each call is held against the signature of what it replaces, so a backend that calls a name that torch lacks, or with arguments
that it does not take, fails.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import torch

from anyaccel.backends import cuda, hpu, mps, mtia, privateuse1, torchlike, xpu

CLASSES: dict[str, type[torchlike.TorchLike]] = {
    "cuda": cuda.Cuda,
    "xpu": xpu.Xpu,
    "mps": mps.Mps,
    "mtia": mtia.Mtia,
    "hpu": hpu.Hpu,
    "privateuseone": privateuse1.PrivateUse1,
}
Install = Callable[..., "Accelerator"]

ANSWERS: dict[str, Any] = {
    "is_initialized": True,
    "get_device_name": "Fake 1000",
    "get_device_properties": {"name": "Fake 1000", "total_memory": 1 << 30, "vendor": "Fake"},
    "get_name": "Fake 1000",
    "get_core_count": 16,
    "memory_stats": {"allocated_bytes.all.current": 7, "dram": {"allocated_bytes": 7, "peak_bytes": 9}},
    "memory_allocated": 7,
    "max_memory_allocated": 9,
    "memory_reserved": 70,
    "max_memory_reserved": 90,
    "current_allocated_memory": 7,
    "driver_allocated_memory": 70,
    "recommended_max_memory": 1000,
    "mem_get_info": (30, 100),
    "get_memory_info": (30, 100),
    "_accelerator_isAllocatorInitialized": True,
    "_accelerator_getDeviceStats": {
        "allocated_bytes": {"all": {"current": 7, "peak": 9}},
        "reserved_bytes": {"all": {"current": 70, "peak": 90}},
    },
    "_accelerator_getDeviceCapability": {"supported_dtypes": {torch.float32}},
    "stream_priority": -1,
    "priority_range": (0, -3),
}


def accepts(real: Any, *args: Any, **kwargs: Any) -> None:
    """Raise TypeError unless `real` takes these arguments; C functions without a signature take what they are given."""
    try:
        signature = inspect.signature(real)
    except ValueError:
        return
    signature.bind(*args, **kwargs)


class Recorded:
    """Stands for a module: the same names, the same signatures, answers from ANSWERS."""

    def __init__(self, real: Any, calls: list[str], **names: Any) -> None:
        self._real, self._calls, self._names = real, calls, names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            return self._names[name]
        real = getattr(self._real, name)
        if not callable(real):
            return real
        return recorded(name, real, self._calls)


def recorded(name: str, real: Any, calls: list[str]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        accepts(real, *args, **kwargs)
        calls.append(name)
        return ANSWERS.get(name)

    return call


class Accelerator:
    """Keeps the current device and streams, as torch does: per thread."""

    def __init__(self, device_type: str, type_id: int, devices: int) -> None:
        self.type, self.type_id, self.devices = device_type, type_id, devices
        self.calls: list[str] = []
        self._local = threading.local()
        self._streams = 100

    def state(self) -> Any:
        if not hasattr(self._local, "device"):
            self._local.device, self._local.streams = 0, {}
        return self._local

    def current_device_index(self) -> int:
        return int(self.state().device)

    def set_device_index(self, index: int) -> None:
        assert 0 <= index < self.devices
        self.state().device = index

    def exchange_device(self, index: int) -> int:
        before = self.current_device_index()
        self.set_device_index(index)
        return before

    def synchronize(self, index: int | None = None) -> None:
        self.calls.append(f"synchronize {self.current_device_index() if index is None else index}")

    def stream(self, stream_id: int, index: int, made: Any = None) -> Any:
        return torch.Stream(stream_id, index, self.type_id) if made is None else made(stream_id, index)

    def current_stream(self, index: int | None = None) -> Any:
        index = self.current_device_index() if index is None else index
        return self.state().streams.get(index) or self.stream(0, index)

    def set_stream(self, stream: Any) -> None:
        self.set_device_index(stream.device_index)
        self.state().streams[stream.device_index] = stream

    def new_stream(self, device: Any = None, *, priority: int = 0) -> Any:
        self._streams += 1
        index = device.index if isinstance(device, torch.device) else device
        return self.stream(self._streams, self.current_device_index() if index is None else index)


class Event:
    """A vendor's event class that takes CUDA's flags."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.flags = (enable_timing, blocking, interprocess)


class TimingEvent:
    """A vendor's event class that takes one flag."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.flags = (enable_timing, False, False)


def vendor_streams(fake: Accelerator) -> Any:
    """A vendor's stream class with CUDA's names, made for one fake accelerator."""

    class Stream:
        def __init__(self, device: Any = None, priority: int = 0, **ids: Any) -> None:
            generic = fake.new_stream(device)
            self.stream_id = ids.get("stream_id", generic.stream_id)
            self.device_index = ids.get("device_index", generic.device_index)
            self.device_type = fake.type_id
            self.device = torch.device(fake.type, self.device_index)
            self.priority = max(-3, min(0, priority))

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -3

    return Stream
