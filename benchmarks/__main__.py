"""`python -m benchmarks [GROUP…] [--record]` prints the table; --record also writes it to benchmarks/RESULTS.md, above the notes there."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from pathlib import Path

os.environ.setdefault("ANYACCEL_SIM", "2")  # before torch is imported

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.compare import Result

GROUPS = ("tiny", "shapes", "training", "streams", "allocation", "copies", "memory", "api", "imports")
RESULTS = Path(__file__).parent / "RESULTS.md"
NOTES = "\n## Notes\n"  # what follows is written by hand, and stays
HEAD = ("group", "what", "against", "its", "ours", "ratio", "goal", "quartiles")


SCALES = {"s": (("s", 1), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)), "bytes": (("MiB", 2**-20),)}


def quantity(value: float, unit: str) -> str:
    name, scale = next((each for each in SCALES[unit] if value * each[1] >= 1), SCALES[unit][-1])
    return f"{value * scale:.3g} {name}"


def cells(result: Result) -> tuple[str, ...]:
    figures = quantity(result.its, result.unit), quantity(result.ours, result.unit)
    goal = "" if result.goal is None else f"{result.goal:.2f}{' missed' if result.ratio > result.goal else ''}"
    return result.group, result.name, result.yardstick, *figures, f"{result.ratio:.2f}", goal, f"{result.low:.2f} to {result.high:.2f}"


def machine() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return f"{os.cpu_count()} cores, {model}, {platform.system()} {platform.machine()}"


def record(results: list[Result], command: str) -> None:
    rows = [HEAD, ("---",) * len(HEAD), *map(cells, results)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    _, marker, notes = RESULTS.read_text().partition(NOTES) if RESULTS.exists() else ("", "", "")
    RESULTS.write_text(
        "# Results\n\n"
        f"`{command}` on {machine()}; torch {torch.__version__}, Python {platform.python_version()}.\n\n"
        "In each line yardstick and subject took turns. Figures are medians, times are per call; the ratio is ours over its, the median\n"
        "of the rounds, and the quartiles say how far the rounds spread. Below 1 we are better; a goal is the largest ratio we want.\n\n"
        f"{table}\n{marker}{notes}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"any of {', '.join(GROUPS)}; all if none is named")
    parser.add_argument("--record", action="store_true", help=f"write the table to {RESULTS.name}")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.groups) - set(GROUPS)):
        parser.error(f"there is no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    groups = arguments.groups or GROUPS
    results: list[Result] = []
    console, progress = Console(width=None if sys.stdout.isatty() else 160), Progress(console=Console(stderr=True), transient=True)
    console.print(f"{machine()}; torch {torch.__version__}, Python {platform.python_version()}")
    with progress:
        for group in progress.track(groups, description="measuring"):
            found = list(importlib.import_module(f"benchmarks.{group}").run())
            table = Table(*HEAD)
            for result in found:
                table.add_row(*cells(result))
            console.print(table)
            results += found
    if arguments.record:
        record(results, " ".join(("python -m benchmarks", *arguments.groups)))


if __name__ == "__main__":
    main()
