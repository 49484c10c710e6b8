"""Processes: fork, exit with work pending, Ctrl-C while waiting, equal numbers under each schedule. Each in a process of its own."""

from __future__ import annotations

import signal

import pytest
from tests.helpers import run_python, start_python

SIM = {"ANYACCEL_SIM": "2"}


def test_fork_before_the_first_use_works() -> None:
    code = """
import os, torch
assert torch.accelerator.device_count() == 2
child = os.fork()
if child == 0:
    assert torch.ones(3, device="sim").sum().item() == 3
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert torch.ones(3, device="sim").sum().item() == 3
"""
    run_python(code, SIM)


def test_fork_after_the_first_use_is_a_clear_error_in_the_child() -> None:
    code = """
import os, torch
x = torch.ones(3, device="sim")
torch.accelerator.synchronize()
child = os.fork()
if child == 0:
    assert torch.sim._is_in_bad_fork()
    for call in (lambda: torch.ones(3, device="sim"), lambda: x + 1, lambda: x.cpu(), torch.accelerator.synchronize):
        try:
            call()
        except RuntimeError as error:
            assert "spawn" in str(error), error
        else:
            os._exit(1)
    del x
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert x.sum().item() == 3
"""
    run_python(code, SIM)


@pytest.mark.parametrize(
    "pending",
    [
        "x = torch.randn(600, 600, device='sim')\nfor _ in range(500): x = x @ x",
        "import anyaccel as acc; acc.sim.hold(torch.accelerator.current_stream()).__enter__(); torch.ones(3, device='sim')",
        "import threading; threading.Thread(target=lambda: [torch.ones(100, device='sim') for _ in range(100)]).start()",
    ],
    ids=["running", "held", "a thread"],
)
def test_exit_with_work_pending(pending: str) -> None:
    result = run_python(f"import torch\n{pending}\nprint('done')", SIM)
    assert result.stdout.split() == ["done"]
    assert not result.stderr


def test_an_exception_with_work_pending_keeps_its_traceback() -> None:
    result = run_python(
        "import torch\nx = torch.randn(500, 500, device='sim')\nfor _ in range(100): x = x @ x\nraise KeyError('mine')", SIM, check=False
    )
    assert result.returncode == 1
    assert result.stderr.strip().endswith("KeyError: 'mine'")


def test_ctrl_c_leaves_a_wait() -> None:
    code = """
import torch, anyaccel as acc
x = torch.zeros(1, device="sim")
stream = torch.accelerator.current_stream()
with acc.sim.hold(stream):
    x.add_(1)
    try:
        print("waiting", flush=True)
        torch.accelerator.synchronize()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(x.item())
"""
    with start_python(code, SIM) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)  # before the wait or in it: both leave the try
        assert process.stdout.readline() == "interrupted\n"
        assert process.stdout.readline() == "1.0\n"
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_both_schedules_give_equal_results() -> None:
    code = """
import torch
torch.manual_seed(0)
from torch.nn import Conv2d, Dropout, Flatten, Linear, ReLU, Sequential
net = Sequential(Conv2d(1, 4, 3), ReLU(), Flatten(), Dropout(0.3), Linear(144, 3)).to("sim")
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(5):
    x = torch.randn(7, 1, 8, 8, device="sim")
    loss = net(x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print([round(v, 7) for v in net[4].weight.sum(1).tolist()])
"""
    results = {schedule: run_python(code, {"ANYACCEL_SIM_SCHEDULE": schedule, **SIM}) for schedule in ("threads", "serial")}
    assert results["threads"].stdout == results["serial"].stdout


def test_serial_runs_each_operator_at_its_call() -> None:
    code = """
import torch, anyaccel as acc
x = torch.zeros(2, device="sim")
x.add_(1)
assert torch.accelerator.current_stream().query()
assert acc.sim.stats()["threads"] == 0
with acc.sim.hold(torch.accelerator.current_stream()):
    x.add_(1)
    assert not torch.accelerator.current_stream().query()
assert x.tolist() == [2, 2]
"""
    run_python(code, {"ANYACCEL_SIM_SCHEDULE": "serial", **SIM})


def test_sixty_four_devices() -> None:
    code = """
import torch
assert torch.accelerator.device_count() == 64
xs = [torch.full((10,), float(i), device=f"sim:{i}") for i in range(64)]
assert sum(x.sum().item() for x in xs) == 10 * sum(range(64))
"""
    run_python(code, {"ANYACCEL_SIM": "64"})


def test_the_host_keeps_its_threads() -> None:
    code = """
import threading, torch
before = torch.get_num_threads()
(torch.ones(64, 64, device="sim") @ torch.ones(64, 64, device="sim")).sum().item()
seen = []
thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads())); thread.start(); thread.join()
assert torch.get_num_threads() == before and seen == [before]
"""
    run_python(code, SIM)


def test_ten_thousand_streams_cost_less_than_ten_megabytes() -> None:
    code = """
import resource, torch
x = torch.zeros(1, device="sim")
def use(count):
    for _ in range(count):
        stream = torch.Stream("sim")
        torch.accelerator.set_stream(stream)
        x.add_(1)  # in place: memory belongs to the stream that asked for it, and stays with it
    torch.accelerator.synchronize()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
use(200)  # what the first uses of anything cost
before = resident()
use(10_000)
assert resident() - before < 10 << 20, f"{(resident() - before) >> 20} MiB"
"""
    run_python(code, SIM)
