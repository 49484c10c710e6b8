"""Tensors on their way to another process: those of the sim can't go, and say so."""

from __future__ import annotations

import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

from anyaccel.errors import Unsupported
from anyaccel.sim.config import DEVICE_NAME


def refuse_tensors() -> None:
    """Make torch.multiprocessing raise Unsupported for tensors of the sim. Blocks the host: no. Ordered on: nothing."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type != DEVICE_NAME:
        return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
    if threading.current_thread().name == "QueueFeederThread":
        # An error on that thread is printed, and whoever waits for the tensor waits for ever: it is raised there instead.
        return _refuse, ()
    _refuse()


def _refuse() -> NoReturn:
    raise Unsupported(
        "sending a tensor to another process",
        DEVICE_NAME,
        "send tensor.cpu() and move it to the device over there (in a DataLoader: let the workers return CPU tensors)",
    )
