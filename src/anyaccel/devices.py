"""Which accelerator this process has, how many devices of it, and which one is current.

Here is also, once for all nouns, how a `device` argument is read (`index_of`).
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import Any, TypeAlias

import torch

from .backends import registry, table
from .backends.base import Backend, DeviceProperties, traced_as

__all__ = [
    "Device",
    "DeviceProperties",
    "allow_cpu",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "device",
    "device_count",
    "device_index",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "index_of",
    "init",
    "is_available",
    "is_initialized",
    "set_device_idx",
    "set_device_index",
    "supports",
    "synchronize",
]

Device: TypeAlias = "int | str | torch.device | None"


def index_of(device: Device) -> int:
    """Return the device index that `device` means: the one way in which every function here reads its argument.

    Args:
        device: an index, a string or `torch.device` of the accelerator's type, or None for the current device. A device
            without an index, and a negative index, mean the current device too (as in `torch.cuda`).

    Blocks the host: no. Ordered on: nothing.

    Raises:
        ValueError: for another device type (the message names both), and for an index that does not exist.
        TypeError: for anything else.
    """
    backend = registry.active
    if isinstance(device, int) and backend is not None and 0 <= device < backend.known_device_count:
        return device
    return _index_of(device, backend or registry.choose())


def _index_of(device: Device, backend: Backend) -> int:
    index = device
    if device is not None and not isinstance(device, int):
        if isinstance(device, str):
            device = torch.device(device)
        if not isinstance(device, torch.device):
            raise TypeError(f"a device is an int, a str, a torch.device or None, not {type(device).__name__}: {device!r}")
        if device.type != backend.type and backend.type:
            raise ValueError(f"{str(device)!r} is a device of type {device.type!r}, but the accelerator here is {backend.type!r}")
        index = device.index
    assert index is None or isinstance(index, int)
    if not backend.type:
        return 0  # with no accelerator the call itself says what it needs one for
    if index is None or index < 0:
        return current_device_index()
    if index >= backend.known_device_count:
        _check_index(index)
    return index


def _check_index(index: int) -> None:
    """Raise ValueError if there is no device `index`, also counting those that came since the last look."""
    backend = registry.backend()
    count = backend.device_count()
    backend.known_device_count = count
    if index >= count:
        those = "0 is the only one" if count == 1 else f"they are 0 to {count - 1}"
        raise ValueError(f"there is no device {index}: {backend.type!r} has {count} here ({those})")


def current_accelerator(check_available: bool = False) -> torch.device | None:
    """Return the accelerator of this process, without an index, or None.

    Args:
        check_available: also ask whether a device is there at run time.

    Blocks the host: no. Initialises no device and does not poison `fork`.
    Source: `torch.accelerator.current_accelerator`; torch 2.6 had no argument and raised.
    """
    if check_available and not is_available():
        return None
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:
        return None


def is_available() -> bool:
    """Return whether there is an accelerator with at least one device. Never raises.

    Blocks the host: no. Source: `torch.accelerator.is_available`.
    """
    try:
        return torch.accelerator.is_available()
    except Exception:  # whatever a vendor's module does: a device that cannot be asked for is not available
        return False


def device_count() -> int:
    """Return the number of devices, 0 with no accelerator.

    Blocks the host: no. Initialises no device. Source: `torch.accelerator.device_count`.
    """
    try:
        return torch.accelerator.device_count()
    except RuntimeError:  # torch 2.6 raises with no accelerator
        return 0


def init() -> None:
    """Initialise the accelerator now instead of at its first use; nothing if that has happened.

    Blocks the host: yes, while the driver starts. Source: `torch.cuda.init`.

    Raises:
        NoAccelerator: if there is none.
        Unsupported: where the backend initialises itself only (MPS).
    """
    registry.backend().init()


def is_initialized() -> bool:
    """Return whether the accelerator has been initialised; False with none.

    Blocks the host: no. Source: `torch.cuda.is_initialized`.
    """
    return registry.backend().is_initialized()


def _traced_current_device_index() -> int:
    return registry.backend().traced.current_device_index()


@traced_as(_traced_current_device_index)
def current_device_index() -> int:
    """Return the index of this thread's current device.

    Blocks the host: no. Source: `torch.accelerator.current_device_index`.

    Raises:
        NoAccelerator: if there is none.
    """
    return (registry.active or registry.choose()).current_device_index()


def set_device_index(device: Device) -> None:
    """Make a device current for this thread.

    Args:
        device: as everywhere; a negative index changes nothing.

    Blocks the host: no. Source: `torch.accelerator.set_device_index`, `torch.cuda.set_device`.

    Raises:
        ValueError: for None, another device type, or an index that does not exist.
        NoAccelerator: if there is none.
    """
    if isinstance(device, int) and device < 0:
        return
    if device is None:
        raise ValueError("set_device_index: a device is needed, not None")
    (registry.active or registry.choose()).set_device_index(index_of(device))


def current_device_idx() -> int:
    """Deprecated, as in torch: use `current_device_index`."""
    warnings.warn("current_device_idx is deprecated: use current_device_index", FutureWarning, stacklevel=2)
    return current_device_index()


def set_device_idx(device: Device) -> None:
    """Deprecated, as in torch: use `set_device_index`."""
    warnings.warn("set_device_idx is deprecated: use set_device_index", FutureWarning, stacklevel=2)
    set_device_index(device)


class _DeviceContext:
    """Switches the device; may be entered again while entered, and by several threads."""

    __slots__ = ("_index", "_saved")

    def __init__(self, index: int) -> None:
        self._index = index
        self._saved: dict[int, tuple[int, Any]] = {}  # by thread: the device before, and what was saved here before that

    def __enter__(self) -> None:
        thread, saved = get_ident(), self._saved
        saved[thread] = ((registry.active or registry.choose()).exchange_device(self._index), saved.get(thread))

    def __exit__(self, *exc_info: object) -> None:
        thread, saved = get_ident(), self._saved
        before, outer = saved.pop(thread)
        if outer is not None:
            saved[thread] = outer
        (registry.active or registry.choose()).restore_device(before)


def _traced_device(device: Device) -> AbstractContextManager[None]:
    if device is None or (isinstance(device, int) and device < 0):
        return nullcontext()
    return registry.backend().traced.device_context(index_of(device))


@traced_as(_traced_device)
def device(device: Device) -> AbstractContextManager[None]:
    """Return a context in which `device` is current for this thread.

    It restores the device on the way out, after exceptions too, and may be entered again while entered. It is not
    `torch.device`, which is a context as well but leaves the index alone.

    Args:
        device: as everywhere; None or a negative index: the context does nothing.

    Blocks the host: no. Source: `torch.cuda.device`, `torch.accelerator.device_index`.

    Raises:
        ValueError: for another device type or an index that does not exist.
        NoAccelerator: if there is none (when entered).
    """
    if device is None or (isinstance(device, int) and device < 0):
        return nullcontext()
    return _DeviceContext(index_of(device))


device_index = device


def device_of(obj: Any) -> AbstractContextManager[None]:
    """Return a context in which the device of a tensor or storage is current; it does nothing for CPU and meta objects.

    Args:
        obj: whatever has a `device`.

    Blocks the host: no. Source: `torch.cuda.device_of`.

    Raises:
        ValueError: if the object is on a device of another type.
    """
    where: torch.device = obj.device
    return device(None if where.type in ("cpu", "meta") else where)


def _traced_synchronize(device: Device = None) -> None:
    traced = registry.backend().traced
    traced.synchronize() if device is None else traced.synchronize(index_of(device))


@traced_as(_traced_synchronize)
def synchronize(device: Device = None) -> None:
    """Wait until everything enqueued on all streams of one device has completed. The current device stays as it is.

    Args:
        device: as everywhere.

    Blocks the host: yes. Ordered on: all streams of that device, and no other device.
    Source: `torch.accelerator.synchronize`.

    Raises:
        NoAccelerator: if there is none.
        torch.AcceleratorError: an error that a kernel on the device had.
    """
    (registry.active or registry.choose()).synchronize(index_of(device))


def get_device_name(device: Device = None) -> str:
    """Return the vendor's name of a device.

    Blocks the host: no. Source: `torch.cuda.get_device_name`.

    Raises:
        NoAccelerator, Unsupported.
    """
    return registry.backend().get_device_name(index_of(device))


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return what there is to know about a device: the same fields everywhere, None where the vendor does not say.

    Blocks the host: no. Source: `torch.cuda.get_device_properties`, whose object is in `raw`.

    Raises:
        NoAccelerator, Unsupported.
    """
    return registry.backend().get_device_properties(index_of(device))


