"""Streams: first-in first-out by themselves, unordered with one another until somebody waits."""

from __future__ import annotations

import torch

import anyaccel as acc
from anyaccel.conformance import Context, check

from ._raises import raises


@check
def new_streams_differ(context: Context) -> None:
    """torch.Stream: a new stream is not the current one, and each has its own identity."""
    context.need_feature("Stream")
    first, second = acc.Stream(), acc.Stream()
    assert first != second
    assert first != acc.current_stream()
    assert isinstance(first, acc.Stream)
    assert isinstance(first, torch.Stream)
    assert first.device == torch.device(context.type, acc.current_device_index())


@check
def work_returns_before_it_has_run(context: Context) -> None:
    """CUDA: a kernel launch returns before the kernel has run."""
    stream, tensor = acc.Stream(), context.tensor(1)
    with context.hold(stream):
        with acc.stream(stream):
            result = tensor + 1
        assert not stream.query()
    stream.synchronize()
    assert stream.query()
    assert result.tolist() == [2.0] * 1024


@check
def work_of_one_stream_is_in_order(context: Context) -> None:
    """CUDA: a stream is first-in first-out."""
    context.need_feature("Stream")
    tensor, stream = context.tensor(0), acc.Stream()
    with acc.stream(stream):
        tensor.add_(3).mul_(2).sub_(1).mul_(10)
    stream.synchronize()
    assert tensor.tolist() == [50.0] * 1024


@check
def without_a_wait_there_is_no_order(context: Context) -> None:
    """CUDA: without a wait nothing orders two streams."""
    producer, consumer, tensor = acc.Stream(), acc.Stream(), context.tensor(0)
    with context.hold(producer):
        with acc.stream(producer):
            tensor.fill_(1)
        with acc.stream(consumer):
            seen = tensor.clone()
        consumer.synchronize()
        assert seen.tolist() == [0.0] * 1024
    producer.synchronize()


@check
def wait_stream_orders(context: Context) -> None:
    """torch.Stream.wait_stream."""
    producer, consumer, tensor = acc.Stream(), acc.Stream(), context.tensor(0)
    with context.hold(producer):
        with acc.stream(producer):
            tensor.fill_(1)
        consumer.wait_stream(producer)
        with acc.stream(consumer):
            seen = tensor.clone()
        assert not consumer.query()
    consumer.synchronize()
    assert seen.tolist() == [1.0] * 1024


@check
def wait_stream_waits_for_what_was_there(context: Context) -> None:
    """torch.Stream.wait_stream: work submitted at the time of the call, and no later one."""
    producer, consumer, tensor = acc.Stream(), acc.Stream(), context.tensor(0)
    with acc.stream(producer):
        tensor.fill_(1)
    consumer.wait_stream(producer)
    producer.synchronize()
    with context.hold(producer):
        with acc.stream(producer):
            tensor.fill_(2)
        with acc.stream(consumer):
            seen = tensor.clone()
        consumer.synchronize()
        assert seen.tolist() == [1.0] * 1024
    producer.synchronize()


@check
def wait_stream_works_across_devices(context: Context) -> None:
    """CUDA: streams of other devices can wait."""
    other = context.other_device()
    producer, consumer, tensor = acc.Stream(), acc.Stream(other), context.tensor(7, device=other)
    with context.hold(producer):
        with acc.stream(producer):
            unrelated = torch.zeros(1, device=context.type)
        consumer.wait_stream(producer)
        with acc.stream(consumer):
            tensor.add_(1)
        assert not consumer.query()
    consumer.synchronize()
    assert unrelated.item() == 0
    assert tensor[0].item() == 8


@check
def set_stream_switches_the_device(context: Context) -> None:
    """torch.accelerator.set_stream: sets the device too."""
    other = context.other_device()
    stream = acc.Stream(other)
    acc.set_stream(stream)
    assert acc.current_device_index() == other
    assert acc.current_stream() == stream
    assert torch.accelerator.current_stream().stream_id == stream.stream_id
    acc.set_stream(None)
    assert acc.current_stream() == stream


