"""Intel Gaudi. Its module is no part of torch, so each thing in it is looked for."""

from __future__ import annotations

from .torchlike import Vendor

__all__ = ["Hpu"]


class Hpu(Vendor):
    """`torch.hpu`."""

    type_name_in_torch = "HPU"
