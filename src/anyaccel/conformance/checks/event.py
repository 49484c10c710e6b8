"""Events: points in a stream, in versions."""

from __future__ import annotations

import torch

import anyaccel as acc
from anyaccel.conformance import Context, check

from ._raises import raises


@check
def unrecorded_event_is_complete(context: Context) -> None:
    """CUDA: an event that was never recorded is complete."""
    event = acc.Event()
    assert isinstance(event, acc.Event)
    assert event.query()
    event.synchronize()
    event.wait()
    acc.synchronize()


@check
def elapsed_time_needs_two_recorded_timing_events(context: Context) -> None:
    """torch.Event.elapsed_time: both recorded, both with timing."""
    timed, other, untimed = acc.Event(enable_timing=True), acc.Event(enable_timing=True), acc.Event()
    with raises((ValueError, RuntimeError)):
        timed.elapsed_time(other)
    for event in (timed, untimed):
        event.record()
    acc.synchronize()
    with raises((ValueError, RuntimeError)):
        timed.elapsed_time(untimed)


@check
def elapsed_time_is_positive(context: Context) -> None:
    """torch.Event.elapsed_time: milliseconds from the first to the second."""
    start, end, tensor = acc.Event(enable_timing=True), acc.Event(enable_timing=True), context.tensor(1)
    start.record()
    for _ in range(10):
        tensor.mul_(1)
    end.record()
    end.synchronize()
    assert 0 < start.elapsed_time(end) < 60_000


@check
def query_is_false_until_reached(context: Context) -> None:
    """torch.Event.query: False until its stream has reached it."""
    stream, event, tensor = acc.Stream(), acc.Event(), context.tensor(0)
    with context.hold(stream):
        with acc.stream(stream):
            tensor.add_(1)
            event.record()  # with no stream named: on the current one
        assert not event.query()
    event.synchronize()
    assert event.query()
    assert tensor[0].item() == 1


@check
def record_takes_a_stream(context: Context) -> None:
    """torch.Event.record: given a stream."""
    stream, event = acc.Stream(), acc.Event()
    with context.hold(stream):
        event.record(stream)
        assert not event.query()
    event.synchronize()


@check
def wait_orders_streams(context: Context) -> None:
    """torch.Event.wait: later work of the stream waits, the host does not."""
    producer, consumer, event, tensor = acc.Stream(), acc.Stream(), acc.Event(), context.tensor(0)
    with context.hold(producer):
        with acc.stream(producer):
            tensor.fill_(1)
            event.record()
        event.wait(consumer)
        with acc.stream(consumer):
            seen = tensor.clone()
        assert not consumer.query()
    consumer.synchronize()
    assert seen.tolist() == [1.0] * 1024


@check
def earlier_waits_keep_their_version(context: Context) -> None:
    """CUDA: a wait holds the version that was current when it was called."""
    producer, early, late, event = acc.Stream(), acc.Stream(), acc.Stream(), acc.Event()
    tensor = context.tensor(0)
    event.record(producer)
    producer.synchronize()
    early.wait_event(event)
    with context.hold(producer):
        with acc.stream(producer):
            tensor.fill_(1)
        event.record(producer)
        late.wait_event(event)
        for stream in (early, late):
            with acc.stream(stream):
                tensor.clone()
        early.synchronize()
        assert not late.query()
    late.synchronize()


@check
def wait_works_across_devices(context: Context) -> None:
    """CUDA: streams of any device can wait for an event."""
    other = context.other_device()
    producer, consumer, event = acc.Stream(), acc.Stream(other), acc.Event()
    tensor = context.tensor(0, device=other)
    with context.hold(producer):
        event.record(producer)
        consumer.wait_event(event)
        with acc.stream(consumer):
            tensor.add_(1)
        assert not consumer.query()
    consumer.synchronize()
    assert tensor[0].item() == 1


@check
def record_on_another_device_raises(context: Context) -> None:
    """CUDA: an event belongs to the device of its first record."""
    other, event = context.other_device(), acc.Event()
    event.record(acc.Stream())
    with raises((RuntimeError, ValueError)):
        event.record(acc.Stream(other))


@check
def flags_are_honoured_or_refused(context: Context) -> None:
    """anyaccel: torch drops flags that it cannot honour."""
    for flag in ("blocking", "interprocess"):
        if acc.supports(f"Event.{flag}"):
            event = acc.Event(**{flag: True})
            event.record()
            event.synchronize()
        else:
            with raises(acc.Unsupported, match=f"Event.{flag}"):
                acc.Event(**{flag: True})


@check
def generic_and_vendor_objects_mix(context: Context) -> None:
    """anyaccel: vendor events on generic streams and the reverse."""
    context.need_feature("Stream")
    stream, tensor = acc.Stream(), context.tensor(0)
    generic = torch.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    with acc.stream(stream):
        tensor.add_(1)
    for event, on in ((acc.Event(), generic), (torch.Event(), stream)):
        event.record(on)
        event.wait(acc.current_stream())
        event.synchronize()
        assert event.query()
    assert tensor[0].item() == 1
