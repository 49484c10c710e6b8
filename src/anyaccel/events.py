"""Events: points in a stream that others wait for, and that measure time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .backends import registry
from .devices import Device, index_of

__all__ = ["Event"]


if TYPE_CHECKING:
    _Event = torch.Event
else:
    _Event = object


class _TorchEvents(type):
    """`Event` is any event object of torch or of a vendor, since `Event()` makes one of those.

    There is no __subclasscheck__: Dynamo would take the object for an instance made by `Event` and call its __init__.
    """

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, (torch.Event, torch.cuda.Event, torch.xpu.Event))


class Event(_Event, metaclass=_TorchEvents):
    """Make an event: torch's own object, or the vendor's (`torch.cuda.Event`) where there is one.

    Never recorded, `query()` is True, `synchronize()` and `wait()` do nothing. Each `record` makes a new version, and who
    waits keeps the version that was current when the wait was called. An event belongs to the device of the stream it was
    first recorded on; streams of other devices may wait for it.

    Args:
        device: must name a device of this accelerator; torch uses nothing else of it, as the first `record` decides.
        enable_timing: whether `elapsed_time` (in ms) may be asked.
        blocking: the host sleeps in `synchronize()` instead of spinning.
        interprocess: the event can be shared with other processes.

    Blocks the host: no. Ordered on: nothing, before `record`.
    Source: `torch.Event`, `torch.cuda.Event`; torch drops flags that it cannot honour, here they raise.

    Raises:
        NoAccelerator: if there is none.
        Unsupported: for a flag that the backend cannot honour.
    """

    # A Python subclass of torch.Event, or a metaclass __call__, would break fullgraph=True.
    def __new__(  # type: ignore[misc]
        cls, device: Device = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        """Make the object."""
        if device is not None:
            index_of(device)
        return (registry.active or registry.choose()).new_event(enable_timing, blocking, interprocess)
