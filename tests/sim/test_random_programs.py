"""Random programs equal the CPU bit for bit, leave nothing behind, and fail where their ordering is left out."""

from __future__ import annotations

import gc
import os
import threading

import pytest
import torch
from tests import random_programs

import anyaccel as acc

pytestmark = pytest.mark.sim

OPERATIONS = "ANYACCEL_TEST_OPERATIONS"


def in_use() -> dict[str, int]:
    """What may not be more after a program than before it."""
    gc.collect()
    for device in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(device)
    torch.accelerator.empty_cache()
    torch.sim.empty_host_cache()
    kinds = ("allocated_bytes", "active_bytes", "reserved_bytes")
    found = {
        f"{kind} of sim:{device}": torch.accelerator.memory_stats(device)[f"{kind}.all.current"]
        for device in range(torch.accelerator.device_count())
        for kind in kinds
    }
    pinned = torch.sim.host_memory_stats()
    found |= {f"pinned {kind}": pinned[f"{kind}.current"] for kind in ("active_bytes", "allocated_bytes")}
    return found | {"threads of the sim": acc.sim.stats()["threads"], "threads of Python": threading.active_count()}


def test_random_programs_equal_the_cpu(seed: int) -> None:
    random_programs.run(seed, operations=500)  # the workers' threads start, and stay
    before = in_use()
    random_programs.run(seed + 1, int(os.environ.get(OPERATIONS, "20000")))
    assert in_use() == before


@pytest.mark.parametrize("left_out", ["wait_event", "record_stream", "synchronize"])
def test_random_programs_fail_where_ordering_is_left_out(seed: int, left_out: str) -> None:
    with pytest.raises(AssertionError, match=f"seed {seed}") as raised:
        random_programs.run(seed, operations=100_000, left_out=left_out)
    cause = raised.value.__cause__
    assert "differ" in str(cause) or "out of bounds" in str(cause)  # of an index, which was not there yet
