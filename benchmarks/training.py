"""Training steps, to the end, with one intra-op thread on either side."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.compare import Result, compare, timed

DEMO = Path(__file__).parent.parent / "examples" / "digits.py"
Step = Callable[[], None]


def step_of(model: nn.Module, inputs: Tensor, device: str) -> Step:
    """A step on random labels of ten classes."""
    model, inputs, labels = model.to(device), inputs.to(device), torch.randint(10, (len(inputs),)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def cnn(device: str, batch: int) -> Step:
    spec = importlib.util.spec_from_file_location("digits", DEMO)
    assert spec is not None
    assert spec.loader is not None
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    return step_of(digits.Net(), torch.rand(batch, 1, 8, 8), device)


def transformer(device: str, batch: int = 64) -> Step:
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(32 * 64, 10))
    return step_of(model, torch.rand(batch, 32, 64), device)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(32, 64, num_layers=2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm(device: str, batch: int = 64) -> Step:
    return step_of(Recurrent(), torch.rand(batch, 32, 32), device)


def run() -> Iterator[Result]:
    torch.set_num_threads(1)
    for name, make, calls in (
        ("the demo's CNN, batch 32", lambda device: cnn(device, 32), 10),
        ("the demo's CNN, batch 256", lambda device: cnn(device, 256), 5),
        ("a transformer of 2 layers, batch 64", transformer, 5),
        ("an LSTM of 2 layers, batch 64", lstm, 5),
    ):
        yield compare(
            "training",
            f"step of {name}",
            "CPU, one thread",
            timed(make("cpu"), calls),
            timed(make("sim"), calls, torch.accelerator.synchronize, to_the_end=True),
            rounds=15,
            goal=1.05,
        )
