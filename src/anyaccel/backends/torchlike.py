"""What backends share: `torch.accelerator`, and the modules `torch.<device>` that follow `torch.cuda`.

`TorchLike` takes each primitive from `torch.accelerator` where this torch has it and from the device's module elsewhere.
`Vendor` is for modules that are no part of torch: each thing in them is looked for when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from .base import Backend, DeviceProperties

__all__ = ["TorchLike", "Traced", "Vendor"]

# Untyped: which names there are depends on the torch version.
_accelerator: Any = torch.accelerator
_C: Any = torch._C

_ACCELERATOR_MEMORY = hasattr(torch.accelerator, "memory_stats")  # torch 2.9


class Traced(Backend):
    """The primitives that Dynamo knows, bound to the functions that it knows them by."""

    current_device_index = staticmethod(_accelerator.current_device_index)
    synchronize = staticmethod(_accelerator.synchronize)
    current_stream = staticmethod(_accelerator.current_stream)
    set_stream = staticmethod(_accelerator.set_stream)

    def device_context(self, index: int) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = _accelerator.device_index(index)
        return context


class TorchLike(Backend):
    """A backend over `torch.accelerator` and one device module."""

    type_name_in_torch: str = ""  # in torch._C._autograd.DeviceType, which has the numbers that streams carry

    traced: Backend = Traced()

    def __init__(self, device_type: str) -> None:
        self.type = device_type
        self.type_id = int(getattr(torch._C._autograd.DeviceType, self.type_name_in_torch).value)
        self.module: Any = torch.get_device_module(device_type)

    # What lies below torch.accelerator in every version from 2.6 on.
    current_device_index = staticmethod(_C._accelerator_getDeviceIndex)
    set_device_index = staticmethod(_C._accelerator_setDeviceIndex)
    synchronize = staticmethod(_C._accelerator_synchronizeDevice)
    current_stream = staticmethod(_C._accelerator_getStream)
    set_stream = staticmethod(_C._accelerator_setStream)

    if hasattr(_C, "_accelerator_exchangeDevice"):  # torch 2.8
        exchange_device = staticmethod(_C._accelerator_exchangeDevice)
        restore_device = staticmethod(_C._accelerator_maybeExchangeDevice)

    def device_count(self) -> int:
        return torch.accelerator.device_count()

    def init(self) -> None:
        self.module.init()

    def is_initialized(self) -> bool:
        return bool(self.module.is_initialized())

    def get_device_name(self, index: int) -> str:
        return str(self.module.get_device_name(index))

    def get_device_properties(self, index: int) -> DeviceProperties:
        return self.read_properties(self.module.get_device_properties(index))

    def read_properties(self, raw: Any) -> DeviceProperties:
        """Translate the vendor's object, whose names differ: the first name of each line that it has counts."""

        def first(*names: str) -> Any:
            found = (raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None) for name in names)
            return next((value for value in found if value is not None), None)

        major, minor, uuid = first("major"), first("minor"), first("uuid")
        return DeviceProperties(
            name=first("name"),
            backend=self.type,
            total_memory_bytes=first("total_memory"),
            compute_units=first("multi_processor_count", "max_compute_units"),
            vendor=first("vendor"),
            uuid=None if uuid is None else str(uuid),
            driver_version=first("driver_version"),
            capability=None if major is None or minor is None else (major, minor),
            raw=raw,
        )

    if hasattr(_C, "_accelerator_getDeviceCapability"):  # torch 2.10

        def get_device_capability(self, index: int) -> dict[str, Any]:
            # Below torch.accelerator, which caches the answer on its argument and hands the same dict to everyone.
            return dict(_C._accelerator_getDeviceCapability(index))

    def new_event(self, enable_timing: bool, blocking: bool, interprocess: bool) -> torch.Event:
        if blocking:
            raise self.lacks("Event.blocking")
        if interprocess:
            raise self.lacks("Event.interprocess")
        return torch.Event(enable_timing=enable_timing)

    def new_stream(self, index: int | None, priority: int) -> torch.Stream:
        if index is None:
            return torch.Stream(priority=priority)
        return torch.Stream(device=torch.device(self.type, index), priority=priority)

    def default_stream(self, index: int) -> torch.Stream:
        stream: torch.Stream = self.module.default_stream(index)
        return stream

    def empty_cache(self) -> None:
        (torch.accelerator if self.has_device_allocator else self.module).empty_cache()

    if hasattr(torch.accelerator, "empty_host_cache"):  # torch 2.12

        def empty_host_cache(self) -> None:
            torch.accelerator.empty_host_cache()

    # Whether the allocator is a c10::DeviceAllocator. torch asserts in each memory call where it is not.
    has_device_allocator: bool = _ACCELERATOR_MEMORY

    def memory_stats(self, index: int) -> Mapping[str, Any]:
        if self.has_device_allocator:
            return torch.accelerator.memory_stats(index)
        stats: Mapping[str, Any] = self.module.memory_stats(index)
        return stats

    def memory_stat(self, index: int, key: str, asked: str) -> int:
        if not self.has_device_allocator:
            return super().memory_stat(index, key, asked)
        if not _C._accelerator_isAllocatorInitialized():
            return 0
        # Without flattening and sorting some hundred values for the sake of one.
        value: Any = _C._accelerator_getDeviceStats(index)
        for part in key.split("."):
            value = value[part]
        return int(value)

    def reset_peak_memory_stats(self, index: int) -> None:
        (torch.accelerator if self.has_device_allocator else self.module).reset_peak_memory_stats(index)

    def reset_accumulated_memory_stats(self, index: int) -> None:
        (torch.accelerator if self.has_device_allocator else self.module).reset_accumulated_memory_stats(index)

    def get_memory_info(self, index: int) -> tuple[int, int]:
        if self.has_device_allocator and hasattr(torch.accelerator, "get_memory_info"):  # torch 2.10
            return torch.accelerator.get_memory_info(index)
        free, total = self.module.mem_get_info(index)
        return int(free), int(total)


