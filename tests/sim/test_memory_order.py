"""Memory lives by stream order and record_stream alone."""

from __future__ import annotations

import contextlib
import gc
import threading

import pytest
import torch

import anyaccel as acc

pytestmark = pytest.mark.sim

SIZE = 3 << 20  # a segment of its own: no other test's blocks get in between


@pytest.fixture(autouse=True)
def empty_device():
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    yield
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()


def test_a_freed_block_is_at_once_free_for_its_own_stream() -> None:
    x = torch.empty(SIZE, device="sim")
    address = x.data_ptr()
    with acc.sim.hold(torch.accelerator.current_stream()):
        x.fill_(1)
        del x
        assert torch.empty(SIZE, device="sim").data_ptr() == address


def test_a_freed_block_is_not_free_for_another_stream() -> None:
    x = torch.empty(SIZE, device="sim")
    address = x.data_ptr()
    del x
    with acc.stream(torch.Stream("sim")):
        assert torch.empty(SIZE, device="sim").data_ptr() != address


def test_a_recorded_stream_delays_the_reuse_until_it_has_passed() -> None:
    side = torch.Stream("sim")
    x = torch.ones(SIZE, device="sim")
    address = x.data_ptr()
    torch.accelerator.synchronize()
    with acc.sim.hold(side):
        with acc.stream(side):
            y = x * 2
        x.record_stream(side)
        del x
        z = torch.empty(SIZE, device="sim")
        assert z.data_ptr() != address
    side.synchronize()
    assert torch.empty(SIZE, device="sim").data_ptr() == address
    assert y.sum().item() == 2 * SIZE


@pytest.mark.parametrize("recorded", [False, True])
def test_a_missing_record_stream_shows(recorded: bool) -> None:
    side = torch.Stream("sim")
    x = torch.ones(SIZE, device="sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(side):
        with acc.stream(side):
            y = x.clone()
        if recorded:
            x.record_stream(side)
        del x
        torch.full((SIZE,), 5.0, device="sim")  # takes the block, if it is free
        torch.accelerator.current_stream().synchronize()
    side.synchronize()
    assert y[0].item() == (1 if recorded else 5)


def test_statistics_are_exact() -> None:
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_stats()
    x = torch.empty(256, device="sim")
    after = torch.accelerator.memory_stats()
    assert after["active_bytes.all.current"] - before["active_bytes.all.current"] == 1024
    assert after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"] == 1024
    assert after["allocation.all.current"] - before["allocation.all.current"] == 1
    y = torch.empty(100, dtype=torch.uint8, device="sim")
    rounded = torch.accelerator.memory_stats()
    assert rounded["allocated_bytes.all.current"] - after["allocated_bytes.all.current"] == 512
    assert rounded["requested_bytes.all.current"] - after["requested_bytes.all.current"] == 100
    del x, y
    assert torch.accelerator.memory_allocated() == before["allocated_bytes.all.current"]
    assert torch.accelerator.max_memory_allocated() == before["allocated_bytes.all.current"] + 1536


def test_out_of_memory_says_so_and_leaves_a_device_that_works() -> None:
    _, total = torch.accelerator.get_memory_info()
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate .*GiB.*sim:0"):
        torch.empty(total + 1, dtype=torch.uint8, device="sim")
    assert torch.ones(3, device="sim").sum().item() == 3
    assert torch.accelerator.memory_stats()["num_ooms"] >= 1


def test_a_full_cache_is_given_back_before_out_of_memory() -> None:
    free, _ = torch.accelerator.get_memory_info()
    half = free // 2 // (2 << 20) * (2 << 20)
    blocks = [torch.empty(half, dtype=torch.uint8, device="sim") for _ in range(2)]
    del blocks
    torch.empty(2 * half, dtype=torch.uint8, device="sim")  # fits only once the two segments are given back


def test_memory_that_is_given_back_waits_for_the_device() -> None:
    side = torch.Stream("sim")
    x = torch.ones(SIZE, device="sim")
    torch.accelerator.synchronize()
    with acc.stream(side):
        y = x.clone()
    del x
    torch.accelerator.empty_cache()
    assert y.sum().item() == SIZE


def test_pinned_memory_is_not_reused_while_a_copy_is_pending() -> None:
    source = torch.ones(SIZE, pin_memory=True)
    address = source.data_ptr()
    stream = torch.accelerator.current_stream()
    with acc.sim.hold(stream):
        x = source.to("sim", non_blocking=True)
        del source
        other = torch.zeros(SIZE, pin_memory=True)
        assert other.data_ptr() != address
    assert x.sum().item() == SIZE
    assert torch.empty(SIZE, pin_memory=True).data_ptr() == address


def test_out_of_memory_waits_for_the_work_of_all_streams_and_leaves_it_right() -> None:
    gc.collect()  # what earlier tests left must not be freed in between
    _, total = torch.accelerator.get_memory_info()
    start, current = torch.accelerator.memory_allocated(), torch.accelerator.current_stream()
    streams, sums, failures = [torch.Stream("sim") for _ in range(8)], [], []
    x = torch.ones(SIZE, device="sim")
    current.synchronize()
    before = torch.accelerator.memory_stats()

    def ask_for_too_much() -> None:
        try:
            torch.empty(total, dtype=torch.uint8, device="sim")
        except torch.OutOfMemoryError as error:
            failures.append(error)

    asking = threading.Thread(target=ask_for_too_much)
    with contextlib.ExitStack() as held:
        for factor, stream in enumerate(streams):
            held.enter_context(acc.sim.hold(stream))
            with acc.stream(stream):
                sums.append((x * factor).sum())  # the product is freed, and its segment would be unused but for the work
            x.record_stream(stream)
        del x
        asking.start()
        while torch.accelerator.memory_stats()["num_alloc_retries"] == before["num_alloc_retries"]:
            assert asking.is_alive() or failures
        assert not failures, "the memory was given back while work was pending that uses it"
    asking.join()
    assert len(failures) == 1
    assert [int(each.item()) for each in sums] == [factor * SIZE for factor in range(8)]
    after = torch.accelerator.memory_stats()
    assert after["num_ooms"] == before["num_ooms"] + 1
    for stream in streams:  # and on it goes
        with acc.stream(stream):
            assert torch.ones(SIZE, device="sim").sum().item() == SIZE
    del sums
    assert torch.accelerator.memory_allocated() == start
