"""The sim is asynchronous: work runs later, in the order that streams and events give it, and in no other."""

from __future__ import annotations

import threading

import pytest
import torch

import anyaccel as acc

pytestmark = pytest.mark.sim


def sim(index: int = 0) -> torch.device:
    return torch.device("sim", index)


def test_an_operator_returns_before_it_has_run() -> None:
    x = torch.zeros(4, device="sim")
    torch.accelerator.synchronize()
    stream = torch.accelerator.current_stream()
    with acc.sim.hold(stream):
        x.add_(1)
        assert not stream.query()
    stream.synchronize()
    assert x.tolist() == [1, 1, 1, 1]


OPERATORS = {
    "functional": lambda x: x + x,
    "matmul": lambda x: x @ x,
    "in place": lambda x: x.mul_(2),
    "out": lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "view and copy": lambda x: x.t().contiguous(),
    "reduction": lambda x: x.sum(dim=0),
    "several results": lambda x: x.max(dim=1),
    "list": lambda x: torch.cat(x.split(1)),
    "foreach": lambda x: torch._foreach_mul_([x, x[0]], 2),
    "random": lambda x: x.normal_(),
    "convolution": lambda x: torch.conv2d(x[None, None], x[None, None]),
    "indexing": lambda x: x[torch.arange(2, device=x.device)],
    "to another type": lambda x: x.to(torch.float64),
    "softmax": lambda x: torch.softmax(x, 0),
    "factory": lambda x: torch.arange(3, device=x.device),
    "to another device": lambda x: x.to("sim:1"),
    "from pageable memory": lambda x: torch.ones(3).to("sim", non_blocking=True),
    "to pinned memory": lambda x: torch.empty(x.shape, pin_memory=True).copy_(x, non_blocking=True),
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS.keys())
def test_no_operator_waits_for_the_device(operator) -> None:
    x = torch.ones(3, 3, device="sim")
    before = acc.sim.stats()["host_waits"]
    with acc.sim.hold(torch.accelerator.current_stream()):
        operator(x)  # would hang if it waited
        assert acc.sim.stats()["host_waits"] == before
    torch.accelerator.synchronize()


WAITING = {
    "item": lambda x: x.sum().item(),
    "nonzero": lambda x: x.nonzero(),
    "bool mask": lambda x: x[x > 0],
    "blocking copy to the host": lambda x: x.cpu(),
    "blocking copy from the host": lambda x: torch.ones(3).to("sim"),
    "an index on the host, which is copied": lambda x: x[torch.tensor([0, 1])],
    "equal": lambda x: torch.equal(x, x),
    "unique": lambda x: torch.unique(x),
}


@pytest.mark.parametrize("operator", WAITING.values(), ids=WAITING.keys())
def test_operators_whose_answer_the_host_needs_wait(operator) -> None:
    x = torch.ones(3, 3, device="sim")
    torch.accelerator.synchronize()
    stream = torch.accelerator.current_stream()
    done = threading.Event()
    before = sum(acc.sim.stats()["host_waits"].values())

    def call() -> None:
        try:
            operator(x)
        finally:
            done.set()

    with acc.sim.hold(stream):
        thread = threading.Thread(target=call)
        thread.start()
        while sum(acc.sim.stats()["host_waits"].values()) == before:  # it is counted before it begins
            assert not done.is_set(), "it did not wait"
        assert not done.is_set()
    thread.join(30)
    assert done.is_set()


def test_a_missing_wait_reads_old_data_and_a_wait_the_new() -> None:
    producer, consumer = torch.Stream("sim"), torch.Stream("sim")
    for wait, expected in ((False, 0.0), (True, 7.0)):
        x = torch.zeros(1, device="sim")
        torch.accelerator.synchronize()
        with acc.sim.hold(producer):
            with acc.stream(producer):
                x.fill_(7)
            if wait:
                consumer.wait_stream(producer)
            with acc.stream(consumer):
                y = x.clone()
            if not wait:
                consumer.synchronize()
        torch.accelerator.synchronize()
        assert y.item() == expected


