"""Matrix products on two streams against the same number of them on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

import anyaccel as acc
from benchmarks.compare import Result, compare, timed

PRODUCTS = 32  # long enough for the system to have put the two workers on two cores


def products_on(streams: list[torch.Stream]) -> Callable[[], None]:
    a, b = torch.rand(1024, 1024, device="sim"), torch.rand(1024, 1024, device="sim")
    outs = [torch.empty(1024, 1024, device="sim") for _ in streams]
    acc.synchronize()

    def work() -> None:
        for _ in range(PRODUCTS // len(streams)):
            for stream, out in zip(streams, outs, strict=True):
                with acc.stream(stream):
                    torch.mm(a, b, out=out)

    return work


def run() -> Iterator[Result]:
    one, two = [acc.Stream()], [acc.Stream(), acc.Stream()]
    yield compare(
        "streams",
        f"{PRODUCTS} products of 1024 x 1024 on two streams",
        "on one stream",
        timed(products_on(one), 1, acc.synchronize, to_the_end=True),
        timed(products_on(two), 1, acc.synchronize, to_the_end=True),
        rounds=21,
    )
