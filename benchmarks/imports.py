"""`import anyaccel` once torch is there, against the `import torch` of the same process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.compare import Result, compare

CODE = """
import sys, time
began = time.perf_counter()
import torch
between = time.perf_counter()
import anyaccel
print(between - began, time.perf_counter() - between)
"""


def run() -> Iterator[Result]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ANYACCEL_")}
    latest: list[float] = []

    def torch_seconds() -> float:
        done = subprocess.run([sys.executable, "-c", CODE], env=environ, capture_output=True, text=True, check=True)
        latest[:] = map(float, done.stdout.split())
        return latest[0]

    yield compare("imports", "import anyaccel, after torch", "import torch", torch_seconds, lambda: latest[1], rounds=9)
