"""CUDA, and ROCm under the same name."""

from __future__ import annotations

from typing import Any

import torch

from .torchlike import TorchLike, Traced

__all__ = ["Cuda"]

_cuda: Any = torch.cuda  # its classes are untyped


class _Traced(Traced):
    current_stream = staticmethod(_cuda.current_stream)


class Cuda(TorchLike):
    """`torch.cuda`, whose own stream and event objects are handed out: `==` and `.cuda_stream` then work as there."""

    type_name_in_torch = "CUDA"

    current_stream = staticmethod(_cuda.current_stream)
    traced = _Traced()

    if not hasattr(torch._C, "_accelerator_exchangeDevice"):  # before torch 2.8
        exchange_device = staticmethod(_cuda._exchange_device)
        restore_device = staticmethod(_cuda._maybe_exchange_device)

    def new_event(self, enable_timing: bool, blocking: bool, interprocess: bool) -> torch.Event:
        event: torch.Event = _cuda.Event(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)
        return event

    def new_stream(self, index: int | None, priority: int) -> torch.Stream:
        stream: torch.Stream = _cuda.Stream(device=index, priority=priority)
        return stream

    def stream_priority(self, stream: torch.Stream) -> int:
        own = (
            stream
            if isinstance(stream, _cuda.Stream)
            else _cuda.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
        )
        return int(own.priority)

    def stream_priority_range(self, index: int) -> tuple[int, int]:
        with _cuda.device(index):
            least, greatest = _cuda.Stream.priority_range()
        return int(least), int(greatest)

    if not hasattr(torch.accelerator, "empty_host_cache"):  # before torch 2.12

        def empty_host_cache(self) -> None:
            torch._C._host_emptyCache()
