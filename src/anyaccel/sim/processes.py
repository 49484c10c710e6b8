"""Tensors on their way to another process: those of the sim can't go, and say so where they are sent."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from anyaccel.errors import Unsupported
from anyaccel.sim.config import DEVICE_NAME


def refuse_tensors() -> None:
    """Make torch.multiprocessing raise Unsupported for tensors of the sim. Blocks the host: no. Ordered on: nothing."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type == DEVICE_NAME:
        raise Unsupported(
            "sending a tensor to another process",
            DEVICE_NAME,
            "send tensor.cpu() and move it to the device over there (in a DataLoader: let the workers return CPU tensors)",
        )
    return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
