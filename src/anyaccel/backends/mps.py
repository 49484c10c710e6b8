"""Apple GPUs: one device with one stream, and an allocator that keeps few numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .base import DeviceProperties
from .torchlike import TorchLike

__all__ = ["Mps"]


class Mps(TorchLike):
    """`torch.mps`."""

    type_name_in_torch = "MPS"

    # Its allocator is no c10::DeviceAllocator (pytorch #186430).
    has_device_allocator = False

    def can(self, feature: str) -> bool:
        return feature == "get_device_name" and hasattr(torch.backends.mps, "get_name")

    def init(self) -> None:
        raise self.lacks("init")

    def is_initialized(self) -> bool:
        raise self.lacks("is_initialized")

    def get_device_name(self, index: int) -> str:
        if not self.can("get_device_name"):
            raise self.lacks("get_device_name")
        return torch.backends.mps.get_name()

    def get_device_properties(self, index: int) -> DeviceProperties:
        return DeviceProperties(
            name=self.get_device_name(index) if self.can("get_device_name") else None,
            backend=self.type,
            total_memory_bytes=torch.mps.recommended_max_memory(),
            compute_units=torch.backends.mps.get_core_count() if hasattr(torch.backends.mps, "get_core_count") else None,
            vendor="Apple",
        )

    def new_stream(self, index: int | None, priority: int) -> torch.Stream:
        # torch hands out the default stream here: a stream that is none.
        raise self.lacks("Stream")

    def default_stream(self, index: int) -> torch.Stream:
        stream: torch.Stream = self.current_stream(index)
        return stream

    def empty_host_cache(self) -> None:
        raise self.lacks("empty_host_cache")

    def memory_stats(self, index: int) -> Mapping[str, int]:
        return {
            "allocated_bytes.all.current": torch.mps.current_allocated_memory(),
            "reserved_bytes.all.current": torch.mps.driver_allocated_memory(),
        }

    def reset_peak_memory_stats(self, index: int) -> None:
        raise self.lacks("reset_peak_memory_stats")

    def reset_accumulated_memory_stats(self, index: int) -> None:
        raise self.lacks("reset_accumulated_memory_stats")

    def get_memory_info(self, index: int) -> tuple[int, int]:
        total = torch.mps.recommended_max_memory()
        return max(0, total - torch.mps.driver_allocated_memory()), total
