"""Random programs over devices, streams and host threads, ordered as they must be, each value beside its twin on the CPU.

A thread owns values and picks what to do with them. Now and then all threads meet and pass on what they own to the next one, so that
a program depends on its seed alone, and what one thread allocates and writes others wait for and free.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import anyaccel as acc

HOST = -1
THREADS, STREAMS_PER_DEVICE = 4, 2
VALUES, ROUND = 24, 100
KINDS = [
    ((8, 8), torch.float32),
    ((33,), torch.float32),
    ((3, 5, 7), torch.float32),
    ((160, 160), torch.float32),
    ((16, 16), torch.float64),
    ((8, 8), torch.int64),
    ((40, 40), torch.int64),
]
EITHER = [torch.clone, torch.neg, lambda x: x.flip(0), lambda x: x.cumsum(-1), lambda x: torch.where(x > 0, x, -x), lambda x: x.sort(-1)[0]]
UNARY = {
    torch.int64: [*EITHER, lambda x: x * 3 + 1, lambda x: x // 7, lambda x: x ^ 0x5555],
    torch.float32: [*EITHER, torch.cos, torch.tanh, torch.sigmoid, lambda x: x.softmax(-1), lambda x: (x - x.mean(-1, True)).sin()],
}
BINARY = {
    torch.int64: [torch.add, torch.maximum, torch.bitwise_xor, lambda a, b: torch.cat([a, b])[: len(a)], lambda a, b: a - 2 * b],
    torch.float32: [torch.maximum, torch.hypot, lambda a, b: torch.lerp(a, b, 0.25), lambda a, b: torch.stack([a, b]).mean(0)],
}
UNARY_IN_PLACE = {
    torch.int64: [Tensor.neg_, lambda x: x.add_(5), lambda x: x.bitwise_not_()],
    torch.float32: [Tensor.tanh_, Tensor.cos_, lambda x: x.mul_(-0.75), lambda x: torch._foreach_add_([x], 0.125)],
}
BINARY_IN_PLACE = {
    torch.int64: [Tensor.copy_, Tensor.add_, Tensor.bitwise_xor_],
    torch.float32: [Tensor.copy_, lambda a, b: a.add_(b, alpha=0.5).tanh_(), lambda a, b: a.masked_fill_(b > 0.5, 0.25)],
}
VIEWS = [lambda x: x[1:], lambda x: x[..., ::2], lambda x: x.transpose(0, -1), lambda x: x[None].expand(1, *x.shape)[0], Tensor.detach]
for table in (UNARY, BINARY, UNARY_IN_PLACE, BINARY_IN_PLACE):
    table[torch.float64] = table[torch.float32]


@dataclass(eq=False)
class Memory:
    """One block of memory: where it is, the event behind its last write, and those behind the reads since."""

    device: int
    written: torch.Event
    reads: list[torch.Event] = field(default_factory=list)


@dataclass(eq=False)
class Value:
    memory: Memory
    real: Tensor
    twin: Tensor


class Machine:
    """What the threads of a program share: streams, and constants that are never written."""

    def __init__(self, left_out: str) -> None:
        self.left_out = left_out
        self.devices = range(torch.accelerator.device_count())
        self.streams = {device: [torch.Stream(device) for _ in range(STREAMS_PER_DEVICE)] for device in self.devices}
        self.slow = {device: torch.eye(500, device=f"sim:{device}") for device in self.devices}
        self.barrier = threading.Barrier(THREADS)
        self.owned: list[list[Value]] = [[] for _ in range(THREADS)]
        self.failures: list[BaseException] = []
        for device in self.devices:
            torch.accelerator.synchronize(device)


class Player:
    """One host thread."""

    def __init__(self, machine: Machine, seed: int, index: int) -> None:
        self.machine, self.index = machine, index
        self.rng = random.Random(f"{seed} {index}")
        self.generator = torch.Generator().manual_seed(self.rng.randrange(1 << 40))
        self.values: list[Value] = []
        self.spare: dict[int, list[torch.Event]] = {device: [] for device in machine.devices}
        self.done = 0

    def play(self, operations: int) -> None:
        torch.set_num_threads(1)
        try:
            for round_ in range(-(-operations // ROUND)):
                self.values = self.machine.owned[(self.index + round_) % THREADS]
                for _ in range(ROUND):
                    self.step()
                self.machine.barrier.wait()
            for value in self.values:
                self.check(value)
        except threading.BrokenBarrierError:
            pass  # another thread has failed, and says why
        except BaseException as error:
            error.args = (f"thread {self.index}, operation {self.done}: {error}",)
            self.machine.failures.append(error)
            self.machine.barrier.abort()
        finally:
            self.values = []

    def step(self) -> None:
        self.done += 1
        if len(self.values) < VALUES // 2:
            self.make()
        elif len(self.values) > VALUES:
            del self.values[self.rng.randrange(len(self.values))]
        (operation,) = self.rng.choices(OPERATIONS, WEIGHTS)
        operation(self, self.rng.choice(self.values))

    # Ordering

    def event(self, device: int) -> torch.Event:
        """An event, often one that was recorded before and that streams may still be about to wait for."""
        return self.spare[device].pop() if self.spare[device] else torch.Event(f"sim:{device}")

    def discard(self, events: list[torch.Event]) -> None:
        for event in events:
            self.spare[event.device.index].append(event)
        events.clear()

    def begin(self, stream: torch.Stream, reads: Sequence[Value], writes: Sequence[Value] = ()) -> None:
        """Lets what comes next on `stream` read and write these."""
        for value in (*reads, *writes):
            if self.machine.left_out != "wait_event":
                stream.wait_event(value.memory.written)
            if value.memory.device != HOST and self.machine.left_out != "record_stream":
                value.real.record_stream(stream)
        for value in writes:
            for event in value.memory.reads if self.machine.left_out != "wait_event" else ():
                stream.wait_event(event)

    def end(self, stream: torch.Stream, reads: Sequence[Value], writes: Sequence[Value] = ()) -> None:
        """Remembers that what came last on `stream` read and wrote these."""
        for value in writes:
            memory = value.memory
            self.discard([memory.written, *memory.reads])
            memory.reads.clear()
            memory.written = self.recorded(stream)
        for value in reads:
            reads_ = value.memory.reads
            if len(reads_) > 8:  # one for all of them
                for event in reads_:
                    stream.wait_event(event)
                self.discard(reads_)
            reads_.append(self.recorded(stream))

    def recorded(self, stream: torch.Stream) -> torch.Event:
        event = self.event(stream.device_index)
        event.record(stream)
        return event

    def host_wait(self, memory: Memory, *, to_write: bool) -> None:
        """Lets the host read or write pinned memory."""
        if self.machine.left_out != "synchronize":
            memory.written.synchronize()
            for event in memory.reads if to_write else ():
                event.synchronize()

    # Choosing

    def stream(self, device: int) -> torch.Stream:
        return self.rng.choice(self.machine.streams[device])

    def device_of(self, value: Value) -> int:
        """Where to work on a value: at its device, or, for what is on the host, anywhere."""
        return self.rng.choice(self.machine.devices) if value.memory.device == HOST else value.memory.device

    def other(self, value: Value, *, on_device: int | None = None) -> Value | None:
        """Another value of the same shape and type, in other memory."""
        fitting = [
            other
            for other in self.values
            if other.memory is not value.memory
            and other.twin.shape == value.twin.shape
            and other.twin.dtype == value.twin.dtype
            and (on_device is None or other.memory.device == on_device)
        ]
        return self.rng.choice(fitting) if fitting else None

    def random(self) -> Tensor:
        shape, dtype = self.rng.choice(KINDS)
        if dtype == torch.int64:
            return torch.randint(-1000, 1000, shape, generator=self.generator)
        return torch.rand(shape, generator=self.generator, dtype=dtype) * 2 - 1

    def add(self, stream: torch.Stream, real: Tensor, twin: Tensor) -> None:
        lengths = zip(twin.shape, real.stride(), twin.stride(), strict=True)
        same = real.shape == twin.shape and all(mine == theirs for length, mine, theirs in lengths if length > 1)
        assert same, f"sizes and strides {real.shape}, {real.stride()}, on the CPU {twin.shape}, {twin.stride()}"
        self.values.append(Value(Memory(real.device.index if real.device.type == "sim" else HOST, self.recorded(stream)), real, twin))

    # What happens

    def make(self, _: Value | None = None) -> None:
        stream, twin = self.stream(self.rng.choice(self.machine.devices)), self.random()
        with acc.stream(stream):
            pageable, source = twin.clone(), twin.pin_memory()
            real = (pageable if self.rng.random() < 0.5 else source).to("sim", non_blocking=True)
            pageable.zero_()  # was staged; pinned memory may only be freed
            self.add(stream, real, twin)

    def make_pinned(self, _: Value) -> None:
        twin = self.random()
        self.add(self.stream(self.rng.choice(self.machine.devices)), twin.pin_memory(), twin)

    def compute(self, a: Value) -> None:
        if a.memory.device == HOST:
            return self.rewrite(a)
        stream, b = self.stream(a.memory.device), self.other(a, on_device=a.memory.device)
        table, used = (UNARY, [a]) if b is None or self.rng.random() < 0.5 else (BINARY, [a, b])
        call = self.rng.choice(table[a.twin.dtype])
        with acc.stream(stream):
            self.begin(stream, used)
            real = call(*(value.real for value in used))
            self.end(stream, used)
            twin = call(*(value.twin for value in used))
            self.add(stream, real, twin)

    def compute_in_place(self, a: Value) -> None:
        if a.memory.device == HOST:
            return self.rewrite(a)
        stream, b = self.stream(a.memory.device), self.other(a, on_device=a.memory.device)
        table, read = (UNARY_IN_PLACE, []) if b is None or self.rng.random() < 0.5 else (BINARY_IN_PLACE, [b])
        call = self.rng.choice(table[a.twin.dtype])
        with acc.stream(stream):
            self.begin(stream, read, [a])
            call(a.real, *(value.real for value in read))
            self.end(stream, read, [a])
        call(a.twin, *(value.twin for value in read))

    def index(self, a: Value) -> None:
        """By indices on the host, which the host changes at once."""
        if a.memory.device == HOST:
            return
        stream, rows = self.stream(a.memory.device), torch.randint(len(a.twin), (len(a.twin),), generator=self.generator)
        twin = a.twin[rows]
        with acc.stream(stream):
            self.begin(stream, [a])
            real = a.real[rows]
            rows.zero_()
            self.end(stream, [a])
            self.add(stream, real, twin)

    def view(self, a: Value) -> None:
        if a.twin.dim() > 1 and min(a.twin.shape) > 1:
            call = self.rng.choice(VIEWS)
            self.values.append(Value(a.memory, call(a.real), call(a.twin)))

    def copy_over(self, a: Value) -> None:
        """Onto memory that is anywhere: within a device, between two, to and from the host."""
        b = self.other(a)
        if b is None or a.memory.device == b.memory.device == HOST:
            return
        between_devices = a.memory.device != b.memory.device and HOST not in (a.memory.device, b.memory.device)
        source = self.stream(b.memory.device if a.memory.device == HOST else a.memory.device)
        target = self.stream(b.memory.device) if between_devices else source
        with acc.stream(target), acc.stream(source):
            self.begin(source, [a])
            self.begin(target, [], [b])
            b.real.copy_(a.real, non_blocking=True)
            self.end(source, [a])
            self.end(target, [], [b])
        b.twin.copy_(a.twin)

    def copy_to_new(self, a: Value) -> None:
        target = self.stream(self.rng.choice(self.machine.devices))
        source = target if a.memory.device in (HOST, target.device_index) else self.stream(a.memory.device)
        with acc.stream(source), acc.stream(target):
            self.begin(source, [a])
            real = a.real.to(f"sim:{target.device_index}", non_blocking=True, copy=True)
            self.end(source, [a])
            self.add(target, real, a.twin.to("cpu", copy=True))

    def rewrite(self, a: Value) -> None:
        if a.memory.device == HOST:
            self.host_wait(a.memory, to_write=True)
            call = self.rng.choice(UNARY_IN_PLACE[a.twin.dtype])
            call(a.real)
            call(a.twin)

    def slow_down(self, a: Value) -> None:
        stream = self.stream(self.device_of(a))
        with acc.stream(stream):
            torch.mm(self.machine.slow[stream.device_index], self.machine.slow[stream.device_index])

    def exhaust(self, a: Value) -> None:
        device = self.device_of(a)
        with acc.stream(self.stream(device)):
            try:
                torch.empty(torch.accelerator.get_memory_info(device)[1], dtype=torch.uint8, device="sim")
            except torch.OutOfMemoryError:
                return
        raise AssertionError("as much memory as a device has could be had beside what is in use")

    def wait(self, a: Value) -> None:
        self.rng.choice([self.stream(self.device_of(a)), a.memory.written]).synchronize()

    def check(self, a: Value) -> None:
        if a.memory.device == HOST:
            self.host_wait(a.memory, to_write=False)
            real = a.real
        else:
            stream = self.stream(a.memory.device)
            with acc.stream(stream):
                self.begin(stream, [a])
                real = a.real.cpu()  # waits
        same = real.numpy().tobytes() == a.twin.numpy().tobytes()
        assert same, f"{int((real != a.twin).sum())} of {real.numel()} elements of {tuple(real.shape)}, {real.dtype}, differ"


OPERATIONS: list[Callable[[Player, Value], None]] = []
WEIGHTS: list[int] = []
for weight, operation in (
    (300, Player.compute),
    (250, Player.compute_in_place),
    (60, Player.view),
    (30, Player.index),
    (80, Player.copy_over),
    (60, Player.copy_to_new),
    (40, Player.make_pinned),
    (40, Player.rewrite),
    (60, Player.make),
    (60, Player.check),
    (10, Player.wait),
    (20, Player.slow_down),
    (1, Player.exhaust),
):
    OPERATIONS.append(operation)
    WEIGHTS.append(weight)


def run(seed: int, operations: int, left_out: str = "") -> None:
    """Runs a program and raises where a value differs from its twin.

    Args:
        seed: of everything that is random.
        operations: how many, over all threads.
        left_out: what is left out on purpose: "wait_event", "record_stream" or "synchronize" (host waits before pinned memory is used).
    """
    machine = Machine(left_out)
    players = [Player(machine, seed, index) for index in range(THREADS)]
    threads = [threading.Thread(target=player.play, args=(operations // THREADS,)) for player in players]
    with torch.no_grad():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for device in machine.devices:
        try:
            torch.accelerator.synchronize(device)
        except torch.AcceleratorError as error:  # an index that was not there yet, say
            machine.failures.append(error)
            acc.sim.reset_errors()
    if machine.failures:
        raise AssertionError(f"seed {seed}") from machine.failures[0]
