"""How much memory the devices use, and what the allocators keep in reserve.

With no accelerator these answer what `torch.cuda` answers on a build without CUDA: caches are empty and statistics 0.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .backends import registry
from .devices import Device, index_of

__all__ = [
    "empty_cache",
    "empty_host_cache",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]

_POOLS = ("all", "small_pool", "large_pool")
_VALUES = ("current", "peak", "allocated", "freed")
_BYTES = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")


def empty_cache() -> None:
    """Give the memory that the allocator keeps in reserve back to the devices.

    Blocks the host: yes, where memory to give back is still in use by a stream. Source: `torch.accelerator.empty_cache`.
    """
    (registry.active or registry.choose()).empty_cache()


def empty_host_cache() -> None:
    """Give the pinned host memory that is kept in reserve back to the system. Does nothing if nothing was ever pinned.

    Blocks the host: no. Source: `torch.accelerator.empty_host_cache`.

    Raises:
        Unsupported: on MPS, and on most backends with torch older than 2.12.
    """
    (registry.active or registry.choose()).empty_host_cache()


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Return the allocator's statistics, sorted by key.

    Keys are CUDA's: `{allocated,reserved,active,requested}_bytes.{all,small_pool,large_pool}.{current,peak,allocated,freed}`,
    in bytes, and so on. Before the first allocation the keys in bytes are there and 0.

    Args:
        device: as everywhere.

    Blocks the host: no. Source: `torch.accelerator.memory_stats`, which is empty before the first allocation.

    Raises:
        Unsupported: where the backend keeps no statistics.
    """
    stats = (registry.active or registry.choose()).memory_stats(index_of(device))
    if not stats:
        stats = {f"{what}.{pool}.{value}": 0 for what in _BYTES for pool in _POOLS for value in _VALUES}
    return stats if isinstance(stats, OrderedDict) else OrderedDict(sorted(stats.items()))


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors occupy on a device now.

    Blocks the host: no. Source: `torch.accelerator.memory_allocated`.

    Raises:
        Unsupported: where the backend does not count them.
    """
    return (registry.active or registry.choose()).memory_stat(index_of(device), "allocated_bytes.all.current", "memory_allocated")


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors occupied on a device, since the start or `reset_peak_memory_stats`.

    Blocks the host: no. Source: `torch.accelerator.max_memory_allocated`.

    Raises:
        Unsupported: on MPS.
    """
    return (registry.active or registry.choose()).memory_stat(index_of(device), "allocated_bytes.all.peak", "max_memory_allocated")


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator holds on a device now, in use or in reserve.

    Blocks the host: no. Source: `torch.accelerator.memory_reserved`.

    Raises:
        Unsupported: where the backend does not count them.
    """
    return (registry.active or registry.choose()).memory_stat(index_of(device), "reserved_bytes.all.current", "memory_reserved")


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the allocator held on a device, since the start or `reset_peak_memory_stats`.

    Blocks the host: no. Source: `torch.accelerator.max_memory_reserved`.

    Raises:
        Unsupported: where the backend does not count them.
    """
    return (registry.active or registry.choose()).memory_stat(index_of(device), "reserved_bytes.all.peak", "max_memory_reserved")


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let the peaks of a device start again from what is in use now.

    Blocks the host: no. Source: `torch.accelerator.reset_peak_memory_stats`.

    Raises:
        Unsupported: on MPS.
    """
    (registry.active or registry.choose()).reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Let the `allocated` and `freed` values of a device start again from 0.

    Blocks the host: no. Source: `torch.accelerator.reset_accumulated_memory_stats`.

    Raises:
        Unsupported: where the backend does not count them.
    """
    (registry.active or registry.choose()).reset_accumulated_memory_stats(index_of(device))


def get_memory_info(device: Device = None) -> tuple[int, int]:
    """Return (free, total) bytes of a device, as seen by the driver: other processes count.

    Blocks the host: no. Source: `torch.accelerator.get_memory_info`, `torch.cuda.mem_get_info`.

    Raises:
        NoAccelerator: if there is none.
        Unsupported: where the backend does not say.
    """
    return (registry.active or registry.choose()).get_memory_info(index_of(device))


mem_get_info = get_memory_info
