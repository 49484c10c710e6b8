"""What only the kernel knows belongs to the device: it surfaces at the next wait and stays until it is reset."""

from __future__ import annotations

import pytest
import torch

import anyaccel as acc

pytestmark = pytest.mark.sim


@pytest.fixture(autouse=True)
def healthy():
    yield
    acc.sim.reset_errors()


def a_failing_call(device: str = "sim") -> torch.Tensor:
    return torch.arange(3, device=device)[torch.tensor([7], device=device)]


@pytest.mark.parametrize(
    "wait",
    [
        lambda: torch.accelerator.synchronize(),
        lambda: torch.accelerator.current_stream().synchronize(),
        lambda: torch.ones(1, device="sim").item(),
        lambda: torch.ones(1, device="sim").cpu(),
    ],
    ids=["device", "stream", "item", "copy"],
)
def test_the_error_surfaces_at_every_wait_with_the_stack_of_the_call(wait) -> None:
    a_failing_call()
    for _ in range(2):  # it stays
        with pytest.raises(torch.AcceleratorError, match=r"(?s)index.*a_failing_call"):
            wait()


def test_an_event_of_a_failed_device_completes() -> None:
    a_failing_call()
    event = torch.Event("sim")
    event.record()
    with pytest.raises(torch.AcceleratorError):
        event.synchronize()
    assert event.query()


def test_later_tasks_are_skipped() -> None:
    x = torch.zeros(1, device="sim")
    torch.accelerator.synchronize()
    a_failing_call()
    x.add_(1)
    acc.sim.reset_errors()
    assert x.item() == 0


def test_other_devices_go_on() -> None:
    a_failing_call("sim:1")
    assert torch.ones(3, device="sim").sum().item() == 3
    with pytest.raises(torch.AcceleratorError):
        torch.accelerator.synchronize(1)


def test_a_reset_device_works_again() -> None:
    a_failing_call()
    with pytest.raises(torch.AcceleratorError, match="reset_errors"):
        torch.accelerator.synchronize()
    acc.sim.reset_errors()
    assert torch.ones(3, device="sim").sum().item() == 3
