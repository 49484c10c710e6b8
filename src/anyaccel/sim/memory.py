"""torch.sim's memory half: statistics, limits, the cache; re-exported by `module`. All sizes are in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from anyaccel.sim._utils import _checked_index

import _anyaccel_sim as _extension  # isort: skip  build.load() has put it there

_Device = int | str | torch.device | None


def memory_stats(device: _Device = None) -> OrderedDict[str, Any]:
    """Give the allocator's statistics, flat, with the keys of `torch.cuda.memory_stats`. Blocks the host: no."""
    return torch.accelerator.memory_stats(_checked_index(device))


def memory_allocated(device: _Device = None) -> int:
    """Give the bytes that tensors hold now. Blocks the host: no. Ordered on: nothing."""
    return torch.accelerator.memory_allocated(_checked_index(device))


def max_memory_allocated(device: _Device = None) -> int:
    """Give the most bytes that tensors ever held, since the last reset. Blocks the host: no. Ordered on: nothing."""
    return torch.accelerator.max_memory_allocated(_checked_index(device))


def memory_reserved(device: _Device = None) -> int:
    """Give the bytes that the allocator holds now. Blocks the host: no. Ordered on: nothing."""
    return torch.accelerator.memory_reserved(_checked_index(device))


def max_memory_reserved(device: _Device = None) -> int:
    """Give the most bytes that the allocator ever held, since the last reset. Blocks the host: no. Ordered on: nothing."""
    return torch.accelerator.max_memory_reserved(_checked_index(device))


def reset_peak_memory_stats(device: _Device = None) -> None:
    """Start the peaks again from what is now. Blocks the host: no. Ordered on: nothing."""
    torch.accelerator.reset_peak_memory_stats(_checked_index(device))


def reset_max_memory_allocated(device: _Device = None) -> None:
    """Do what `reset_peak_memory_stats` does; torch.cuda has both names. Blocks the host: no. Ordered on: nothing."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: _Device = None) -> None:
    """Start the sums (`allocated`, `freed`) again from 0. Blocks the host: no. Ordered on: nothing."""
    torch.accelerator.reset_accumulated_memory_stats(_checked_index(device))


def empty_cache() -> None:
    """Hand cached segments that nothing uses back to the system.

    Blocks the host: yes, if there are any.
    Ordered on: all streams.
    """
    torch.accelerator.empty_cache()


def mem_get_info(device: _Device = None) -> tuple[int, int]:
    """Give the free and the total bytes of a device. Blocks the host: no. Ordered on: nothing."""
    return torch.accelerator.get_memory_info(_checked_index(device))


def memory_snapshot() -> list[dict[str, Any]]:
    """List the segments and blocks of all devices, as `torch.cuda.memory_snapshot`. Blocks the host: no. Ordered on: nothing."""
    return [segment for index in range(_extension.device_count()) for segment in _extension.memory_snapshot(index)]


def memory_summary(device: _Device = None, abbreviated: bool = False) -> str:
    """Write the statistics as a table for people.

    Args:
        device: which device.
        abbreviated: leave the two pools out.

    Blocks the host: no.
    Ordered on: nothing.
    """
    index = _checked_index(device)
    stats = memory_stats(index)
    columns = ("current", "peak", "allocated", "freed")
    pools = ("all",) if abbreviated else ("all", "large_pool", "small_pool")
    lines = [f"Memory of sim:{index}, in bytes", f"{'':32}" + "".join(f"{column:>20}" for column in columns)]
    for name in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"):
        for pool in pools:
            values = (stats.get(f"{name}.{pool}.{column}", 0) for column in columns)
            lines.append(f"{f'{name} ({pool})':32}" + "".join(f"{value:>20,}" for value in values))
    lines.append(f"Out of memory: {stats.get('num_ooms', 0)}; retries after a flush: {stats.get('num_alloc_retries', 0)}")
    return "\n".join(lines)


def set_per_process_memory_fraction(fraction: float, device: _Device = None) -> None:
    """Let tensors have only a part of a device's memory.

    Args:
        fraction: 0 to 1.
        device: which device.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        ValueError: not a fraction; another device type; an index out of range.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"The fraction must be between 0 and 1, and {fraction!r} was given.")
    _extension.set_memory_limit(_checked_index(device), int(fraction * _extension.options()["memory_bytes"]))


def get_per_process_memory_fraction(device: _Device = None) -> float:
    """Give the part of a device's memory that tensors can have. Blocks the host: no. Ordered on: nothing."""
    return float(_extension.memory_limit(_checked_index(device)) / _extension.options()["memory_bytes"])


def host_memory_stats() -> dict[str, int]:
    """Give the statistics of pinned host memory. Blocks the host: no. Ordered on: nothing."""
    return dict(_extension.host_memory_stats())


def reset_peak_host_memory_stats() -> None:
    """Start the peaks of pinned host memory again from what is now. Blocks the host: no. Ordered on: nothing."""
    _extension.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Start the sums of pinned host memory again from 0. Blocks the host: no. Ordered on: nothing."""
    _extension.reset_accumulated_host_memory_stats()


def empty_host_cache() -> None:
    """Hand cached pinned memory that no copy uses back to the system. Blocks the host: no. Ordered on: nothing."""
    _extension.empty_host_cache()
