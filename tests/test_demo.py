"""The demo trains to its goal on simulated devices and on the CPU, and names no backend."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DEMO = Path(__file__).parent.parent / "examples" / "digits.py"
ANYACCEL = str(Path(sys.executable).with_name("anyaccel"))


def figures(text: str) -> dict[str, float]:
    """What the demo printed, by the words before the colon; numbers without their units."""
    return {name: float(value) for name, value in re.findall(r"^(.+): ([0-9.]+)", text, re.MULTILINE)}


def test_it_names_no_backend_and_is_short() -> None:
    text = DEMO.read_text()
    assert len(text.splitlines()) < 150
    assert not re.search(r"\b(cuda|xpu|mps|mtia|hpu|npu|torch\.sim|['\"]sim)\b", text)


@pytest.mark.parametrize("devices", ["1", "2"])
def test_it_reaches_its_goal_on_simulated_devices(run: Run, devices: str) -> None:
    done = run(ANYACCEL, "run", "--sim", devices, str(DEMO), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    found = figures(done.stdout)
    assert found["accuracy on the held-out third"] >= 97
    assert found["step"] > 0
    assert 0 <= found["copying that overlapped with steps"] <= 100
    peaks = [found[f"peak memory on sim:{index}"] for index in range(int(devices))]
    assert all(0.1 < peak < 100 for peak in peaks)
    assert f"evaluating on sim:{int(devices) - 1}" in done.stdout


def test_the_cpu_stands_in_to_the_same_accuracy(run: Run) -> None:
    on_sim = figures(run(ANYACCEL, "run", "--sim", "2", str(DEMO), OMP_NUM_THREADS="1").stdout)
    done = run(sys.executable, str(DEMO), "--allow-cpu", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    name = "accuracy on the held-out third"
    assert abs(figures(done.stdout)[name] - on_sim[name]) <= 0.5


def test_a_goal_that_is_missed_is_a_failure(run: Run) -> None:
    done = run(sys.executable, str(DEMO), "--allow-cpu", "--epochs", "1", "--batch", "1200", OMP_NUM_THREADS="1")
    assert done.returncode == 1
    assert "below 97%" in done.stderr


def test_with_no_accelerator_it_says_how_to_get_one(run: Run) -> None:
    done = run(sys.executable, str(DEMO))
    assert done.returncode == 1
    assert "ANYACCEL_SIM=2" in done.stderr
