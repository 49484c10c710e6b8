"""`torch.empty` and its release."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.compare import Result, compare, timed


def empty(bytes_: int, device: str) -> Callable[[], None]:
    def call() -> None:
        torch.empty(bytes_, dtype=torch.uint8, device=device)

    return call


def run() -> Iterator[Result]:
    for bytes_, text, goal in ((1 << 10, "1 KiB", 1.3), (1 << 20, "1 MiB", 1.0), (64 << 20, "64 MiB", 1.0)):
        yield compare(
            "allocation",
            f"torch.empty and free, {text}",
            "CPU",
            timed(empty(bytes_, "cpu"), 2000),
            timed(empty(bytes_, "sim"), 2000, torch.accelerator.synchronize),
            goal=goal,
        )
