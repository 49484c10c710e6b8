"""A tensor of the sim can't go to another process, and says so where it is sent; those of the CPU go as ever."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing

import anyaccel as acc

pytestmark = pytest.mark.sim

SENT = {
    "tensor": lambda device: torch.ones(3, device=device),
    "no elements": lambda device: torch.ones(0, device=device),
    "view": lambda device: torch.ones(3, 3, device=device).t()[1:],
    "weight": lambda device: torch.nn.Parameter(torch.ones(3, device=device)),
    "storage": lambda device: torch.ones(3, device=device).untyped_storage(),
    "module": lambda device: torch.nn.Linear(2, 2).to(device),
}


@pytest.mark.parametrize("make", SENT.values(), ids=SENT.keys())
def test_what_is_sent_says_that_it_cannot_go_and_what_to_do(make) -> None:
    ours, theirs = torch.multiprocessing.Pipe()
    with ours, theirs:
        with pytest.raises(acc.Unsupported, match=r"another process.*'sim'.*tensor\.cpu\(\)"):
            ours.send(make("sim"))
        assert not theirs.poll()
    queue = torch.multiprocessing.SimpleQueue()
    with pytest.raises(acc.Unsupported, match="DataLoader"):
        queue.put(make("sim"))
    assert queue.empty()
    queue.close()


@pytest.mark.parametrize("make", SENT.values(), ids=SENT.keys())
def test_what_is_on_the_cpu_goes(make) -> None:
    assert type(pickle.loads(ForkingPickler.dumps(make("cpu")))) is type(make("cpu"))


def test_plain_pickling_copies() -> None:
    assert pickle.loads(pickle.dumps(torch.ones(3, device="sim:1"))).tolist() == [1, 1, 1]
