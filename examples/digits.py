"""Trains a small CNN on real handwritten digits, on whatever accelerator there is.

One stream computes while another copies the next batch ahead; a second device, where there is one, evaluates while the first trains on.

    anyaccel run --sim 2 examples/digits.py     # two simulated devices
    python examples/digits.py                   # the accelerator of this machine
    python examples/digits.py --allow-cpu       # the CPU stands in where there is none
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Iterator

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from torch import Tensor, nn

import anyaccel as acc

GOAL = 0.97
Pair = tuple[Tensor, Tensor]
Span = tuple[torch.Event, torch.Event]


class Net(nn.Sequential):
    """A CNN for grey images of 8 by 8: (batch, 1, 8, 8) to (batch, 10)."""

    def __init__(self) -> None:
        features = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*features, nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 10))


def begin(spans: list[Span]) -> torch.Event:
    """Begins a span of time on the current stream; recording the event that is returned ends it."""
    spans.append((acc.Event(enable_timing=True), acc.Event(enable_timing=True)))
    spans[-1][0].record()
    return spans[-1][1]


def overlap(origin: torch.Event, copies: list[Span], steps: list[Span]) -> float:
    """The share of the copying during which a step was under way."""
    (copied, stepped) = ([[origin.elapsed_time(event) for event in span] for span in spans] for spans in (copies, steps))
    shared = sum(max(0.0, min(end, stop) - max(begin, start)) for begin, end in copied for start, stop in stepped)
    return shared / sum(end - begin for begin, end in copied)


def load() -> tuple[Pair, Pair]:
    """Images and labels on the host: two thirds to train with, and the third that is held out."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    third = len(order) // 3
    return (images[order[third:]], labels[order[third:]]), (images[order[:third]], labels[order[:third]])


def batches(data: Pair, size: int, device: torch.device, copying: torch.Stream, spans: list[Span]) -> Iterator[list[Tensor]]:
    """Yields shuffled batches on `device`, each copied on the stream `copying` while the one before it was in use."""
    ahead: tuple[list[Tensor], torch.Event] | None = None
    for rows in (*torch.randperm(len(data[0])).split(size), None):
        ready, ahead = ahead, None
        if rows is not None:
            host = [part[rows].pin_memory() if acc.is_available() else part[rows] for part in data]
            with acc.stream(copying):
                copied = begin(spans)
                ahead = [part.to(device, non_blocking=True) for part in host], copied
                copied.record()
        if ready is not None:
            using = acc.current_stream()
            using.wait_event(ready[1])
            for part in ready[0] if acc.is_available() else ():
                part.record_stream(using)  # `copying` allocated it, and must not reuse it before `using` is done with it
            yield ready[0]


class Evaluator:
    """Measures a model with a replica on a device of its own, while the model trains on."""

    def __init__(self, model: nn.Module, data: Pair, device: torch.device) -> None:
        self.replica, self.device = copy.deepcopy(model).to(device), device
        self.images, self.labels = (part.to(device) for part in data)

    @torch.no_grad()
    def start(self, model: nn.Module) -> tuple[Tensor, torch.Event]:
        """Returns the accuracy, which is there once the event is reached. The host does not wait."""
        with acc.device(self.device.index):
            for mine, theirs in zip(self.replica.parameters(), model.parameters(), strict=True):
                mine.copy_(theirs, non_blocking=True)
            accuracy = (self.replica(self.images).argmax(1) == self.labels).float().mean()
            return accuracy, acc.current_stream().record_event()


def train(epochs: int, size: int) -> float:
    torch.manual_seed(0)
    kind = (acc.current_accelerator(check_available=True) or torch.device("cpu")).type
    first, second = torch.device(kind, 0), torch.device(kind, 1 if acc.device_count() > 1 else 0)
    training, held_out = load()
    model = Net().to(first)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    evaluator, copying = Evaluator(model, held_out, second), acc.Stream() if acc.supports("Stream") else acc.current_stream()
    copies, steps, origin = [], [], acc.Event(enable_timing=True)
    origin.record()
    columns = TextColumn("training on {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, TextColumn("{task.fields[accuracy]}")) as progress:
        bar = progress.add_task(f"{first}, evaluating on {second}", total=epochs * -(-len(training[0]) // size), accuracy="")
        accuracy, done = evaluator.start(model)
        for _ in range(epochs):
            for images, labels in batches(training, size, first, copying, copies):
                stepped = begin(steps)
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                stepped.record()
                progress.advance(bar)
            if done.query():  # of the epoch before; asking does not make the host wait
                progress.update(bar, accuracy=f"{accuracy.item():.2%}")
            accuracy, done = evaluator.start(model)
        done.synchronize()
        progress.update(bar, accuracy=f"{accuracy.item():.2%}")
    acc.synchronize(0)
    step_ms = statistics.median(start.elapsed_time(end) for start, end in steps)
    print(f"accuracy on the held-out third: {accuracy.item():.2%}")
    print(f"step: {step_ms:.2f} ms (median of {len(steps)}, batches of {size})")
    print(f"copying that overlapped with steps: {overlap(origin, copies, steps):.0%}")
    for index in range(acc.device_count() if acc.supports("max_memory_allocated") else 0):
        print(f"peak memory on {kind}:{index}: {acc.memory.max_memory_allocated(index) / 2**20:.1f} MiB")
    return accuracy.item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small CNN on handwritten digits, on whatever accelerator there is.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32, metavar="SIZE")
    parser.add_argument("--allow-cpu", action="store_true", help="let the CPU stand in where there is no accelerator")
    arguments = parser.parse_args()
    if arguments.allow_cpu:
        acc.allow_cpu()
    if train(arguments.epochs, arguments.batch) < GOAL:
        sys.exit(f"the accuracy is below {GOAL:.0%}")


if __name__ == "__main__":
    main()
