"""Peak resident memory of whole processes, with one intra-op thread on either side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.compare import Result, compare
from benchmarks.training import DEMO

ROOT = Path(__file__).parent.parent
# Not getrusage on Linux: what it gives begins at the peak of the process that forked.
PEAK = """
from pathlib import Path
if (status := Path("/proc/self/status")).exists():
    print(1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:")))
else:
    import resource
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
RUN_DEMO = "import runpy, sys; sys.argv = [{demo!r}, *{options}]; runpy.run_path({demo!r}, run_name='__main__')"
RUN_STEPS = "import torch; from benchmarks.training import transformer; step = transformer({device!r}); [step() for _ in range(30)]"
WAIT = "torch.accelerator.synchronize()"


def peak_of(*code: str, **env: str) -> Callable[[], float]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANYACCEL_") or name == "ANYACCEL_CACHE"}

    def measure() -> float:
        command = [sys.executable, "-c", "\n".join((*code, PEAK))]
        done = subprocess.run(command, cwd=ROOT, env={**kept, "OMP_NUM_THREADS": "1", **env}, capture_output=True, text=True, check=True)
        return float(done.stdout.splitlines()[-1])

    return measure


def run() -> Iterator[Result]:
    demo = str(DEMO)
    for name, cpu, sim in (
        ("the demo", [RUN_DEMO.format(demo=demo, options=["--allow-cpu"])], [RUN_DEMO.format(demo=demo, options=[])]),
        ("30 steps of a transformer", [RUN_STEPS.format(device="cpu")], [RUN_STEPS.format(device="sim"), WAIT]),
    ):
        measures = peak_of(*cpu), peak_of(*sim, ANYACCEL_SIM="2")
        yield compare("memory", f"peak of {name}", "CPU, one thread", *measures, rounds=3, warm_up=0, goal=1.15, unit="bytes")