@check
def context_restores_device_and_streams(context: Context) -> None:
    """torch.cuda.stream: restores the device and the stream of the other device."""
    home, other = acc.current_device_index(), context.other_device()
    here, there, side = acc.Stream(), acc.Stream(other), acc.Stream(other)
    acc.set_stream(there)
    acc.set_stream(here)
    with acc.stream(side), acc.stream(None):
        assert acc.current_device_index() == other
        assert acc.current_stream() == side
        assert acc.current_stream(home) == here
    assert acc.current_device_index() == home
    assert acc.current_stream() == here
    assert acc.current_stream(other) == there
    with raises(KeyError), acc.stream(side):
        raise KeyError
    assert acc.current_stream() == here
    acc.set_stream(acc.default_stream(other))


@check
def context_is_re_entrant(context: Context) -> None:
    """anyaccel: one stream may be entered while entered."""
    context.need_feature("Stream")
    before, side, other = acc.current_stream(), acc.Stream(), acc.Stream()
    with acc.stream(side), acc.stream(side), acc.stream(other), acc.stream(side):
        assert acc.current_stream() == side
    assert acc.current_stream() == before


@check
def context_is_per_thread(context: Context) -> None:
    """anyaccel: torch keeps what `with s` saved on the stream, so threads restored each other's."""
    context.need_feature("Stream")
    side, theirs = acc.Stream(), acc.Stream()

    def other() -> bool:
        acc.set_stream(theirs)
        with acc.stream(side):
            inside = acc.current_stream() == side
        return inside and acc.current_stream() == theirs

    before = acc.current_stream()
    with acc.stream(side):
        assert context.in_thread(other)
        assert acc.current_stream() == side
    assert acc.current_stream() == before


@check
def current_stream_by_device(context: Context) -> None:
    """torch.accelerator.current_stream: by device, int and str, and per thread."""
    context.need_feature("Stream")
    index, side = acc.current_device_index(), acc.Stream()
    with acc.stream(side):
        for device in (None, index, f"{context.type}:{index}", torch.device(context.type, index)):
            assert acc.current_stream(device) == side
        assert context.in_thread(lambda: acc.current_stream(index)) != side


@check
def stream_is_rebuilt_from_its_ids(context: Context) -> None:
    """torch.Stream: three numbers name a stream."""
    context.need_feature("Stream")
    stream = acc.Stream()
    twin = torch.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert twin.stream_id == stream.stream_id
    with acc.stream(twin):
        assert acc.current_stream() == stream


@check
def default_stream_is_the_one_before_any_other(context: Context) -> None:
    """torch.cuda.default_stream."""
    context.need_feature("default_stream")
    default = acc.default_stream()
    assert context.in_thread(acc.current_stream) == default
    with acc.stream(acc.Stream()):
        assert acc.default_stream() == default
        assert acc.current_stream() != default


@check
def priorities_are_clamped(context: Context) -> None:
    """torch.cuda.Stream: a priority out of range is the nearest in range."""
    context.need_feature("stream_priority", "stream_priority_range")
    least, greatest = acc.stream_priority_range()
    assert greatest <= least
    assert acc.stream_priority(acc.Stream(priority=greatest - 100)) == greatest
    assert acc.stream_priority(acc.Stream(priority=least + 100)) == least
    assert acc.stream_priority(acc.Stream(priority=greatest)) == greatest


@check
def streams_do_not_capture_by_themselves(context: Context) -> None:
    """torch.Stream.is_capturing."""
    context.need_feature("Stream.is_capturing")
    assert not acc.current_stream().is_capturing()


@check
def copy_on_one_stream_and_use_on_another(context: Context) -> None:
    """torch: a non-blocking copy, an event, and work on another stream."""
    context.need_feature("Stream")
    host = torch.arange(4096, dtype=torch.float32).pin_memory()
    copier, worker = acc.Stream(), acc.Stream()
    with acc.stream(copier):
        device = host.to(context.type, non_blocking=True)
        copied = copier.record_event()
    worker.wait_event(copied)
    with acc.stream(worker):
        result = device + 1
    worker.synchronize()
    assert torch.equal(result.cpu(), host + 1)
