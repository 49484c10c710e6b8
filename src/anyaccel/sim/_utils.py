"""Device arguments of torch.sim. torch.serialization looks for this module and this name (`_validate_device`)."""

from __future__ import annotations

import torch

from anyaccel.sim.config import DEVICE_NAME

import _anyaccel_sim as _extension  # isort: skip  build.load() has put it there


def _get_device_index(device: int | str | torch.device | None, optional: bool = False) -> int:
    """Turn what names a device into its index.

    Args:
        device: an index, "sim", "sim:1" or such a torch.device.
        optional: whether the current device's index stands for one that is missing.

    Raises:
        ValueError: another device type, or the index is missing.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    index = None
    if isinstance(device, torch.device):
        if device.type != DEVICE_NAME:
            raise ValueError(f"Expected a device of type {DEVICE_NAME!r}, and was given {str(device)!r} of type {device.type!r}.")
        index = device.index
    elif device is not None:
        raise ValueError(f"Expected a device of type {DEVICE_NAME!r}: an int, a str, a torch.device or None, and was given {device!r}.")
    if index is None:
        if not optional:
            raise ValueError(f"Expected a device with an index, such as '{DEVICE_NAME}:0', and was given {device!r}.")
        return int(torch._C._accelerator_getDeviceIndex())
    return int(index)


def _checked_index(device: int | str | torch.device | None) -> int:
    """Turn what names a device into its index, and make sure that there is such a device.

    Args:
        device: as above; None: the current one.

    Raises:
        ValueError: another device type, or an index out of range.
    """
    index = _get_device_index(device, optional=True)
    count = _extension.device_count()
    if not 0 <= index < count:
        raise ValueError(f"There is no device {DEVICE_NAME}:{index}: there are devices 0 to {count - 1}.")
    return index
