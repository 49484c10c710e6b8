"""Intel GPUs."""

from __future__ import annotations

from typing import Any

import torch

from .torchlike import TorchLike, Traced

__all__ = ["Xpu"]

_xpu: Any = torch.xpu  # its classes are untyped


class _Traced(Traced):
    current_stream = staticmethod(_xpu.current_stream)


class Xpu(TorchLike):
    """`torch.xpu`, whose own stream and event objects are handed out. It has no default stream."""

    type_name_in_torch = "XPU"

    current_stream = staticmethod(_xpu.current_stream)
    traced = _Traced()

    if not hasattr(torch._C, "_accelerator_exchangeDevice"):  # before torch 2.8
        exchange_device = staticmethod(_xpu._exchange_device)
        restore_device = staticmethod(_xpu._maybe_exchange_device)

    def new_event(self, enable_timing: bool, blocking: bool, interprocess: bool) -> torch.Event:
        if blocking:
            raise self.lacks("Event.blocking")
        if interprocess:
            raise self.lacks("Event.interprocess")
        event: torch.Event = _xpu.Event(enable_timing=enable_timing)
        return event

    def new_stream(self, index: int | None, priority: int) -> torch.Stream:
        stream: torch.Stream = _xpu.Stream(device=index, priority=priority)
        return stream

    def default_stream(self, index: int) -> torch.Stream:
        raise self.lacks("default_stream")

    def stream_priority(self, stream: torch.Stream) -> int:
        own = (
            stream
            if isinstance(stream, _xpu.Stream)
            else _xpu.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
        )
        return int(own.priority)

    def stream_priority_range(self, index: int) -> tuple[int, int]:
        with _xpu.device(index):
            least, greatest = _xpu.Stream.priority_range()
        return int(least), int(greatest)
