"""Streams: queues of work on a device, each in order by itself and unordered with the others."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from .backends import registry
from .backends.base import Backend, traced_as
from .devices import Device, index_of

__all__ = ["Stream", "current_stream", "default_stream", "set_stream", "stream", "stream_priority", "stream_priority_range"]


if TYPE_CHECKING:
    _Stream = torch.Stream
else:
    _Stream = object


class _TorchStreams(type):
    """`Stream` is any stream object of torch or of a vendor, since `Stream()` makes one of those.

    There is no __subclasscheck__: Dynamo would take the object for an instance made by `Stream` and call its __init__.
    """

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, (torch.Stream, torch.cuda.Stream, torch.xpu.Stream))


class Stream(_Stream, metaclass=_TorchStreams):
    """Make a stream: torch's own object, or the vendor's (`torch.cuda.Stream`) where there is one.

    What the object does by itself is torch's, and differs by version: `==` and `hash` go by device and stream id (a
    `torch.cuda.Stream` equals only its own kind); torch 2.13 says that `stream != None` is False; streams do not pickle;
    `with s:` exists from torch 2.7 on and is not re-entrant. `anyaccel.stream(s)` is, on every version.

    Args:
        device: as everywhere.
        priority: the lower number goes first; clamped to `stream_priority_range()`.

    Blocks the host: no. Ordered on: nothing; a new stream does not wait for the current one.
    Source: `torch.Stream`, `torch.cuda.Stream`.

    Raises:
        NoAccelerator: if there is none.
        Unsupported: on MPS, which has one stream.
    """

    # A Python subclass of torch.Stream, or a metaclass __call__, would break fullgraph=True.
    def __new__(cls, device: Device = None, *, priority: int = 0) -> torch.Stream:  # type: ignore[misc]
        """Make the object."""
        return registry.backend().new_stream(None if device is None else index_of(device), priority)


def _traced_current_stream(device: Device = None) -> torch.Stream:
    # Dynamo does not follow the device that a stream brings with it, so None must stay None.
    traced = registry.backend().traced
    return traced.current_stream() if device is None else traced.current_stream(index_of(device))


@traced_as(_traced_current_stream)
def current_stream(device: Device = None) -> torch.Stream:
    """Return this thread's current stream on a device.

    Args:
        device: as everywhere.

    Blocks the host: no. Source: `torch.accelerator.current_stream`; on CUDA and XPU it is the vendor's object.

    Raises:
        NoAccelerator: if there is none.
    """
    return (registry.active or registry.choose()).current_stream(index_of(device))


def default_stream(device: Device = None) -> torch.Stream:
    """Return the stream of a device on which work goes while no other was chosen.

    Blocks the host: no. Source: `torch.cuda.default_stream`.

    Raises:
        NoAccelerator: if there is none.
        Unsupported: on XPU, where every stream comes from a pool.
    """
    return registry.backend().default_stream(index_of(device))


def _traced_set_stream(stream: torch.Stream | None) -> None:
    if stream is not None:
        registry.backend().traced.set_stream(stream)


@traced_as(_traced_set_stream)
def set_stream(stream: torch.Stream | None) -> None:
    """Make `stream` this thread's current stream, and its device the current device.

    Args:
        stream: a stream of the accelerator; None changes nothing.

    Blocks the host: no. Source: `torch.accelerator.set_stream`; None as in `torch.cuda.set_stream`.

    Raises:
        ValueError: for a stream of another device type.
        NoAccelerator: if there is none.
    """
    if stream is not None:
        backend = registry.active or registry.choose()
        if stream.device_type != backend.type_id and backend.type:
            _refuse(stream, backend)
        backend.set_stream(stream)


def _refuse(stream: torch.Stream, backend: Backend) -> None:
    theirs = stream.device.type
    raise ValueError(f"{stream} is a stream of device type {theirs!r}, but the accelerator here is {backend.type!r}")


class _StreamContext:
    """Switches stream and device; may be entered again while entered, and by several threads.

    `with s:` of torch keeps what it saved on the stream itself: two threads then restore each other's stream.
    """

    __slots__ = ("_saved", "_stream")

    def __init__(self, stream: torch.Stream) -> None:
        self._stream = stream
        # By thread: the device and the stream before, and what was saved here before that.
        self._saved: dict[int, tuple[int, torch.Stream, Any]] = {}

    def __enter__(self) -> torch.Stream:
        thread, saved, stream = get_ident(), self._saved, self._stream
        backend = registry.active or registry.choose()
        saved[thread] = (backend.current_device_index(), backend.current_stream(stream.device_index), saved.get(thread))
        backend.set_stream(stream)
        return stream

    def __exit__(self, *exc_info: object) -> None:
        thread, saved = get_ident(), self._saved
        device_index, stream, outer = saved.pop(thread)
        if outer is not None:
            saved[thread] = outer
        backend = registry.active or registry.choose()
        backend.set_stream(stream)
        if device_index != stream.device_index:
            backend.restore_device(device_index)


def _traced_stream(stream: torch.Stream | None) -> AbstractContextManager[torch.Stream | None]:
    return nullcontext() if stream is None else stream


@traced_as(_traced_stream)
def stream(stream: torch.Stream | None) -> AbstractContextManager[torch.Stream | None]:
    """Return a context in which `stream` is current, and its device the current device, for this thread.

    On the way out it restores the device and the stream that was current on the stream's device, after exceptions too.
    It may be entered again while entered, and one stream may be entered by several threads.

    Args:
        stream: a stream of the accelerator; None: the context does nothing.

    Blocks the host: no. Orders nothing: use `wait_stream` or events. Source: `torch.cuda.stream`.

    Raises:
        ValueError: for a stream of another device type.
        NoAccelerator: if there is none (when entered).
    """
    if stream is None:
        return nullcontext()
    backend = registry.active or registry.choose()
    if stream.device_type != backend.type_id and backend.type:
        _refuse(stream, backend)
    return _StreamContext(stream)


def stream_priority(stream: torch.Stream) -> int:
    """Return the priority of a stream: the lower number goes first.

    Blocks the host: no. Source: `torch.cuda.Stream.priority`.

    Raises:
        NoAccelerator, Unsupported.
    """
    backend = registry.backend()
    if stream.device_type != backend.type_id and backend.type:
        _refuse(stream, backend)
    return backend.stream_priority(stream)


def stream_priority_range(device: Device = None) -> tuple[int, int]:
    """Return (least, greatest), the priorities that a stream can have: `greatest` is the smaller number.

    Blocks the host: no. Source: `torch.cuda.Stream.priority_range`.

    Raises:
        NoAccelerator, Unsupported.
    """
    return registry.backend().stream_priority_range(index_of(device))
