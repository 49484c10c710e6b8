"""What is remembered about shapes stays bounded."""

from __future__ import annotations

import pytest
import torch

import anyaccel as acc

pytestmark = pytest.mark.sim

MOST = 2 * 8192  # two generations, as csrc/torch/infer.cpp has it


def test_a_loop_whose_shapes_change_remembers_a_bounded_number() -> None:
    numbers = torch.rand(10_000, device="sim")
    remembered = []
    for length in range(1, 10_001):
        part = numbers[-length:]
        part.median(), part.kthvalue(1)
        remembered.append(acc.sim.stats()["remembered_shapes"])
    torch.accelerator.synchronize()
    assert max(remembered) > MOST / 2, "these operators are not remembered, so that this test tests nothing"
    assert max(remembered) <= MOST
