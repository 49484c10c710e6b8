"""The harness: measures a subject and its yardstick in turn, so that whatever disturbs the machine disturbs both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Measurement = Callable[[], float]


@dataclass(frozen=True)
class Result:
    """One line of the table. Times are medians in seconds per call; the ratio is subject / yardstick, round by round."""

    group: str
    name: str
    yardstick: str
    yardstick_s: float
    subject_s: float
    ratio: float
    low: float
    high: float
    rounds: int


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
    group: str, name: str, yardstick: str, measure_yardstick: Measurement, measure_subject: Measurement, rounds: int = 31
) -> Result:
    """Measures both in turn, `rounds` times after two for warming up; the ratio is the median, low and high are its quartiles."""
    gc.collect()
    gc.disable()
    pairs = [(measure_yardstick(), measure_subject()) for _ in range(rounds + 2)][2:]
    gc.enable()
    ratios = [subject / reference for reference, subject in pairs]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    reference_s, subject_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Result(group, name, yardstick, reference_s, subject_s, ratio, low, high, rounds)
