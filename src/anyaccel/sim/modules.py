"""Modules keep their parameters on the way to the sim and back, as they do between the devices that torch has built in.

Elsewhere `module.to(device)` gives each Parameter other data. For a device from outside torch would make new Parameters: tied weights
would come apart, and an optimizer that was made before would go on with the old ones, without a word.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from anyaccel.sim.config import DEVICE_NAME

_Convert = Callable[[torch.Tensor], torch.Tensor]
_this_thread = threading.local()


def keep_parameters() -> None:
    """Make `torch.nn.Module` swap the contents of parameters that move to the sim or from it. Blocks the host: no. Ordered on: nothing."""
    conversion, setting = torch.nn.Module._apply, torch.__future__.get_swap_module_params_on_conversion

    @functools.wraps(setting)
    def get_swap_module_params_on_conversion() -> bool:
        return getattr(_this_thread, "swaps", False) or setting()

    @functools.wraps(conversion)
    def _apply(self: torch.nn.Module, fn: _Convert, recurse: bool = True) -> Any:
        outer = getattr(_this_thread, "swaps", False)
        _this_thread.swaps = _must_swap(self, fn)  # children, which come first, decide for themselves
        try:
            return conversion(self, fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            _this_thread.swaps = outer

    torch.__future__.get_swap_module_params_on_conversion = get_swap_module_params_on_conversion
    torch.nn.Module._apply = _apply  # type: ignore[method-assign]


def _must_swap(module: torch.nn.Module, fn: _Convert) -> bool:
    parameters = [parameter for parameter in module._parameters.values() if parameter is not None]
    # torch does not swap what somebody has a weak reference to.
    if not parameters or any(type(each) is not torch.nn.Parameter or weakref.getweakrefcount(each) for each in parameters):
        return False
    sample = parameters[0].detach().new_empty(0)
    converted = fn(sample)
    return DEVICE_NAME in (sample.device.type, converted.device.type) and not torch._has_compatible_shallow_copy_type(sample, converted)
