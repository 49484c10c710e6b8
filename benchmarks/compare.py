"""The harness: measures a subject and its yardstick in turn, so that whatever disturbs the machine disturbs both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Measurement = Callable[[], float]


@dataclass(frozen=True)
class Result:
    """One line of the table: medians of what was measured; the ratio is subject / yardstick, round by round.

    Attributes:
        group: the file it comes from.
        name: what is measured.
        yardstick: what it is measured against.
        its: the yardstick's figure, in `unit`.
        ours: the subject's.
        ratio: ours / its, the median of the rounds.
        low: the lower quartile of the rounds.
        high: the upper quartile.
        goal: the ratio that we want to stay below; None where there is none.
        unit: "s" (per call) or "bytes".
    """

    group: str
    name: str
    yardstick: str
    its: float
    ours: float
    ratio: float
    low: float
    high: float
    goal: float | None = None
    unit: str = "s"


def timed(call: Callable[[], object], calls: int, settle: Callable[[], object] | None = None, *, to_the_end: bool = False) -> Measurement:
    """A measurement of `call`, in seconds per call over `calls` of them.

    Args:
        call: what is measured.
        calls: how many times it is called for one figure.
        settle: waits until everything that the calls began is done.
        to_the_end: whether that wait counts; otherwise only the host's time in the calls does.
    """

    def measure() -> float:
        if settle:
            settle()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        if to_the_end and settle:
            settle()
        took = time.perf_counter() - began
        if settle:
            settle()
        return took / calls

    return measure


def compare(
    group: str,
    name: str,
    yardstick: str,
    measure_yardstick: Measurement,
    measure_subject: Measurement,
    rounds: int = 31,
    *,
    warm_up: int = 2,
    goal: float | None = None,
    unit: str = "s",
) -> Result:
    """Measures both in turn, `rounds` times after `warm_up`; the ratio is the median, low and high are its quartiles."""
    gc.collect()
    gc.disable()
    pairs = [(measure_yardstick(), measure_subject()) for _ in range(warm_up + rounds)][warm_up:]
    gc.enable()
    low, ratio, high = statistics.quantiles([ours / its for its, ours in pairs], n=4)
    its, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Result(group, name, yardstick, its, ours, ratio, low, high, goal, unit)


def geometric_mean(results: Sequence[Result], name: str, goal: float) -> Result:
    """One line for several of the same group, yardstick and unit."""
    first = results[0]
    means = [statistics.geometric_mean(getattr(result, field) for result in results) for field in ("its", "ours", "ratio", "low", "high")]
    return Result(first.group, name, first.yardstick, *means, goal, first.unit)
