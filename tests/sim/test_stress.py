"""Random programs over random streams, ordered by the right events, equal the CPU's."""

from __future__ import annotations

import random

import pytest
import torch
from torch.testing import assert_close

import anyaccel as acc

pytestmark = pytest.mark.sim

UNARY = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.abs, lambda x: x * 0.5, lambda x: x.t().contiguous(), lambda x: x.clone()]
BINARY = [
    lambda a, b: (a + b) / 2,
    lambda a, b: a * b,
    torch.maximum,
    lambda a, b: (a @ b).tanh(),
    lambda a, b: a.copy_(b),
    lambda a, b: a.mul_(b),
]


class Cell:
    """A value on the device beside its twin on the CPU, with what orders its uses."""

    def __init__(self, value: torch.Tensor, device: str) -> None:
        self.cpu, self.sim = value, value.to(device)
        self.home = torch.accelerator.current_stream(self.sim.device)
        self.written = torch.Event(device)
        self.written.record(self.home)
        self.reads: list[torch.Event] = []


@pytest.mark.parametrize("round_", range(4))
def test_random_programs_equal_the_cpu(seed: int, round_: int) -> None:
    rng = random.Random(seed * 1000 + round_)
    torch.manual_seed(rng.randrange(1 << 30))
    devices = ["sim:0", "sim:1"]
    streams = {device: [torch.Stream(device) for _ in range(4)] for device in devices}
    cells = {device: [Cell(torch.randn(6, 6), device) for _ in range(8)] for device in devices}
    for _ in range(1500):
        device = rng.choice(devices)
        stream = rng.choice(streams[device])
        a, b = rng.sample(cells[device], 2)
        operator = rng.choice(BINARY)
        with acc.stream(stream):
            stream.wait_event(a.written)
            stream.wait_event(b.written)
            for event in a.reads:
                stream.wait_event(event)
            a.sim.record_stream(stream)
            b.sim.record_stream(stream)
            if rng.random() < 0.5:
                operator = rng.choice(UNARY)
                cpu, sim = operator(a.cpu), operator(a.sim)
            else:
                cpu, sim = operator(a.cpu, b.cpu), operator(a.sim, b.sim)
            a.cpu, a.sim = cpu, sim
            a.written = torch.Event(device)
            a.written.record(stream)
            a.reads = []
            read = torch.Event(device)
            read.record(stream)
            b.reads.append(read)
        if rng.random() < 0.02:  # a copy to the other device
            other = devices[1 - devices.index(device)]
            c = rng.choice(cells[other])
            torch.accelerator.synchronize(0)
            torch.accelerator.synchronize(1)
            c.sim.copy_(a.sim)
            c.cpu = a.cpu.clone()
            torch.accelerator.synchronize(0)
            torch.accelerator.synchronize(1)
    for device in devices:
        for cell in cells[device]:
            torch.accelerator.synchronize(cell.sim.device)
            assert_close(cell.sim.cpu(), cell.cpu, rtol=1e-4, atol=1e-5)
