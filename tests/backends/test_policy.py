"""What stands above the backends and is the same for all: reading a device, contexts, None, errors. On a fake accelerator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.backends.fakes import CLASSES, Accelerator, Install

import anyaccel as acc
from anyaccel.devices import index_of


@pytest.fixture(params=["cuda", "mtia", "privateuseone"])
def fake(install: Install, request: pytest.FixtureRequest) -> Accelerator:
    return install(request.param, devices=4)


def in_thread(work: Callable[[], Any]) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    thread.join()
    return result[0]


def test_ways_to_name_a_device(fake: Accelerator) -> None:
    acc.set_device_index(2)
    assert [index_of(d) for d in (1, f"{fake.type}:1", torch.device(fake.type, 1))] == [1, 1, 1]
    assert [index_of(d) for d in (None, -1, fake.type, torch.device(fake.type))] == [2, 2, 2, 2]


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu"), torch.device("xla", 0)])
def test_another_type_is_an_error_that_names_both(fake: Accelerator, device: Any) -> None:
    for call in (acc.set_device_index, acc.device, acc.synchronize, acc.current_stream, acc.Stream, acc.Event, acc.memory_allocated):
        with pytest.raises(ValueError, match=f"{torch.device(device).type!r}.*{fake.type!r}"):
            call(device)


def test_an_index_too_large_is_an_error_that_says_which_there_are(fake: Accelerator) -> None:
    for call in (acc.set_device_index, acc.device, acc.synchronize, acc.current_stream, acc.Stream, acc.memory_stats):
        with pytest.raises(ValueError, match=r"there is no device 4: .* has 4 here \(they are 0 to 3\)"):
            call(4)


def test_devices_that_came_later_count(fake: Accelerator) -> None:
    acc.synchronize(3)
    fake.devices = 8
    acc.synchronize(7)
    assert [call for call in fake.calls if call.startswith("synchronize")] == ["synchronize 3", "synchronize 7"]


@pytest.mark.parametrize("device", [1.0, [0], object()])
def test_what_is_no_device_is_a_type_error(fake: Accelerator, device: Any) -> None:
    with pytest.raises(TypeError, match=type(device).__name__):
        acc.synchronize(device)


def test_device_arguments_are_positional_and_keyword(fake: Accelerator) -> None:
    assert acc.current_stream(device=1) == acc.current_stream(1)
    acc.synchronize(device=1)
    with acc.device(device=1):
        assert acc.current_device_index() == 1
    assert acc.Stream(device=3).device_index == 3


def test_set_device_index(fake: Accelerator) -> None:
    acc.set_device_index(3)
    acc.set_device_index(-1)
    assert acc.current_device_index() == 3
    assert in_thread(acc.current_device_index) == 0
    with pytest.raises(ValueError, match="None"):
        acc.set_device_index(None)


def test_deprecated_names_warn_and_work(fake: Accelerator) -> None:
    with pytest.warns(FutureWarning, match="set_device_index"):
        acc.set_device_idx(1)
    with pytest.warns(FutureWarning, match="current_device_index"):
        assert acc.current_device_idx() == 1


def test_device_context(fake: Accelerator) -> None:
    for device in (1, f"{fake.type}:1", torch.device(fake.type, 1)):
        with acc.device(device):
            assert acc.current_device_index() == 1
        assert acc.current_device_index() == 0
    for nothing in (None, -1):
        with acc.device(nothing):
            assert acc.current_device_index() == 0


def test_device_context_restores_after_an_exception(fake: Accelerator) -> None:
    with pytest.raises(KeyError), acc.device(2):
        raise KeyError
    assert acc.current_device_index() == 0


def test_one_device_context_may_be_entered_again_and_by_others(fake: Accelerator) -> None:
    context = acc.device(1)

    def enter_twice() -> tuple[int, ...]:
        with context:
            acc.set_device_index(2)
            with context:
                inner = acc.current_device_index()
            between = acc.current_device_index()
        return inner, between, acc.current_device_index()

    assert enter_twice() == (1, 2, 0)
    with context:
        assert in_thread(enter_twice) == (1, 2, 0)
    assert acc.current_device_index() == 0


@pytest.mark.parametrize("make", [lambda: acc.device(1), lambda: acc.stream(acc.Stream(1))])
def test_threads_may_leave_one_context_in_any_order(fake: Accelerator, make: Callable[[], Any]) -> None:
    context, inside, leave, left = make(), threading.Event(), threading.Event(), []

    def other() -> None:
        acc.set_device_index(2)
        with context:
            inside.set()
            leave.wait()
        left.append(acc.current_device_index())

    thread = threading.Thread(target=other)
    acc.set_device_index(3)
    try:
        with context:
            thread.start()
            assert inside.wait(60)
        assert acc.current_device_index() == 3
    finally:
        leave.set()
        thread.join()
    assert left == [2]


def test_device_of(fake: Accelerator) -> None:
    class There:
        device = torch.device(fake.type, 2)

    with acc.device_of(There()):
        assert acc.current_device_index() == 2
    for tensor in (torch.zeros(1), torch.zeros(1, device="meta"), torch.zeros(1).untyped_storage()):
        with acc.device_of(tensor):
            assert acc.current_device_index() == 0


def test_set_stream_switches_the_device(fake: Accelerator) -> None:
    stream = acc.Stream(1)
    acc.set_stream(stream)
    assert acc.current_device_index() == 1
    assert acc.current_stream() is stream
    acc.set_stream(None)
    assert acc.current_stream() is stream


def test_stream_context_restores_device_and_both_streams(fake: Accelerator) -> None:
    here, there, side = acc.Stream(0), acc.Stream(1), acc.Stream(1)
    acc.set_stream(there)
    acc.set_stream(here)
    with acc.stream(side) as entered:
        assert entered is side
        assert acc.current_device_index() == 1
        assert acc.current_stream() is side
        assert acc.current_stream(0) is here
    assert acc.current_device_index() == 0
    assert acc.current_stream() is here
    assert acc.current_stream(1) is there


def test_stream_context_restores_after_an_exception(fake: Accelerator) -> None:
    before = acc.Stream()
    acc.set_stream(before)
    with pytest.raises(KeyError), acc.stream(acc.Stream(2)):
        raise KeyError
    assert (acc.current_device_index(), acc.current_stream()) == (0, before)


def test_stream_of_none_does_nothing(fake: Accelerator) -> None:
    before = acc.Stream()
    acc.set_stream(before)
    with acc.stream(None):
        assert acc.current_stream() is before


def test_one_stream_may_be_entered_again(fake: Accelerator) -> None:
    first, other = acc.Stream(), acc.Stream()
    acc.set_stream(first)
    side = acc.Stream()
    with acc.stream(side), acc.stream(other):
        with acc.stream(side), acc.stream(side):
            assert acc.current_stream() is side
        assert acc.current_stream() is other
    assert acc.current_stream() is first
    context = acc.stream(side)
    with context, context:
        assert acc.current_stream() is side
    assert acc.current_stream() is first


def test_two_threads_in_one_stream_get_their_own_back(fake: Accelerator) -> None:
    side, ours, theirs = acc.Stream(1), acc.Stream(), acc.Stream()
    acc.set_stream(ours)
    context = acc.stream(side)

    def other() -> Any:
        acc.set_stream(theirs)
        with context:
            inside = acc.current_stream()
        return inside, acc.current_stream()

    with context:
        assert in_thread(other) == (side, theirs)
        assert acc.current_stream() is side
    assert acc.current_stream() is ours


def test_streams_of_other_devices_are_refused_with_both_names(fake: Accelerator) -> None:
    foreign = torch._C.Stream(1, 0, 0)
    for call in (acc.set_stream, acc.stream):
        with pytest.raises(ValueError, match=f"'cpu'.*{fake.type!r}"):
            call(foreign)


@pytest.mark.parametrize("device_type", CLASSES)
def test_the_first_statistics_are_zero(install: Install, device_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(device_type)
    monkeypatch.setattr(CLASSES[device_type], "memory_stats", lambda self, index: {})
    stats = acc.memory_stats()
    assert len(stats) == 48
    assert set(stats.values()) == {0}
    assert list(stats) == sorted(stats)


def test_is_available_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise OSError("the driver is gone")

    monkeypatch.setattr(torch.accelerator, "is_available", broken)
    assert acc.is_available() is False
    assert acc.current_accelerator(check_available=True) is None


def test_current_accelerator(fake: Accelerator) -> None:
    assert acc.current_accelerator() == torch.device(fake.type)
    assert acc.current_accelerator(True) == torch.device(fake.type)
    assert acc.is_available()
    assert acc.device_count() == 4


def test_torch_2_6_raised_with_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    def old() -> torch.device:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    for name in ("current_accelerator", "device_count", "is_available"):
        monkeypatch.setattr(torch.accelerator, name, old)
    assert acc.current_accelerator() is None
    assert acc.current_accelerator(check_available=True) is None
    assert acc.device_count() == 0
    assert acc.is_available() is False
