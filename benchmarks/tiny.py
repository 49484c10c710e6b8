"""A tiny `x + x`: what a call costs the host, and how long 10,000 of them take to the end."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.compare import Result, compare, timed


def run() -> Iterator[Result]:
    torch.set_num_threads(1)
    here, there = torch.ones(8), torch.ones(8, device="sim")
    yield compare(
        "tiny",
        "x + x, the host's time",
        "CPU eager",
        timed(lambda: here + here, 500),
        timed(lambda: there + there, 500, torch.accelerator.synchronize),  # 500: the queue holds 1,024 before the host waits
    )
    yield compare(
        "tiny",
        "10,000 of x + x, to the end",
        "CPU eager",
        timed(lambda: here + here, 10_000),
        timed(lambda: there + there, 10_000, torch.accelerator.synchronize, to_the_end=True),
        rounds=15,
    )
