"""The allocator: what is counted, what is reused and when, and what happens when memory runs out."""

from __future__ import annotations

import torch

import anyaccel as acc
from anyaccel.conformance import Context, check

from ._raises import raises

_KIB = 1024
_MIB = 1024 * _KIB


@check
def statistics_have_cuda_s_keys(context: Context) -> None:
    """torch.accelerator.memory_stats: the keys in bytes."""
    context.need_feature("memory_stats", "max_memory_reserved")
    context.tensor(0)
    stats = acc.memory_stats()
    for what in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            for value in ("current", "peak", "allocated", "freed"):
                assert isinstance(stats[f"{what}.{pool}.{value}"], int)
    assert list(stats) == sorted(stats)


@check
def statistics_are_exact(context: Context) -> None:
    """torch: 256 floats are 1,024 active bytes."""
    context.need_feature("memory_stats", "max_memory_reserved")
    before = acc.memory_stats()["active_bytes.all.current"]
    tensor = torch.empty(256, device=context.type)
    assert acc.memory_stats()["active_bytes.all.current"] - before == 1024
    assert acc.memory_stats()["allocated_bytes.all.current"] == acc.memory_allocated()
    del tensor
    acc.synchronize()
    assert acc.memory_stats()["active_bytes.all.current"] == before


@check
def peaks_start_again(context: Context) -> None:
    """torch.accelerator.max_memory_allocated, reset_peak_memory_stats."""
    context.need_feature("max_memory_allocated", "reset_peak_memory_stats")
    acc.reset_peak_memory_stats()
    before = acc.memory_allocated()
    tensor = torch.empty(3 * _MIB, dtype=torch.uint8, device=context.type)
    assert acc.memory_allocated() == before + 3 * _MIB
    del tensor
    acc.synchronize()
    assert acc.memory_allocated() == before
    assert acc.max_memory_allocated() == before + 3 * _MIB
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == before


@check
def totals_start_again(context: Context) -> None:
    """torch.accelerator.reset_accumulated_memory_stats."""
    context.need_feature("reset_accumulated_memory_stats", "memory_stats")
    context.tensor(0)
    assert acc.memory_stats()["allocated_bytes.all.allocated"] > 0
    acc.reset_accumulated_memory_stats()
    assert acc.memory_stats()["allocated_bytes.all.allocated"] == 0
    assert acc.memory_stats()["allocated_bytes.all.freed"] == 0


@check
def devices_count_for_themselves(context: Context) -> None:
    """torch: statistics are per device."""
    context.need_feature("memory_allocated")
    other = context.other_device()
    before, theirs = acc.memory_allocated(), acc.memory_allocated(other)
    tensor = torch.empty(_MIB, dtype=torch.uint8, device=torch.device(context.type, other))
    assert acc.memory_allocated() == before
    assert acc.memory_allocated(other) == theirs + tensor.numel()


@check
def freed_memory_is_reused_on_its_stream(context: Context) -> None:
    """CUDA caching allocator: freed memory is reused on its stream at once."""
    context.need_feature("Stream", "memory_reserved")
    with acc.stream(acc.Stream()):
        first = torch.empty(7 * _MIB, dtype=torch.uint8, device=context.type)
        address = first.data_ptr()
        del first
        assert torch.empty(7 * _MIB, dtype=torch.uint8, device=context.type).data_ptr() == address


@check
def recorded_memory_is_not_reused_while_in_use(context: Context) -> None:
    """torch.Tensor.record_stream: memory waits for its users."""
    home, user = acc.Stream(), acc.Stream()
    with acc.stream(home):
        tensor = torch.full((7 * _MIB // 4,), 1.0, device=context.type)
    home.synchronize()
    address = tensor.data_ptr()
    with context.hold(user):
        with acc.stream(user):
            result = tensor.sum()
        tensor.record_stream(user)
        del tensor
        with acc.stream(home):
            second = torch.full((7 * _MIB // 4,), 2.0, device=context.type)
        home.synchronize()
        assert second.data_ptr() != address
    user.synchronize()
    assert result.item() == 7 * _MIB // 4


@check
def empty_cache_gives_back_what_is_free(context: Context) -> None:
    """torch.accelerator.empty_cache: what is free goes back, what is in use stays."""
    context.need_feature("empty_cache", "memory_reserved")
    kept = context.tensor(5)
    torch.empty(32 * _MIB, dtype=torch.uint8, device=context.type)
    acc.synchronize()
    before = acc.memory_reserved()
    acc.empty_cache()
    assert acc.memory_reserved() <= before - 32 * _MIB
    assert kept.tolist() == [5.0] * 1024


@check
def memory_info_falls_with_use(context: Context) -> None:
    """torch.accelerator.get_memory_info: (free, total) in bytes."""
    context.need_feature("get_memory_info", "empty_cache")
    acc.empty_cache()
    free, total = acc.get_memory_info()
    assert 0 < free <= total
    tensor = torch.empty(64 * _MIB, dtype=torch.uint8, device=context.type)
    assert acc.get_memory_info()[0] <= free - tensor.numel()
    assert acc.get_memory_info()[1] == total


@check
def out_of_memory_is_an_error_and_not_the_end(context: Context) -> None:
    """torch.OutOfMemoryError: raised at the call, and the device goes on."""
    context.need_feature("get_memory_info")
    tensor, total = context.tensor(3), acc.get_memory_info()[1]
    with raises(torch.OutOfMemoryError, match="(?i)memory"):
        torch.empty(2 * total, dtype=torch.uint8, device=context.type)
    assert (tensor + 1).tolist() == [4.0] * 1024


@check
def empty_host_cache_with_nothing_in_it(context: Context) -> None:
    """torch.accelerator.empty_host_cache: also with nothing in it."""
    context.need_feature("empty_host_cache")
    acc.empty_host_cache()
    pinned = torch.zeros(16).pin_memory()
    assert pinned.is_pinned()
    del pinned
    acc.empty_host_cache()


@check
def non_blocking_copies_to_the_host_are_pinned(context: Context) -> None:
    """torch: the result of a non-blocking copy to the host is pinned."""
    host = context.tensor(2).to("cpu", non_blocking=True)
    acc.synchronize()
    assert host.is_pinned()
    assert host.tolist() == [2.0] * 1024
