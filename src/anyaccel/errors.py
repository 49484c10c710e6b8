"""What anyaccel raises.

    AnyaccelError(Exception)
      Unsupported(NotImplementedError)    this backend or this torch version cannot do it
      NoAccelerator(RuntimeError)         the call needs a device and there is none
      ConfigError(ValueError)             a bad ANYACCEL_* value or argument
      SimError(RuntimeError)              the sim cannot be enabled
        BuildError                        the sim cannot be compiled or loaded

A wrong device type or index is a plain `ValueError`, as in torch. What torch itself raises (`torch.OutOfMemoryError`,
`torch.AcceleratorError`) passes through unchanged.
"""

import os

__all__ = ["AnyaccelError", "BuildError", "ConfigError", "NoAccelerator", "SimError", "Unsupported"]


class AnyaccelError(Exception):
    """The base of all errors that anyaccel itself defines."""


class Unsupported(AnyaccelError, NotImplementedError):
    """Says that a backend lacks a feature, and what to do instead.

    Args:
        feature: what was asked for, in the words of the API (`"elapsed_time"`, `"Event(interprocess=True)"`).
        backend: the device type that lacks it (`"mps"`).
        instead: what to do, as a sentence without a full stop; empty if there is nothing.

    Attributes:
        feature, backend, instead: the arguments, for code that decides by them.
    """

    def __init__(self, feature: str, backend: str, instead: str = "") -> None:
        # The three arguments are the exception's `args`, so that it pickles and copies.
        super().__init__(feature, backend, instead)
        self.feature = feature
        self.backend = backend
        self.instead = instead

    def __str__(self) -> str:
        said = f"{self.feature} is not supported on {self.backend!r}"
        return f"{said}. Instead: {self.instead}." if self.instead else f"{said}."


class NoAccelerator(AnyaccelError, RuntimeError):
    """Says that a call needs an accelerator, that there is none, and how to get one.

    Args:
        asked: the call that needed a device, in the words of the API (`"synchronize"`).
    """

    def __init__(self, asked: str) -> None:
        super().__init__(asked)
        self.asked = asked

    def __str__(self) -> str:
        said = f"{self.asked} needs an accelerator and this process has none."
        autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
        if autoload != "1" and os.environ.get("ANYACCEL_SIM", "").strip() not in ("", "0"):
            return (
                f"{said} ANYACCEL_SIM is set, but with TORCH_DEVICE_BACKEND_AUTOLOAD={autoload} torch loads no backend by itself: "
                "unset that, or call anyaccel.sim.enable()."
            )
        return (
            f"{said} Run with ANYACCEL_SIM=2 in the environment for two simulated devices (or call anyaccel.sim.enable(devices=2) "
            "before the first backward), or let the CPU stand in with anyaccel.allow_cpu() or ANYACCEL_ALLOW_CPU=1."
        )


class ConfigError(AnyaccelError, ValueError):
    """Says that a setting (an ANYACCEL_* variable or an argument) has a value that cannot be used."""


class SimError(AnyaccelError, RuntimeError):
    """Says why the simulated accelerator cannot be enabled, and what to do."""


class BuildError(SimError):
    """Says why the simulated accelerator cannot be compiled or loaded, and which package to install."""
