"""How the sim is to be: what ANYACCEL_* variables and the arguments of `enable` ask for. Pure: no torch, no side effects."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from anyaccel.errors import ConfigError

DEVICE_NAME = "sim"
SCHEDULES = ("threads", "serial")

# torch keeps a device index, and a count of devices, in an int8 (c10::DeviceIndex).
MAX_DEVICES = 127
# One segment of the small pool; with less, no tensor at all could be made.
MIN_MEMORY_BYTES = 2 << 20
# All devices together; well inside the 47 bits of address space that a process has.
MAX_TOTAL_MEMORY_BYTES = 64 << 40
MAX_WORKERS = 1024

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)}


@dataclass(frozen=True)
class Config:
    """The settings of a simulated machine.

    Attributes:
        devices: how many devices there are, 1 to 127.
        memory_bytes: the memory of each device, in bytes.
        schedule: who runs the tasks, and when; one of `SCHEDULES`.
        workers: threads that run tasks; 0: as many as the machine has cores, at least two.
        beside: whether another accelerator may be available in the same process.
    """

    devices: int = 1
    memory_bytes: int = 16 << 30
    schedule: str = "threads"
    workers: int = 0
    beside: bool = False


def from_environment(environ: Mapping[str, str] | None = None) -> Config | None:
    """Read the settings that the environment asks for.

    Args:
        environ: where to look; `os.environ` if None.

    Returns:
        None where ANYACCEL_SIM is unset, empty or 0: the sim is off.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        ConfigError: a variable has a value that cannot be used.
    """
    environ = os.environ if environ is None else environ
    text = environ.get("ANYACCEL_SIM", "").strip()
    devices = _number("ANYACCEL_SIM", text, 0, MAX_DEVICES, "the number of devices; 0 or empty switches the sim off") if text else 0
    return make(devices=devices, environ=environ) if devices else None


def make(
    devices: int | None = None,
    memory: int | str | None = None,
    schedule: str | None = None,
    beside: bool | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Make the settings from arguments; what is None comes from the environment, or else from the defaults.

    Args:
        devices: how many devices, 1 to 127.
        memory: of each device: bytes, or text such as "8GiB".
        schedule: one of `SCHEDULES`.
        beside: whether another accelerator may be available.
        environ: where to look; `os.environ` if None.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        ConfigError: an argument or a variable has a value that cannot be used.
    """
    environ = os.environ if environ is None else environ

    def variable(name: str) -> str | None:
        return environ.get(name, "").strip() or None

    default = Config()
    if devices is not None:
        devices = _number("devices", devices, 1, MAX_DEVICES, "the number of devices")
    elif (text := variable("ANYACCEL_SIM")) is not None:
        # Whoever enables the sim in code wants it: the 0 that switches autoload off then means the default.
        devices = _number("ANYACCEL_SIM", text, 0, MAX_DEVICES, "the number of devices") or default.devices
    else:
        devices = default.devices
    if memory is not None:
        memory_bytes = parse_memory(memory, "memory")
    else:
        memory_bytes = parse_memory(variable("ANYACCEL_SIM_MEMORY") or default.memory_bytes, "ANYACCEL_SIM_MEMORY")
    if devices * memory_bytes > MAX_TOTAL_MEMORY_BYTES:
        raise ConfigError(
            f"{devices} devices of {memory_bytes:,} bytes need {devices * memory_bytes:,} bytes of address space and at most "
            f"{MAX_TOTAL_MEMORY_BYTES:,} (64TiB) can be had. Ask for fewer devices or for less memory of each."
        )
    if schedule is not None:
        schedule = _schedule(schedule, "schedule")
    else:
        schedule = _schedule(variable("ANYACCEL_SIM_SCHEDULE") or default.schedule, "ANYACCEL_SIM_SCHEDULE")
    workers = _number("ANYACCEL_SIM_WORKERS", variable("ANYACCEL_SIM_WORKERS") or 0, 0, MAX_WORKERS, "threads; 0: one per core")
    if beside is None:
        beside = bool(_number("ANYACCEL_SIM_BESIDE", variable("ANYACCEL_SIM_BESIDE") or 0, 0, 1, "1: beside another accelerator"))
    return Config(devices, memory_bytes, schedule, workers, beside)


def parse_memory(value: int | str, name: str) -> int:
    """Turn an amount of memory into bytes.

    Args:
        value: bytes, or text: a number and B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000).
        name: what the amount was given as, for the error.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        ConfigError: not an amount, or not one that a device can have.
    """
    wanted = "Give bytes, or a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB, for example 8GiB."
    amount = math.nan
    if isinstance(value, int) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and (
        parts := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)\s*([kmgt]?i?b)?", value.strip(), re.ASCII | re.IGNORECASE)
    ):
        number, unit = parts[1], (parts[2] or "").lower()
        scale = _UNITS.get(unit, math.nan)
        amount = int(number) * scale if number.isdigit() else float(number) * scale
    if math.isnan(amount):
        raise ConfigError(f"{name}={value!r} is not an amount of memory. {wanted}")
    if amount != int(amount):
        raise ConfigError(f"{name}={value!r} is not a whole number of bytes. {wanted}")
    if not MIN_MEMORY_BYTES <= amount <= MAX_TOTAL_MEMORY_BYTES:
        raise ConfigError(f"{name}={value!r} cannot be the memory of a device: that is 2MiB to 64TiB. {wanted}")
    return int(amount)


def _number(name: str, value: int | str, least: int, most: int, meaning: str) -> int:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) and least <= int(text) <= most:
        return int(text)
    raise ConfigError(f"{name}={value!r} cannot be used. It must be a whole number from {least} to {most} ({meaning}).")


def _schedule(value: str, name: str) -> str:
    if value in SCHEDULES:
        return value
    raise ConfigError(f"{name}={value!r} is not a schedule. There are: {', '.join(SCHEDULES)}.")
