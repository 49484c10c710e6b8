"""torch.sim's descriptive half: what a device is and can do; re-exported by `module`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from anyaccel.sim._utils import _checked_index

import _anyaccel_sim as _extension  # isort: skip  build.load() has put it there


@dataclass(frozen=True)
class DeviceProperties:
    """What there is to know about a device; the names are those of torch.cuda's properties.

    Attributes:
        name: what the device is called.
        total_memory: in bytes.
        multi_processor_count: worker threads, which all devices share.
        schedule: who runs the tasks.
        vendor: whose device it is.
        driver_version: anyaccel's version; None if it is not installed but only on the path.
    """

    name: str
    total_memory: int
    multi_processor_count: int
    schedule: str
    vendor: str = "anyaccel"
    driver_version: str | None = None


def get_device_properties(device: int | str | torch.device | None = None) -> DeviceProperties:
    """Describe a device.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        ValueError: another device type, or an index out of range.
    """
    _checked_index(device)
    options = _extension.options()
    return DeviceProperties(
        name=f"anyaccel sim ({options['schedule']})",
        total_memory=options["memory_bytes"],
        # 0 lets the driver choose.
        multi_processor_count=options["workers"] or max(2, os.cpu_count() or 1),
        schedule=options["schedule"],
        driver_version=_version(),
    )


@cache
def _version() -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("anyaccel")
    return None


def get_device_name(device: int | str | torch.device | None = None) -> str:
    """Name a device. Blocks the host: no. Ordered on: nothing."""
    return get_device_properties(device).name


def get_device_capability(device: int | str | torch.device | None = None) -> dict[str, Any]:
    """Tell what a device can do, as `torch.accelerator.get_device_capability`. Blocks the host: no. Ordered on: nothing."""
    return dict(torch._C._accelerator_getDeviceCapability(_checked_index(device)))


def can_device_access_peer(device: int | str | torch.device, peer_device: int | str | torch.device) -> bool:
    """Tell whether two devices exchange data directly: all do, with all others. Blocks the host: no. Ordered on: nothing."""
    return _checked_index(device) != _checked_index(peer_device)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """List the dtypes that autocast may use; with another one torch.autocast warns and switches itself off. Blocks the host: no."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Tell whether bfloat16 works: it does. Blocks the host: no. Ordered on: nothing."""
    return True
