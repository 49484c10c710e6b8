"""The CPU as a stand-in: streams in order by themselves, events on the clock, and the truth about what is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

import anyaccel as acc
from anyaccel.backends import cpu, registry


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    registry.forget()
    with acc.allow_cpu():
        yield
    registry.forget()


def test_the_truth_stays() -> None:
    assert acc.current_accelerator() is None
    assert acc.device_count() == 0
    assert not acc.is_available()


@pytest.mark.parametrize("device", [None, 0, "cpu", "cpu:0", torch.device("cpu")])
def test_the_cpu_is_the_device(device: acc.devices.Device) -> None:
    acc.synchronize(device)
    assert acc.current_stream(device) == acc.default_stream(device)
    with acc.device(device):
        assert acc.current_device_index() == 0
    assert acc.memory_allocated(device) == 0


def test_there_is_one() -> None:
    with pytest.raises(ValueError, match="0 is the only one"):
        acc.synchronize(1)
    with pytest.raises(ValueError, match=r"'cuda'.*'cpu'"):
        acc.synchronize("cuda")


def test_streams() -> None:
    first, second = acc.Stream(), acc.Stream(priority=-1)
    assert isinstance(first, acc.Stream)
    assert isinstance(first, torch.Stream)
    assert first != second
    with acc.stream(first):
        assert acc.current_stream() is first
        with acc.stream(second), acc.stream(first):
            assert acc.current_stream() is first
        assert acc.current_stream() is first
    assert acc.current_stream() == acc.default_stream()
    second.wait_stream(first)
    second.wait_event(first.record_event())
    assert second.query()
    second.synchronize()


def test_the_current_stream_is_the_thread_s() -> None:
    seen = []
    with acc.stream(acc.Stream()):
        thread = threading.Thread(target=lambda: seen.append(acc.current_stream()))
        thread.start()
        thread.join()
    assert seen == [acc.default_stream()]


def test_events_time_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1_000_000, 3_500_000])
    monkeypatch.setattr(cpu.time, "perf_counter_ns", lambda: next(clock))
    start, end = acc.Event(enable_timing=True), acc.Event("cpu", enable_timing=True, blocking=True)
    assert isinstance(start, acc.Event)
    start.record()
    acc.Stream().record_event(end)
    end.synchronize()
    assert start.elapsed_time(end) == 2.5
    assert end.elapsed_time(start) == 0.0


def test_events_that_cannot_be_compared() -> None:
    timed, untimed = acc.Event(enable_timing=True), acc.Event()
    assert timed.query()
    timed.synchronize()
    timed.wait()
    other = acc.Event(enable_timing=True)
    other.record()
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(other)
    untimed.record()
    with pytest.raises(ValueError, match="enable_timing"):
        other.elapsed_time(untimed)


def test_a_foreign_cpu_stream_is_refused() -> None:
    with pytest.raises(TypeError, match=r"anyaccel\.Stream"):
        acc.set_stream(torch.Stream(device="cpu"))
