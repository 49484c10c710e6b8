"""A training step of the demo's CNN, to the end, with one intra-op thread on either side."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from benchmarks.compare import Result, compare, timed

DEMO = Path(__file__).parent.parent / "examples" / "digits.py"


def step_on(device: str, batch: int) -> Callable[[], None]:
    spec = importlib.util.spec_from_file_location("digits", DEMO)
    assert spec is not None
    assert spec.loader is not None
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    torch.manual_seed(0)
    images, labels = torch.rand(batch, 1, 8, 8).to(device), torch.randint(10, (batch,)).to(device)
    model = digits.Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def run() -> Iterator[Result]:
    torch.set_num_threads(1)
    for batch in (32, 256):
        yield compare(
            "training",
            f"step of the demo's CNN, batch {batch}",
            "CPU, one thread",
            timed(step_on("cpu", batch), 10),
            timed(step_on("sim", batch), 10, torch.accelerator.synchronize, to_the_end=True),
            rounds=15,
        )
