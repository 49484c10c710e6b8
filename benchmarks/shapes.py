"""Tiny tensors of a shape never seen before in every call, as in `generate` with its growing caches: the host's time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import torch

from benchmarks.compare import Result, compare, geometric_mean, timed
from benchmarks.operators import OPERATORS, Inputs

CALLS, ROUNDS, WARM_UP = 100, 15, 2


def run() -> Iterator[Result]:
    torch.set_num_threads(1)
    shapes = list(itertools.product(range(1, 13), repeat=3))
    random.Random(0).shuffle(shapes)
    here, there = ([Inputs.of(shape, device) for shape in shapes[: CALLS * (ROUNDS + WARM_UP)]] for device in ("cpu", "sim"))
    results = []
    for name, call in OPERATORS.items():
        mine, theirs = iter(there), iter(here)
        results.append(
            compare(
                "shapes",
                f"{name}, the host's time, always a new shape",
                "CPU eager",
                timed(lambda call=call, theirs=theirs: call(next(theirs)), CALLS),
                timed(lambda call=call, mine=mine: call(next(mine)), CALLS, torch.accelerator.synchronize),
                rounds=ROUNDS,
                warm_up=WARM_UP,
            )
        )
    yield from results
    yield geometric_mean(results, f"geometric mean of these {len(results)}", goal=3.0)