def get_device_capability(device: Device = None) -> dict[str, Any]:
    """Return what a device can do; `"supported_dtypes"` is the set of dtypes that it allocates and converts.

    The dict is the caller's own and read anew each time; torch caches it on the argument, so there it is stale after
    `set_device_index` and shared between callers.

    Blocks the host: no. Source: `torch.accelerator.get_device_capability` (not `torch.cuda`'s, which is a pair).

    Raises:
        NoAccelerator, Unsupported (torch older than 2.10).
    """
    return registry.backend().get_device_capability(index_of(device))


def supports(feature: str) -> bool:
    """Return whether this process's accelerator, with this torch, can do something that not every backend can.

    Args:
        feature: a public name (`"default_stream"`), or a part of one after a dot (`"Event.interprocess"`).

    Blocks the host: no. False for everything where there is no accelerator.

    Raises:
        ValueError: for a feature that does not exist; the message names those that are spelled like it.
    """
    feature = feature.removeprefix("memory.")
    if feature not in table.features():
        import difflib  # only for the error: importing it takes longer than the rest of this file

        near = difflib.get_close_matches(feature, table.features(), n=3) or table.features()
        raise ValueError(f"there is no feature {feature!r}; did you mean {', '.join(near)}?")
    backend = registry.backend()
    if not backend.type:
        return False
    cell = table.since(feature, backend.type)
    if cell == table.ASK:
        return backend.can(feature)
    return cell != "-" and _torch_version() >= tuple(map(int, cell.split(".")))


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


class allow_cpu:
    """Let the CPU stand in where there is no accelerator: from the call on, or for a `with` block.

    Streams and events are then synchronous, events time by the clock, `synchronize` does nothing. What is there remains
    the truth: `current_accelerator()` is None and `device_count()` 0. With an accelerator this changes nothing. In the
    environment, `ANYACCEL_ALLOW_CPU=1` says the same.

    Args:
        allowed: False takes the permission back.

    Blocks the host: no. Holds for the whole process.
    """

    def __init__(self, allowed: bool = True) -> None:
        self._before = registry.let_cpu_stand_in(allowed)

    def __enter__(self) -> None:
        """Do nothing: the call has."""

    def __exit__(self, *exc_info: object) -> None:
        registry.let_cpu_stand_in(self._before)
