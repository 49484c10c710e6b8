"""One device-agnostic runtime for PyTorch accelerators. What is public is listed here; the rest is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import memory
from .backends.base import DeviceProperties
from .devices import (
    allow_cpu,
    current_accelerator,
    current_device_idx,
    current_device_index,
    device,
    device_count,
    device_index,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device_idx,
    set_device_index,
    supports,
    synchronize,
)
from .errors import AnyaccelError, BuildError, ConfigError, NoAccelerator, SimError, Unsupported
from .events import Event
from .memory import (
    empty_cache,
    empty_host_cache,
    get_memory_info,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from .streams import Stream, current_stream, default_stream, set_stream, stream, stream_priority, stream_priority_range

if TYPE_CHECKING:
    from . import sim

__version__ = "0.1.0"

__all__ = [
    "AnyaccelError",
    "BuildError",
    "ConfigError",
    "DeviceProperties",
    "Event",
    "NoAccelerator",
    "SimError",
    "Stream",
    "Unsupported",
    "__version__",
    "allow_cpu",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_index",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_memory_info",
    "init",
    "is_available",
    "is_initialized",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "sim",
    "stream",
    "stream_priority",
    "stream_priority_range",
    "supports",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    if name == "sim":  # only who uses the sim pays for importing it
        import importlib

        return importlib.import_module(".sim", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
