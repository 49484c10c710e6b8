"""What a check is given: devices, streams that it can hold still, and a state that is put back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch

import anyaccel as acc

__all__ = ["Context", "Skip"]

_Result = TypeVar("_Result")


class Skip(Exception):
    """Says why a check cannot be made on this backend."""


class Context:
    """Helpers of one check. As a context it restores the current device and stream, and waits for all devices."""

    def __enter__(self) -> Context:
        self._device = acc.current_device_index()
        self._stream = acc.current_stream()
        return self

    def __exit__(self, *exc_info: object) -> None:
        acc.set_stream(self._stream)
        acc.set_device_index(self._device)
        for index in range(acc.device_count()):
            acc.synchronize(index)

    @property
    def type(self) -> str:
        """The device type."""
        device = acc.current_accelerator()
        assert device is not None
        return device.type

    def other_device(self) -> int:
        """Return the index of a device that is not current; skips where there is one device only."""
        self.need(acc.device_count() > 1, "a second device")
        return (acc.current_device_index() + 1) % acc.device_count()

    def need(self, there: bool, what: str) -> None:
        """Skip the check unless what it needs is there."""
        if not there:
            raise Skip(f"{self.type} lacks {what}")

    def need_feature(self, *features: str) -> None:
        """Skip the check unless the backend supports all of `features`."""
        for feature in features:
            self.need(acc.supports(feature), feature)

    def hold(self, stream: torch.Stream) -> AbstractContextManager[None]:
        """Return a context that keeps what is enqueued on `stream` from starting: a latch, so that no check needs a clock."""
        self.need(self.type == "sim", "a latch")
        return acc.sim.hold(stream)

    def tensor(self, value: float, numel: int = 1024, device: int | None = None) -> torch.Tensor:
        """Return a float32 tensor full of `value` that is ready: nothing that made it is still to run."""
        index = acc.current_device_index() if device is None else device
        made = torch.full((numel,), float(value), device=torch.device(self.type, index))
        acc.synchronize(index)
        return made

    def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Return what `work` returns in a thread of its own, or raise what it raises."""
        result: list[Any] = []
        errors: list[BaseException] = []

        def body() -> None:
            try:
                result.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        found: _Result = result[0]
        return found
