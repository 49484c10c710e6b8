"""What each backend supports: from which torch version, and how that was verified. Data, and nothing else.

`supports()` reads it, a test compares it with what the backends do, and the documentation prints it.
"""

from __future__ import annotations

from functools import cache

__all__ = ["ASK", "COLUMNS", "VERIFIED", "features", "instead_of", "since"]

ASK = "ask"
"""In a cell: the vendor's module decides, so it is asked when it is there."""

COLUMNS = ("cuda", "xpu", "mps", "mtia", "hpu", "other", "cpu", "sim")
"""The backends; `other` is any renamed PrivateUse1 device, `cpu` the stand-in under `allow_cpu()`."""

VERIFIED = {
    "cuda": "signature",  # each call against the names and parameters of torch 2.13's module, and run on recorded modules
    "xpu": "signature",
    "mps": "signature",
    "mtia": "signature",
    "hpu": "documentation",  # the vendor's module is in no torch release
    "other": "documentation",
    "cpu": "run",  # the test suite runs it
    "sim": "run",
}
"""How a column was verified."""

# "-": not supported. A version: since that torch version. "ask": see ASK.
_GRID = """
feature                           cuda   xpu    mps    mtia   hpu    other  cpu    sim
current_accelerator               2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
is_available                      2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
device_count                      2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
init                              2.6    2.6    -      2.6    ask    ask    2.6    2.12
is_initialized                    2.6    2.6    -      2.6    ask    ask    2.6    2.12
current_device_index              2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
set_device_index                  2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
device                            2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
device_index                      2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
device_of                         2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
synchronize                       2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
get_device_name                   2.6    2.6    ask    -      ask    ask    2.6    2.12
get_device_properties             2.6    2.6    2.6    2.6    ask    ask    2.6    2.12
get_device_capability             2.10   2.10   2.10   2.10   2.10   2.10   -      2.12
Event                             2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
Event.enable_timing               2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
Event.blocking                    2.6    -      -      -      ask    ask    2.6    2.12
Event.interprocess                2.6    -      -      -      ask    ask    -      -
Stream                            2.6    2.6    -      2.6    2.6    2.6    2.6    2.12
Stream.native_handle              2.11   2.11   -      -      ask    ask    -      2.12
Stream.is_capturing               2.12   2.12   -      -      ask    ask    2.12   2.12
stream                            2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
current_stream                    2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
default_stream                    2.6    -      2.6    2.6    ask    ask    2.6    2.12
set_stream                        2.6    2.6    2.6    2.6    2.6    2.6    2.6    2.12
stream_priority                   2.6    2.6    -      -      ask    ask    2.6    2.12
stream_priority_range             2.6    2.6    -      -      ask    ask    2.6    2.12
empty_cache                       2.6    2.6    2.6    2.6    ask    ask    2.6    2.12
empty_host_cache                  2.6    2.12   -      2.12   2.12   2.12   2.6    2.12
memory_stats                      2.6    2.6    2.6    2.6    ask    ask    2.6    2.12
memory_allocated                  2.6    2.6    2.6    2.6    ask    ask    2.6    2.12
max_memory_allocated              2.6    2.6    -      2.6    ask    ask    2.6    2.12
memory_reserved                   2.6    2.6    2.6    -      ask    ask    2.6    2.12
max_memory_reserved               2.6    2.6    -      -      ask    ask    2.6    2.12
reset_peak_memory_stats           2.6    2.6    -      2.6    ask    ask    2.6    2.12
reset_accumulated_memory_stats    2.6    2.6    -      -      ask    ask    2.6    2.12
get_memory_info                   2.6    2.6    2.6    -      ask    ask    -      2.12
"""

_INSTEAD = {
    ("Event.blocking", ""): "make the event without blocking=True; it then waits as the driver sees fit",
    ("Event.interprocess", ""): "make the event without interprocess=True, and order processes by other means",
    ("Stream", "mps"): "use current_stream(): MPS has one stream, and its work is in order by itself",
    ("default_stream", "xpu"): "keep current_stream() before the first set_stream(): on XPU every stream comes from a pool",
    ("stream_priority", ""): "treat all streams as equal",
    ("stream_priority_range", ""): "treat all streams as equal",
    ("init", "mps"): "use the device: MPS initialises itself at the first allocation",
    ("get_device_name", "mtia"): "use get_device_properties().raw",
    ("get_device_capability", ""): "use torch 2.10 or newer",
    ("get_device_capability", "cpu"): "ask torch for what you need: the CPU has every dtype",
    ("max_memory_allocated", "mps"): "sample memory_allocated(): MPS keeps no peaks",
    ("max_memory_reserved", "mps"): "sample memory_reserved(): MPS keeps no peaks",
    ("reset_peak_memory_stats", "mps"): "sample memory_allocated(): MPS keeps no peaks",
    ("empty_host_cache", ""): "use torch 2.12 or newer",
    ("empty_host_cache", "mps"): "leave it out: torch crashes there",
}


@cache
def _cells() -> dict[str, dict[str, str]]:
    head, *rows = (line.split() for line in _GRID.strip().splitlines())
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def features() -> tuple[str, ...]:
    """Return the names that the table knows."""
    return tuple(_cells())


def since(feature: str, backend: str) -> str:
    """Return the cell: a torch version, "ask", or "-". Raises KeyError for a feature that is not in the table."""
    row = _cells()[feature]
    return row[backend] if backend in row else row["other"]


def instead_of(feature: str, backend: str) -> str:
    """Return what to do where `backend` lacks `feature`; empty if there is nothing."""
    return _INSTEAD.get((feature, backend)) or _INSTEAD.get((feature, ""), "")
