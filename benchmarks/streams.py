"""Two streams: matrix products against the same number on one, and handing over by events against two threads that do."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import anyaccel as acc
from anyaccel.sim.toolchain import Toolchain
from benchmarks.compare import Result, compare, timed

PRODUCTS = 32  # long enough for the system to have put the two workers on two cores

HANDOVERS = 1000


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


def threads_hand_over() -> Callable[[], None]:
    source = Path(__file__).with_name("handover.cpp")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "handover.so")
        flags = ["-O2", "-std=c++20", "-shared", "-fPIC", "-pthread"]
        subprocess.run([*Toolchain.current().command, *flags, str(source), "-o", str(library)], check=True)
        hand_over = ctypes.CDLL(str(library)).hand_over
    return lambda: hand_over(HANDOVERS)


def streams_hand_over(streams: list[torch.Stream]) -> Callable[[], None]:
    pairs = (streams, streams[::-1])

    def work() -> None:
        for index in range(HANDOVERS):
            giver, taker = pairs[index % 2]
            taker.wait_event(giver.record_event())

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
        goal=1 / 1.9,
    )
    yield compare(
        "streams",
        f"{HANDOVERS:,} pairs of record and wait between two streams",
        "condition variable, two threads",
        timed(threads_hand_over(), 1),
        timed(streams_hand_over(two), 1, acc.synchronize, to_the_end=True),
        goal=2.0,
    )
