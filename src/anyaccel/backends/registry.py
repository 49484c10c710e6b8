"""Which backend is in force.

`registry.active` is the backend of the accelerator, once one was found; `choose()` looks for it. Only an accelerator that is
there is remembered, since one can appear later. Nouns that are called often say `registry.active or registry.choose()`, which
costs no call; the others say `registry.backend()`.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

from anyaccel.errors import AnyaccelError, ConfigError, NoAccelerator

from .base import Backend, when_accelerator_changes

__all__ = ["active", "backend", "choose", "cpu_allowed", "current_accelerator", "forget", "let_cpu_stand_in"]

_FILES = {
    "cuda": ("cuda", "Cuda"),
    "xpu": ("xpu", "Xpu"),
    "mps": ("mps", "Mps"),
    "mtia": ("mtia", "Mtia"),
    "hpu": ("hpu", "Hpu"),
    "cpu": ("cpu", "Cpu"),
    "sim": ("sim", "Sim"),
}
_OTHER = ("privateuse1", "PrivateUse1")


class _Absent(Backend):
    """No accelerator. It answers what `torch.cuda` answers on a build without CUDA; the rest raises NoAccelerator."""

    def lacks(self, feature: str) -> AnyaccelError:
        return NoAccelerator(feature)

    def device_count(self) -> int:
        return 0

    def is_initialized(self) -> bool:
        return False

    def exchange_device(self, index: int) -> int:
        raise self.lacks("device")

    def empty_cache(self) -> None:
        """Do nothing: nothing is cached."""

    def empty_host_cache(self) -> None:
        """Do nothing: nothing is pinned."""

    def memory_stats(self, index: int) -> dict[str, Any]:
        return {}

    def reset_peak_memory_stats(self, index: int) -> None:
        """Do nothing: there are no statistics."""

    def reset_accumulated_memory_stats(self, index: int) -> None:
        """Do nothing: there are no statistics."""


_decided: dict[str, Backend] = {"": _Absent()}  # by device type; "": there is none
_cpu_allowed: bool | None = None  # None: as the environment says

active: Backend | None = None
"""The backend of the accelerator, or None while none was found. Never copy it: read it as `registry.active`."""


def _find() -> str:
    """Return the type of the device to use, "" for none, and have its backend ready in `_decided`."""
    device = current_accelerator()
    if device is not None and (count := torch.accelerator.device_count()) > 0:
        device_type = device.type
    elif cpu_allowed():
        device_type, count = "cpu", 1
    else:
        return ""
    if device_type not in _decided:
        file, name = _FILES.get(device_type, _OTHER)
        _decided[device_type] = getattr(importlib.import_module(f"{__package__}.{file}"), name)(device_type)
    _decided[device_type].known_device_count = count
    return device_type


# Dynamo would trace the search, imports and all; its outcome is a constant to it.
_find._dynamo_marked_constant = True  # type: ignore[attr-defined]


def current_accelerator() -> torch.device | None:
    """Return what `torch.accelerator.current_accelerator` returns; torch 2.6 raises where newer ones return None."""
    try:
        return torch.accelerator.current_accelerator()
    except RuntimeError:
        return None


def choose() -> Backend:
    """Return the backend of this process's accelerator, the CPU's stand-in, or the one that stands for none.

    Blocks the host: no. Touches no device: a build for an accelerator on a machine without one counts as none.
    """
    global active
    if active is not None:
        return active
    device_type = _find()
    chosen = _decided[device_type]
    # While Dynamo traces, `active` stays what its guards saw.
    if device_type not in ("", "cpu") and not torch.compiler.is_dynamo_compiling():
        active = chosen
    return chosen


def backend() -> Backend:
    """Return the backend in force."""
    return active or choose()


def forget() -> None:
    """Look for the accelerator again at the next use."""
    global active
    active = None
    for device_type in [known for known in _decided if known not in ("", "cpu")]:
        del _decided[device_type]


when_accelerator_changes(forget)


def cpu_allowed() -> bool:
    """Return whether the CPU may stand in where there is no accelerator."""
    if _cpu_allowed is not None:
        return _cpu_allowed
    said = os.environ.get("ANYACCEL_ALLOW_CPU", "")
    if said not in ("", "0", "1"):
        raise ConfigError(f"ANYACCEL_ALLOW_CPU is {said!r}, but must be 1 (the CPU stands in) or 0 or empty (it does not)")
    return said == "1"


def let_cpu_stand_in(allowed: bool | None) -> bool | None:
    """Set whether the CPU may stand in (None: as ANYACCEL_ALLOW_CPU says) and return what was set before."""
    global _cpu_allowed
    before, _cpu_allowed = _cpu_allowed, allowed
    return before
