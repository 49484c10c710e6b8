"""Random numbers depend on seeds and calls, and on nothing else."""

from __future__ import annotations

import pytest
import torch

import anyaccel as acc

pytestmark = pytest.mark.sim

DRAWS = {
    "rand": lambda: torch.rand(5, device="sim"),
    "randn": lambda: torch.randn(50, device="sim"),
    "randint": lambda: torch.randint(0, 100, (5,), device="sim"),
    "randperm": lambda: torch.randperm(9, device="sim"),
    "bernoulli": lambda: torch.bernoulli(torch.full((20,), 0.5, device="sim")),
    "multinomial": lambda: torch.multinomial(torch.ones(9, device="sim"), 4),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(50, device="sim")),
    "exponential": lambda: torch.empty(5, device="sim").exponential_(),
    "poisson": lambda: torch.poisson(torch.ones(9, device="sim")),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_seed_gives_the_same_numbers_and_the_next_call_others(draw) -> None:
    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.manual_seed(3)
    assert torch.equal(draw(), first)
    assert torch.equal(draw(), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_the_hosts_generator_is_not_touched(draw) -> None:
    state = torch.get_rng_state()
    draw()
    torch.accelerator.synchronize()
    assert torch.equal(torch.get_rng_state(), state)


def test_the_numbers_are_those_of_the_call_whatever_runs_first() -> None:
    a, b = torch.Stream("sim"), torch.Stream("sim")

    def draw(held: torch.Stream) -> list[torch.Tensor]:
        torch.manual_seed(1)
        with acc.sim.hold(held):
            with acc.stream(a):
                x = torch.rand(4, device="sim")
            with acc.stream(b):
                y = torch.rand(4, device="sim")
            (b if held is a else a).synchronize()
        torch.accelerator.synchronize()
        return [x.cpu(), y.cpu()]

    for first, second in zip(draw(a), draw(b), strict=True):
        assert torch.equal(first, second)


def test_generators_of_ones_own() -> None:
    one, other = torch.Generator("sim").manual_seed(5), torch.Generator("sim").manual_seed(5)
    x = torch.rand(4, device="sim", generator=one)
    assert torch.equal(torch.rand(4, device="sim", generator=other), x)
    state = one.get_state()
    y = torch.rand(4, device="sim", generator=one)
    one.set_state(state)
    assert torch.equal(torch.rand(4, device="sim", generator=one), y)
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        torch.rand(4, device="sim", generator=torch.Generator())


def test_each_device_has_its_own_numbers() -> None:
    torch.manual_seed(2)
    torch.rand(3, device="sim:1")
    x = torch.rand(3, device="sim:0")
    torch.manual_seed(2)
    assert torch.equal(torch.rand(3, device="sim:0"), x)
