"""Copies of 64 MiB, to the end, against memcpy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch

from benchmarks.compare import Result, compare, timed

BYTES = 64 << 20


def run() -> Iterator[Result]:
    source, target = torch.ones(BYTES, dtype=torch.uint8), torch.ones(BYTES, dtype=torch.uint8)
    pinned, landing = torch.ones(BYTES, dtype=torch.uint8).pin_memory(), torch.ones(BYTES, dtype=torch.uint8).pin_memory()
    first, second = torch.ones(BYTES, dtype=torch.uint8, device="sim"), torch.ones(BYTES, dtype=torch.uint8, device="sim")
    for name, to, origin in (
        ("pinned host to device", first, pinned),
        ("pageable host to device", first, source),
        ("device to pinned host", landing, first),
        ("device to the same device", second, first),
    ):
        yield compare(
            "copies",
            f"64 MiB, {name}",
            "memcpy",
            timed(lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), BYTES), 4),
            timed(lambda to=to, origin=origin: to.copy_(origin, non_blocking=True), 4, torch.accelerator.synchronize, to_the_end=True),
            goal=1.1,
        )
