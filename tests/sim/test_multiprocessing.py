"""A tensor of the sim can't go to another process, and says so where it is sent; those of the CPU go as ever."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing
import torch.utils.data

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
def test_who_waits_at_a_queue_is_told(make) -> None:
    queue = torch.multiprocessing.get_context("spawn").Queue()
    queue.put((0, make("sim")))  # a thread of the queue pickles it, later
    queue.put("next")
    with pytest.raises(acc.Unsupported, match=r"another process.*'sim'"):
        queue.get(timeout=60)
    assert queue.get(timeout=60) == "next"
    queue.close()
    queue.join_thread()


class OnTheDevice(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(3, device="sim")


def test_a_data_loader_whose_workers_return_device_tensors_raises() -> None:
    loader = torch.utils.data.DataLoader(OnTheDevice(), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(acc.Unsupported, match="DataLoader"):
        next(iter(loader))


@pytest.mark.parametrize("make", SENT.values(), ids=SENT.keys())
def test_what_is_on_the_cpu_goes(make) -> None:
    assert type(pickle.loads(ForkingPickler.dumps(make("cpu")))) is type(make("cpu"))


def test_plain_pickling_copies() -> None:
    assert pickle.loads(pickle.dumps(torch.ones(3, device="sim:1"))).tolist() == [1, 1, 1]