def test_a_wait_holds_the_version_that_was_current_when_it_was_enqueued() -> None:
    first, second, consumer = (torch.Stream("sim") for _ in range(3))
    event = torch.Event("sim")
    x = torch.zeros(1, device="sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(second):
        first.record_event(event)
        consumer.wait_event(event)
        with acc.stream(second):
            x.fill_(5)
        second.record_event(event)  # a new version, which is not done
        with acc.stream(consumer):
            y = x.clone()
        consumer.synchronize()  # would hang if the wait had taken the new version
        assert not event.query()
    torch.accelerator.synchronize()
    assert event.query()
    assert y.item() == 0


def test_an_unrecorded_event_orders_nothing() -> None:
    event = torch.Event("sim")
    assert event.query()
    event.synchronize()
    stream = torch.Stream("sim")
    stream.wait_event(event)
    stream.synchronize()


def test_a_query_is_false_until_the_last_task_has_run() -> None:
    stream = torch.Stream("sim")
    event = torch.Event("sim")
    x = torch.zeros(1, device="sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(stream):
        with acc.stream(stream):
            x.add_(1)
        stream.record_event(event)
        assert not stream.query()
        assert not event.query()
    stream.synchronize()
    assert stream.query()
    assert event.query()


def test_synchronize_waits_for_its_device_only() -> None:
    stream = torch.Stream("sim:1")
    x = torch.zeros(1, device="sim:1")
    torch.accelerator.synchronize(1)
    with acc.sim.hold(stream):
        with acc.stream(stream):
            x.add_(1)
        torch.accelerator.synchronize(0)
        assert not stream.query()
    torch.accelerator.synchronize(1)
    assert stream.query()


def test_streams_of_one_device_do_not_wait_for_each_other() -> None:
    held, free = torch.Stream("sim"), torch.Stream("sim")
    x, y = torch.zeros(1, device="sim"), torch.zeros(1, device="sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(held):
        with acc.stream(held):
            x.add_(1)
        with acc.stream(free):
            y.add_(1)
        free.synchronize()
        assert free.query() and not held.query()
    torch.accelerator.synchronize()
    assert (x.item(), y.item()) == (1, 1)


def test_a_copy_between_devices_is_ordered_on_both() -> None:
    x = torch.zeros(1, device="sim:0")
    y = torch.zeros(1, device="sim:1")
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    source = torch.accelerator.current_stream(0)
    with acc.sim.hold(source):
        x.fill_(3)
        y.copy_(x)
        z = y + 1  # on sim:1, after the copy
        assert not torch.accelerator.current_stream(1).query()
    assert z.item() == 4


def test_a_full_queue_of_a_held_stream_raises_instead_of_hanging() -> None:
    x = torch.zeros(1, device="sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(torch.accelerator.current_stream()), pytest.raises(RuntimeError, match="held"):
        for _ in range(5000):
            x.add_(1)
    torch.accelerator.synchronize()
    assert 1000 <= x.item() < 5000


def test_a_full_queue_blocks_the_host_and_goes_on() -> None:
    x = torch.zeros(1, device="sim")
    for _ in range(5000):
        x.add_(1)
    assert x.item() == 5000


def test_many_host_threads_share_the_device() -> None:
    def work(index: int) -> None:
        with acc.stream(torch.Stream("sim")):
            x = torch.zeros(8, device="sim")
            for _ in range(100):
                x = x + index
            totals[index] = x.sum().item()

    totals: dict[int, float] = {}
    threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == {index: 800.0 * index for index in range(16)}


def test_ten_thousand_streams_start_no_more_threads() -> None:
    x = torch.zeros(1, device="sim")
    for _ in range(2):
        with acc.stream(torch.Stream("sim")):
            x + 1
    torch.accelerator.synchronize()
    before = acc.sim.stats()["threads"]
    for _ in range(10_000):
        with acc.stream(torch.Stream("sim")):
            x + 1
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()  # a full one makes whoever allocates next wait for the device, which others hold
    assert acc.sim.stats()["threads"] <= max(before, 2)


def test_the_current_device_is_one_state_however_it_is_set() -> None:
    setters = [torch.accelerator.set_device_index, torch.sim.set_device, acc.set_device_index]
    getters = [torch.accelerator.current_device_index, torch.sim.current_device, acc.current_device_index]
    try:
        for index, setter in enumerate(setters, start=1):
            setter(index)
            assert [getter() for getter in getters] == [index] * 3
            assert torch.empty(1, device="sim").device == sim(index)
    finally:
        torch.accelerator.set_device_index(0)
