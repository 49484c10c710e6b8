"""The simulated accelerator."""

from __future__ import annotations

from typing import Any

import torch

from .torchlike import TorchLike

__all__ = ["Sim"]


class Sim(TorchLike):
    """`torch.sim`. Its streams and events are torch's own."""

    type_name_in_torch = "PrivateUse1"

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        from anyaccel.sim import build

        self.driver: Any = build.load()

    def new_event(self, enable_timing: bool, blocking: bool, interprocess: bool) -> torch.Event:
        # A host that waits for the sim always sleeps, so `blocking` is what happens anyway.
        if interprocess:
            raise self.lacks("Event.interprocess")
        return torch.Event(enable_timing=enable_timing)

    # Id 0 on any device; made here so that Dynamo can follow it.
    def default_stream(self, index: int) -> torch.Stream:
        return torch.Stream(stream_id=0, device_index=index, device_type=self.type_id)

    def stream_priority(self, stream: torch.Stream) -> int:
        return int(self.driver.stream_priority(stream.device_index, stream.stream_id))

    def stream_priority_range(self, index: int) -> tuple[int, int]:
        least, greatest = self.driver.priority_range()
        return int(least), int(greatest)
