"""What every test gets: a printed seed, and an honest answer to whether the sim is on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SEED = "ANYACCEL_TEST_SEED"


def sim_is_asked_for() -> bool:
    return os.environ.get("ANYACCEL_SIM", "").strip() not in ("", "0")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(SEED, "0")  # pytest-xdist's workers inherit it
    if sim_is_asked_for():
        import torch

        found = torch.accelerator.current_accelerator()
        if found is None or found.type != "sim":
            raise pytest.UsageError(
                f"ANYACCEL_SIM={os.environ['ANYACCEL_SIM']} is set, but torch's accelerator is {found}: is the package installed "
                f"(make install)? TORCH_DEVICE_BACKEND_AUTOLOAD is {os.environ.get('TORCH_DEVICE_BACKEND_AUTOLOAD', 'unset')}."
            )


def pytest_report_header() -> str:
    return f"{SEED}={os.environ[SEED]} ANYACCEL_SIM={os.environ.get('ANYACCEL_SIM', '')}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sim_is_asked_for():
        return
    skip = pytest.mark.skip(reason="needs a process that was started with ANYACCEL_SIM=4")
    for item in items:
        if item.get_closest_marker("sim"):
            item.add_marker(skip)


@pytest.fixture
def seed() -> int:
    """The seed of this run, for generators that a test makes itself."""
    return int(os.environ[SEED])


@pytest.fixture(autouse=True)
def seeded(seed: int) -> None:
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(seed)


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command in an empty folder, with none of this process's ANYACCEL_* settings but the cache; returns what it printed."""

    def call(*command: str, timeout_s: float = 300, **env: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ANYACCEL_") or k == "ANYACCEL_CACHE"}
        kept.pop("PYTEST_CURRENT_TEST", None)
        return subprocess.run(command, cwd=tmp_path, env={**kept, **env}, capture_output=True, text=True, timeout=timeout_s, check=False)

    return call
