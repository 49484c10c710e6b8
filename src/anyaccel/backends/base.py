"""The contract of a backend: the primitives that the nouns call.

A backend fills in what it has and leaves the rest; what it leaves raises `Unsupported`. A primitive bears the name of the
public function that it serves. Policy is not here: nouns have made an index of the device argument, have dealt with
`stream(None)` and the like, and never call a backend for what they can answer themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from anyaccel.errors import AnyaccelError, Unsupported

from .table import instead_of

if TYPE_CHECKING:
    import torch

__all__ = ["Backend", "DeviceProperties", "accelerator_changed", "traced_as", "when_accelerator_changes"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_listeners: list[Callable[[], None]] = []


def when_accelerator_changes(listener: Callable[[], None]) -> None:
    """Have `listener` called by `accelerator_changed`."""
    _listeners.append(listener)


def accelerator_changed() -> None:
    """Tell all that remember which accelerator there is: for whoever gives this process another one."""
    for listener in _listeners:
        listener()


def traced_as(twin: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that has Dynamo trace `twin` in place of the function.

    Functions that are called often are bound to those of torch._C, of which Dynamo knows few; it knows the ones of
    `torch.accelerator` above them. Asking at each call whether it is tracing would cost as much as they gain.
    """

    def mark(function: _Function) -> _Function:
        function._torchdynamo_inline = twin  # type: ignore[attr-defined]
        return function

    return mark


@dataclass(frozen=True)
class DeviceProperties:
    """What there is to know about a device; None where the vendor does not say.

    Attributes:
        name: what the vendor calls it.
        backend: the device type (`"cuda"`).
        total_memory_bytes: the size of its memory.
        compute_units: multiprocessors, execution units, worker threads: what runs kernels.
        vendor: who made it.
        uuid: its unique id.
        driver_version: the version of its driver.
        capability: `(major, minor)` where the vendor counts so.
        raw: the vendor's own object.
    """

    name: str | None
    backend: str
    total_memory_bytes: int | None = None
    compute_units: int | None = None
    vendor: str | None = None
    uuid: str | None = None
    driver_version: str | None = None
    capability: tuple[int, int] | None = None
    raw: Any = None


class Backend:
    """An accelerator type as the nouns see it.

    Attributes:
        type: the device type, as in `torch.device.type`.
        type_id: torch's number for it, as in `torch.Stream.device_type`.
        known_device_count: how many devices there were when last asked; nouns check indices against it.
        traced: has the primitives as Dynamo can trace them.
    """

    type: str = ""
    type_id: int = -1
    known_device_count: int = 0

    @property
    def traced(self) -> Backend:
        """The backend whose primitives Dynamo can trace: this one."""
        return self

    def lacks(self, feature: str) -> AnyaccelError:
        """Return (not raise) the error for `feature`, which this backend lacks."""
        return Unsupported(feature, self.type, instead_of(feature, self.type))

    def can(self, feature: str) -> bool:
        """Answer for a feature of which the table says that the device's module must be asked."""
        return False

    # devices

    def device_count(self) -> int:
        """Return the number of devices without initialising any."""
        raise self.lacks("device_count")

    def init(self) -> None:
        """Initialise the accelerator now."""
        raise self.lacks("init")

    def is_initialized(self) -> bool:
        """Return whether it is initialised."""
        raise self.lacks("is_initialized")

    def current_device_index(self) -> int:
        """Return the index of this thread's current device."""
        raise self.lacks("current_device_index")

    def set_device_index(self, index: int) -> None:
        """Make a device current for this thread."""
        raise self.lacks("set_device_index")

    def exchange_device(self, index: int) -> int:
        """Set the device and return the one before."""
        before = self.current_device_index()
        self.set_device_index(index)
        return before

    def restore_device(self, index: int) -> None:
        """Set the device, if that can be done without waking a device that nobody has used yet: without it."""
        self.set_device_index(index)

    def device_context(self, index: int) -> AbstractContextManager[Any]:
        """Return a context that Dynamo knows, in which the device is current. Only traced code uses it."""
        return nullcontext()

    def synchronize(self, index: int | None = None) -> None:
        """Wait for all streams of one device. Only traced code leaves the index out."""
        raise self.lacks("synchronize")

    def get_device_name(self, index: int) -> str:
        """Return the vendor's name of the device."""
        raise self.lacks("get_device_name")

    def get_device_properties(self, index: int) -> DeviceProperties:
        """Return what the vendor says of the device."""
        raise self.lacks("get_device_properties")

    def get_device_capability(self, index: int) -> dict[str, Any]:
        """Return a dict with `supported_dtypes` that is the caller's own."""
        raise self.lacks("get_device_capability")

    # events and streams

    def new_event(self, enable_timing: bool, blocking: bool, interprocess: bool) -> torch.Event:
        """Make an event, or raise for a flag that cannot be honoured."""
        raise self.lacks("Event")

    def new_stream(self, index: int | None, priority: int) -> torch.Stream:
        """Make a stream; a priority out of range is clamped."""
        raise self.lacks("Stream")

    def current_stream(self, index: int | None = None) -> torch.Stream:
        """Return this thread's current stream on the device. Only traced code leaves the index out."""
        raise self.lacks("current_stream")

    def default_stream(self, index: int) -> torch.Stream:
        """Return the stream that is current while no other was chosen."""
        raise self.lacks("default_stream")

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` current on its device, and that device current."""
        raise self.lacks("set_stream")

    def stream_priority(self, stream: torch.Stream) -> int:
        """Return the priority of the stream, which may be a generic one."""
        raise self.lacks("stream_priority")

    def stream_priority_range(self, index: int) -> tuple[int, int]:
        """Return (least, greatest) priority: the lower number goes first, so `greatest` is the smaller one."""
        raise self.lacks("stream_priority_range")

    # memory

    def empty_cache(self) -> None:
        """Give reserved device memory back."""
        raise self.lacks("empty_cache")

    def empty_host_cache(self) -> None:
        """Give reserved pinned memory back."""
        raise self.lacks("empty_host_cache")

    def memory_stats(self, index: int) -> Mapping[str, Any]:
        """Return the statistics under CUDA's flat keys, as many as the backend keeps; none before the first allocation."""
        raise self.lacks("memory_stats")

    def memory_stat(self, index: int, key: str, asked: str) -> int:
        """Return one statistic, 0 before the first allocation; `asked` is the public function, for the error."""
        stats = self.memory_stats(index)
        if not stats:
            return 0
        if key not in stats:
            raise self.lacks(asked)
        return int(stats[key])

    def reset_peak_memory_stats(self, index: int) -> None:
        """Let the peaks start again."""
        raise self.lacks("reset_peak_memory_stats")

    def reset_accumulated_memory_stats(self, index: int) -> None:
        """Let the totals start again."""
        raise self.lacks("reset_accumulated_memory_stats")

    def get_memory_info(self, index: int) -> tuple[int, int]:
        """Return (free, total) in bytes."""
        raise self.lacks("get_memory_info")