_THEIR_NAMES = {"get_memory_info": "mem_get_info"}


class Vendor(TorchLike):
    """A backend whose module is the vendor's and follows `torch.cuda` as far as the vendor went."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.has_device_allocator = _ACCELERATOR_MEMORY and _has_device_allocator()

    def can(self, feature: str) -> bool:
        whole, _, part = feature.partition(".")
        if whole == "Event":
            return self._makes_event(**{part: True})
        if whole == "Stream":  # attributes of objects, and those lie: only trying tells
            return _answers(self.current_stream(self.current_device_index()), part)
        if whole in ("stream_priority", "stream_priority_range"):
            return hasattr(self._vendor("Stream"), "priority_range")
        if self.has_device_allocator and ("memory" in feature or feature == "empty_cache"):
            return True
        return hasattr(self.module, _THEIR_NAMES.get(feature, feature))

    def ask(self, feature: str) -> Callable[..., Any]:
        """Return the module's function for `feature`, or raise Unsupported."""
        function: Callable[..., Any] | None = getattr(self.module, _THEIR_NAMES.get(feature, feature), None)
        if function is None:
            raise self.lacks(feature)
        return function

    def init(self) -> None:
        self.ask("init")()

    def is_initialized(self) -> bool:
        return bool(self.ask("is_initialized")())

    def get_device_name(self, index: int) -> str:
        return str(self.ask("get_device_name")(index))

    def get_device_properties(self, index: int) -> DeviceProperties:
        return self.read_properties(self.ask("get_device_properties")(index))

    def default_stream(self, index: int) -> torch.Stream:
        stream: torch.Stream = self.ask("default_stream")(index)
        return stream

    def _vendor(self, name: str) -> Any:
        return getattr(self.module, name, None) or getattr(torch, name)

    def _makes_event(self, **flags: bool) -> bool:
        made = self._vendor("Event")
        if made is torch.Event:  # takes every flag and drops it
            return False
        try:
            made(**flags)
        except (TypeError, NotImplementedError):
            return False
        return True

    def new_event(self, enable_timing: bool, blocking: bool, interprocess: bool) -> torch.Event:
        asked = {"blocking": blocking, "interprocess": interprocess}
        flags = {name: True for name, on in asked.items() if on}
        for name in flags:
            if not self._makes_event(**{name: True}):
                raise self.lacks(f"Event.{name}")
        event: torch.Event = self._vendor("Event")(enable_timing=enable_timing, **flags)
        return event

    def new_stream(self, index: int | None, priority: int) -> torch.Stream:
        made = self._vendor("Stream")
        if made is torch.Stream:
            return super().new_stream(index, priority)
        stream: torch.Stream = made(device=index, priority=priority)
        return stream

    def stream_priority(self, stream: torch.Stream) -> int:
        if not hasattr(stream, "priority"):
            raise self.lacks("stream_priority")
        return int(stream.priority)

    def stream_priority_range(self, index: int) -> tuple[int, int]:
        if not self.can("stream_priority_range"):
            raise self.lacks("stream_priority_range")
        least, greatest = self._vendor("Stream").priority_range()
        return int(least), int(greatest)

    def empty_cache(self) -> None:
        if self.has_device_allocator:
            super().empty_cache()
        else:
            self.ask("empty_cache")()

    def memory_stats(self, index: int) -> Mapping[str, Any]:
        if self.has_device_allocator:
            return super().memory_stats(index)
        stats: Mapping[str, Any] = self.ask("memory_stats")(index)
        return stats

    def memory_stat(self, index: int, key: str, asked: str) -> int:
        if self.has_device_allocator:
            return super().memory_stat(index, key, asked)
        return int(self.ask(asked)(index))

    def reset_peak_memory_stats(self, index: int) -> None:
        if self.has_device_allocator:
            super().reset_peak_memory_stats(index)
        else:
            self.ask("reset_peak_memory_stats")(index)

    def reset_accumulated_memory_stats(self, index: int) -> None:
        if self.has_device_allocator:
            super().reset_accumulated_memory_stats(index)
        else:
            self.ask("reset_accumulated_memory_stats")(index)

    def get_memory_info(self, index: int) -> tuple[int, int]:
        if not self.has_device_allocator:
            self.ask("get_memory_info")
        return super().get_memory_info(index)


def _has_device_allocator() -> bool:
    try:
        _C._accelerator_isAllocatorInitialized()
    except RuntimeError:  # an internal assert: the allocator is another kind
        return False
    return True


def _answers(stream: torch.Stream, name: str) -> bool:
    try:
        value = getattr(stream, name)
        if callable(value):
            value()
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return True
