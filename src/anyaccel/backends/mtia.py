"""Meta's accelerators."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .torchlike import TorchLike

__all__ = ["Mtia"]


class Mtia(TorchLike):
    """`torch.mtia`, whose statistics have names of their own."""

    type_name_in_torch = "MTIA"

    has_device_allocator = False

    def get_device_name(self, index: int) -> str:
        raise self.lacks("get_device_name")

    def memory_stats(self, index: int) -> Mapping[str, int]:
        dram = torch.mtia.memory_stats(index).get("dram", {})
        names = {"allocated_bytes": "allocated_bytes.all.current", "peak_bytes": "allocated_bytes.all.peak"}
        return {ours: int(dram[theirs]) for theirs, ours in names.items() if theirs in dram}

    def reset_accumulated_memory_stats(self, index: int) -> None:
        raise self.lacks("reset_accumulated_memory_stats")

    def get_memory_info(self, index: int) -> tuple[int, int]:
        raise self.lacks("get_memory_info")
