"""Any accelerator outside torch's tree that took the PrivateUse1 slot and named it: npu, musa, and so on."""

from __future__ import annotations

from .torchlike import Vendor

__all__ = ["PrivateUse1"]


class PrivateUse1(Vendor):
    """`torch.<name>`, as far as its vendor follows `torch.cuda`."""

    type_name_in_torch = "PrivateUse1"
