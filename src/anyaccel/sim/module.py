"""`torch.sim`: the device module that torch and libraries expect of a device type, with the names of `torch.cuda`.

Everything goes through `torch.accelerator`'s own bindings or the extension, so that the current device and stream are one state
whoever sets them. Arguments named `device` take an index, "sim", "sim:1", a torch.device, or None for the current one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyaccel.sim import _utils, config  # noqa: F401  torch.serialization looks for torch.sim._utils
from anyaccel.sim._utils import _checked_index, _get_device_index
from anyaccel.sim.memory import (
    empty_cache,
    empty_host_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from anyaccel.sim.properties import (
    DeviceProperties,
    can_device_access_peer,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
)
from anyaccel.sim.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

import _anyaccel_sim as _extension  # isort: skip  build.load() has put it there

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "host_memory_stats",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

# torch's own classes: what they make can be handed to any code, Dynamo included.
Stream = torch.Stream
Event = torch.Event

_is_in_bad_fork = _extension.in_bad_fork
_exchange_device = _extension.exchange_device
_maybe_exchange_device = _extension.maybe_exchange_device


def is_available() -> bool:
    """Tell whether there is a device. Blocks the host: no. Ordered on: nothing."""
    return device_count() > 0


def device_count() -> int:
    """Count the devices. Blocks the host: no. Ordered on: nothing."""
    return int(_extension.device_count())


def is_initialized() -> bool:
    """Tell whether threads or memory are in use, after which a forked child can't use the sim. Blocks the host: no."""
    return bool(_extension.is_initialized()) and not _is_in_bad_fork()


def init() -> None:
    """Use the current device for the first time, as any op would.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        RuntimeError: in a child that was forked after the first use.
    """
    _lazy_init()
    torch.empty(1, dtype=torch.uint8, device=config.DEVICE_NAME)


def current_device() -> int:
    """Give the current device's index. Blocks the host: no. Ordered on: nothing."""
    return int(_extension.current_device())


def set_device(device: int | str | torch.device) -> None:
    """Make a device this thread's current one; a negative index does nothing.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        ValueError: another device type, or an index out of range.
    """
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _extension.set_device(index)


def device(device: int | str | torch.device | None) -> torch.accelerator.device_index:
    """Make a context in which a device is the current one; None or a negative index does nothing.

    It is torch's own context, which Dynamo knows.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        ValueError: another device type, or, when the context is entered, an index out of range.
    """
    index = None if device is None else _get_device_index(device, optional=True)
    return torch.accelerator.device_index(None if index is None or index < 0 else index)


def device_of(obj: Any) -> torch.accelerator.device_index:
    """Make a context in which the device of a tensor or storage is the current one; one that is elsewhere does nothing.

    Blocks the host: no.
    Ordered on: nothing.
    """
    return device(obj.get_device() if obj.device.type == config.DEVICE_NAME else None)


def synchronize(device: int | str | torch.device | None = None) -> None:
    """Wait for all streams of a device.

    Blocks the host: yes.
    Ordered on: all streams of that device.

    Raises:
        torch.AcceleratorError: a task there failed.
        ValueError: another device type, or an index out of range.
    """
    torch.accelerator.synchronize(_checked_index(device))


def current_stream(device: int | str | torch.device | None = None) -> torch.Stream:
    """Give a device's current stream of this thread. Blocks the host: no. Ordered on: nothing."""
    return torch.accelerator.current_stream(_checked_index(device))


def default_stream(device: int | str | torch.device | None = None) -> torch.Stream:
    """Give a device's default stream. Blocks the host: no. Ordered on: nothing."""
    # c10::Stream::DEFAULT is the stream whose id is 0.
    return torch.Stream(stream_id=0, device_index=_checked_index(device), device_type=_DEVICE_TYPE)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream its device's current one, and that device the current one; None does nothing.

    Blocks the host: no.
    Ordered on: nothing.
    """
    if stream is not None:
        torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> contextlib.AbstractContextManager[Any]:
    """Make a context in which a stream is the current one, and its device the current device; None does nothing.

    What was current is kept by the context and not on the stream object, so contexts nest and threads don't disturb each other.

    Blocks the host: no.
    Ordered on: nothing.
    """
    if stream is None:
        return contextlib.nullcontext()
    # Dynamo knows a stream as a context, and not ours.
    return stream if torch.compiler.is_dynamo_compiling() else _stream_context(stream)


@contextlib.contextmanager
def _stream_context(stream: torch.Stream) -> Iterator[None]:
    device_before = torch.accelerator.current_device_index()
    stream_before = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(stream_before)
        torch.accelerator.set_device_index(device_before)


def is_current_stream_capturing() -> bool:
    """Tell whether the current stream is being captured into a graph. Blocks the host: no. Ordered on: nothing."""
    return torch.accelerator.current_stream().is_capturing()


def _lazy_init() -> None:
    """Raise where torch.cuda._lazy_init would; there is nothing to initialise beforehand."""
    if _is_in_bad_fork():
        raise RuntimeError(
            "The sim cannot be used in a child that was forked after its first use: threads and queues stayed in the parent. "
            "Use multiprocessing's 'spawn' start method, or fork before the first use."
        )


def _lazy_call(function: Callable[[], object], **kwargs: object) -> None:
    """Call at once what torch.cuda would put off until it is initialised."""
    function()


def __getattr__(name: str) -> Any:
    # torch.utils.checkpoint asks whether there is a random state to keep.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {sys.modules[__name__].__name__!r} has no attribute {name!r}")


_DEVICE_TYPE = torch._C._autograd.DeviceType.PrivateUse1.value
