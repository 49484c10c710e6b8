"""Tiny tensors of one shape: what each call costs the host, and how long 10,000 of them take to the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from benchmarks.compare import Result, compare, geometric_mean, timed
from benchmarks.operators import OPERATORS, Inputs

SHAPE = (2, 4, 8)
CALLS = 250  # what is enqueued in one go stays below the 1,024 tasks of a queue, at which the host would wait


def run() -> Iterator[Result]:
    torch.set_num_threads(1)
    here, there = Inputs.of(SHAPE, "cpu"), Inputs.of(SHAPE, "sim")
    settle = torch.accelerator.synchronize
    results = [
        compare(
            "tiny",
            f"{name}, the host's time",
            "CPU eager",
            timed(lambda call=call: call(here), CALLS),
            timed(lambda call=call: call(there), CALLS, settle),
        )
        for name, call in OPERATORS.items()
    ]
    yield from results
    yield geometric_mean(results, f"geometric mean of these {len(results)}", goal=1.0)
    in_turn = [itertools.cycle(OPERATORS.values()) for _ in range(2)]
    for name, mine, theirs in (
        ("x + y", lambda: there.x + there.y, lambda: here.x + here.y),
        (f"these {len(results)} in turn", lambda: next(in_turn[0])(there), lambda: next(in_turn[1])(here)),
    ):
        yield compare(
            "tiny",
            f"10,000 calls of {name}, to the end",
            "CPU eager",
            timed(theirs, 10_000),
            timed(mine, 10_000, settle, to_the_end=True),
            rounds=15,
            goal=1.3,
        )
