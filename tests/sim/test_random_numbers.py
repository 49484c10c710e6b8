"""Random numbers depend on seeds and calls, and on nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.helpers import run_python
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode

import anyaccel as acc

pytestmark = pytest.mark.sim


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="sim")


def halves(*shape: int) -> torch.Tensor:
    return torch.full(shape, 0.5, device="sim")


# Operators that take a generator.
DRAWS: dict[str, Callable[[torch.Generator | None], torch.Tensor]] = {
    "rand": lambda generator: torch.rand(5, device="sim", generator=generator),
    "rand, 16 bits": lambda generator: torch.rand(50, device="sim", generator=generator, dtype=torch.bfloat16),
    "rand, out": lambda generator: torch.rand(5, generator=generator, out=ones(5)),
    "randn": lambda generator: torch.randn(50, device="sim", generator=generator),
    "randn, complex": lambda generator: torch.randn(5, device="sim", generator=generator, dtype=torch.complex64),
    "rand_like": lambda generator: torch.rand_like(ones(5), generator=generator),
    "randn_like": lambda generator: torch.randn_like(ones(5), generator=generator),
    "randint": lambda generator: torch.randint(0, 10**6, (5,), device="sim", generator=generator),
    "randint_like": lambda generator: torch.randint_like(ones(5), 5, 10**6, generator=generator),
    "randperm": lambda generator: torch.randperm(50, device="sim", generator=generator),
    "normal, numbers": lambda generator: torch.normal(0.0, 1.0, (5,), device="sim", generator=generator),
    "normal, tensors": lambda generator: torch.normal(ones(5), halves(5), generator=generator),
    "normal, mean": lambda generator: torch.normal(ones(5), 2.0, generator=generator),
    "normal, deviation": lambda generator: torch.normal(2.0, ones(5), generator=generator),
    "normal_": lambda generator: ones(5).normal_(generator=generator),
    "uniform_": lambda generator: ones(5).uniform_(generator=generator),
    "log_normal_": lambda generator: ones(5).log_normal_(generator=generator),
    "cauchy_": lambda generator: ones(5).cauchy_(generator=generator),
    "exponential_": lambda generator: ones(5).exponential_(generator=generator),
    "geometric_": lambda generator: ones(50).geometric_(0.1, generator=generator),
    "random_": lambda generator: ones(5).random_(generator=generator),
    "random_, to": lambda generator: ones(5).random_(10**6, generator=generator),
    "random_, from and to": lambda generator: ones(5).random_(5, 10**6, generator=generator),
    "bernoulli": lambda generator: torch.bernoulli(halves(50), generator=generator),
    "bernoulli, number": lambda generator: torch.bernoulli(ones(50), 0.5, generator=generator),
    "bernoulli_": lambda generator: ones(50).bernoulli_(0.5, generator=generator),
    "bernoulli_, tensor": lambda generator: ones(50).bernoulli_(halves(50), generator=generator),
    "multinomial": lambda generator: torch.multinomial(ones(50), 10, generator=generator),
    "multinomial, replacing": lambda generator: torch.multinomial(ones(50), 10, replacement=True, generator=generator),
    "poisson": lambda generator: torch.poisson(ones(50) * 9, generator=generator),
    "binomial": lambda generator: torch.binomial(ones(50) * 9, halves(50), generator=generator),
    "gamma": lambda generator: torch._standard_gamma(ones(9), generator=generator),
    "dirichlet": lambda generator: torch._sample_dirichlet(ones(9), generator=generator),
    "rrelu_with_noise": lambda generator: torch._C._nn.rrelu_with_noise(-ones(9), ones(9), training=True, generator=generator),
    "rrelu, generator": lambda generator: torch.ops.aten.rrelu(-ones(9), 0.1, 0.9, True, generator),
    "rrelu_, generator": lambda generator: torch.ops.aten.rrelu_(-ones(9), 0.1, 0.9, True, generator),
    "rrelu_with_noise_": lambda generator: torch.ops.aten.rrelu_with_noise_(-ones(9), ones(9), 0.1, 0.9, True, generator),
    "rrelu_with_noise_functional": lambda generator: torch.ops.aten.rrelu_with_noise_functional(
        -ones(9), ones(9), 0.1, 0.9, True, generator
    )[0],
    "uniform": lambda generator: torch.ops.aten.uniform(ones(5), generator=generator),
    "normal_functional": lambda generator: torch.ops.aten.normal_functional(ones(5), generator=generator),
    "log_normal": lambda generator: torch.ops.aten.log_normal(ones(5), generator=generator),
    "cauchy": lambda generator: torch.ops.aten.cauchy(ones(5), generator=generator),
    "exponential": lambda generator: torch.ops.aten.exponential(ones(5), generator=generator),
    "geometric": lambda generator: torch.ops.aten.geometric(ones(50), 0.1, generator=generator),
    "random": lambda generator: torch.ops.aten.random(ones(5), generator=generator),
}

# What draws from the default generator always.
LAYERS: dict[str, Callable[[], torch.Tensor]] = {
    "dropout": lambda: F.dropout(ones(50)),
    "dropout, 16 bits": lambda: F.dropout(ones(50, dtype=torch.float16)),
    "dropout, in place": lambda: F.dropout(ones(50), inplace=True),
    "native_dropout": lambda: torch.native_dropout(ones(50), 0.5, True)[1],
    "alpha_dropout": lambda: F.alpha_dropout(ones(50), training=True),
    "feature_alpha_dropout": lambda: F.feature_alpha_dropout(ones(50, 2, 2), training=True),
    "dropout1d": lambda: F.dropout1d(ones(2, 50, 2)),
    "dropout2d": lambda: F.dropout2d(ones(2, 50, 2, 2)),
    "dropout3d": lambda: F.dropout3d(ones(2, 50, 2, 2, 2)),
    "rrelu": lambda: F.rrelu(-ones(9), training=True),
    "gumbel_softmax": lambda: F.gumbel_softmax(ones(9)),
    "attention": lambda: F.scaled_dot_product_attention(*[ones(1, 9, 4)] * 2, torch.eye(9, device="sim")[None], dropout_p=0.5),
    "lstm": lambda: recurrent(torch.nn.LSTM),
    "gru": lambda: recurrent(torch.nn.GRU),
    "rnn": lambda: recurrent(torch.nn.RNN),
    "fractional_max_pool2d": lambda: F.fractional_max_pool2d(
        torch.arange(400.0, device="sim").view(1, 1, 20, 20), 2, output_ratio=(0.7, 0.7)
    ),
    "distributions": lambda: torch.distributions.Gamma(ones(9), ones(9), validate_args=False).rsample(),
    "orthogonal_": lambda: torch.nn.init.orthogonal_(ones(4, 4)),
}


def recurrent(kind: type[torch.nn.RNNBase]) -> torch.Tensor:
    return kind(3, 40, num_layers=2, dropout=0.5, device="sim")(ones(2, 1, 3))[0].detach()


def all_draws() -> dict[str, Callable[[], torch.Tensor]]:
    return {name: functools.partial(draw, None) for name, draw in DRAWS.items()} | LAYERS


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_nothing_that_takes_a_generator_is_left_out() -> None:
    def has_kernel(schema: torch.FunctionSchema) -> bool:
        name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        if not torch._C._dispatch_has_kernel(name) or torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
            return False  # known to TorchScript only, or made of others
        return torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")

    wanted = {
        schema.name
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and any("Generator" in str(argument.type) for argument in schema.arguments)
        and not schema.overload_name.endswith("out")
        and has_kernel(schema)
    }
    with Names() as names:
        for draw in DRAWS.values():
            draw(None)
    assert wanted - names.seen == set()
    assert len(wanted) > 30


@pytest.mark.parametrize("draw", all_draws().values(), ids=all_draws().keys())
def test_a_seed_gives_the_same_numbers_and_the_next_call_others(draw) -> None:
    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.manual_seed(3)
    assert torch.equal(draw(), first)
    assert torch.equal(draw(), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("draw", all_draws().values(), ids=all_draws().keys())
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


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_generator_gives_what_the_default_one_gives_and_leaves_that_alone(draw) -> None:
    torch.manual_seed(11)
    expected = draw(None)
    state = torch.sim.get_rng_state()
    generator = torch.Generator("sim").manual_seed(11)
    assert torch.equal(draw(generator), expected)
    assert torch.equal(torch.sim.get_rng_state(), state)
    assert generator.get_offset() == torch.sim.default_generators[0].get_offset() > 0
    with pytest.raises(RuntimeError, match="Expected a"):
        draw(torch.Generator())
    with pytest.raises(RuntimeError, match="sim:0"):
        draw(torch.Generator("sim:1"))


@pytest.mark.parametrize("draw", all_draws().values(), ids=all_draws().keys())
def test_drawing_does_not_wait_and_takes_its_numbers_at_the_call(draw) -> None:
    torch.manual_seed(5)
    expected = draw()
    torch.accelerator.synchronize()
    torch.manual_seed(5)
    before = acc.sim.stats()["host_waits"]
    with acc.sim.hold():
        drawn = draw()  # would hang if it waited
        torch.manual_seed(6)
        assert acc.sim.stats()["host_waits"] == before
    assert torch.equal(drawn, expected)


def test_both_schedules_draw_the_same_numbers() -> None:
    program = f"""
        import hashlib, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        import torch
        from tests.sim.test_random_numbers import all_draws
        for name, draw in all_draws().items():
            torch.manual_seed(3)
            drawn = [draw() for _ in range(3)]
            bits = b"".join(bytes(each.cpu().flatten().view(torch.uint8).tolist()) for each in drawn)
            print(name, hashlib.sha256(bits).hexdigest())
    """
    serial, threads = (
        run_python(program, {"ANYACCEL_SIM": "1", "ANYACCEL_SIM_SCHEDULE": schedule}).stdout for schedule in ("serial", "threads")
    )
    assert serial.splitlines() == threads.splitlines()
    assert len(serial.splitlines()) == len(all_draws())


def test_states_can_be_taken_and_set() -> None:
    torch.manual_seed(3)
    torch.rand(5, device="sim")
    state = torch.sim.get_rng_state()
    drawn = torch.rand(5, device="sim")
    kept = state.clone()
    torch.sim.set_rng_state(state)
    assert torch.equal(state, kept)  # a state is a copy
    assert torch.equal(torch.rand(5, device="sim"), drawn)
    generator = torch.Generator("sim")
    generator.set_state(state)
    assert torch.equal(torch.rand(5, device="sim", generator=generator), drawn)
    assert torch.equal(generator.clone_state().get_state(), generator.get_state())
    with pytest.raises(RuntimeError, match="16"):
        torch.sim.set_rng_state(torch.get_rng_state())
    assert torch.equal(generator.get_state(), torch.sim.get_rng_state())


@pytest.mark.parametrize("arguments", [{"devices": [0, 1], "device_type": "sim"}, {"device_type": "sim", "devices": ["sim:0", 1]}])
def test_a_fork_ends_where_it_began(arguments) -> None:
    torch.manual_seed(1)
    states = torch.sim.get_rng_state_all()
    with torch.random.fork_rng(**arguments):
        torch.manual_seed(2)
        inside = torch.rand(3, device="sim:1")
        torch.rand(3, device="sim:2")
    assert all(map(torch.equal, torch.sim.get_rng_state_all()[:2], states))
    assert not torch.equal(torch.sim.get_rng_state(2), states[2])
    torch.manual_seed(2)
    assert torch.equal(torch.rand(3, device="sim:1"), inside)


def test_dropout_keeps_what_it_says_and_scales_it() -> None:
    torch.manual_seed(0)
    x = torch.ones(100_000, device="sim", requires_grad=True)
    y = F.dropout(x, 0.3)
    y.sum().backward()
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.7) < 0.01
    assert torch.equal(x.grad, y.detach())
    torch.testing.assert_close(y.detach().unique().cpu(), torch.tensor([0, 1 / 0.7]))
    assert torch.equal(F.dropout(x, 0.0), x) and F.dropout(x, 1.0).sum().item() == 0
    assert F.dropout(x, 0.3, training=False) is not None and torch.equal(F.dropout(x, 0.3, training=False), x)


def test_numbers_are_spread_as_their_distribution_says() -> None:
    torch.manual_seed(0)
    for name, drawn, mean, deviation in [
        ("uniform", torch.rand(100_000, device="sim"), 0.5, 12**-0.5),
        ("normal", torch.randn(100_000, device="sim"), 0.0, 1.0),
        ("exponential", torch.empty(100_000, device="sim").exponential_(2.0), 0.5, 0.5),
        # One number a call: calls must not repeat or follow each other.
        ("uniform, call by call", torch.stack([torch.rand((), device="sim") for _ in range(4000)]), 0.5, 12**-0.5),
    ]:
        error = 5 * deviation / drawn.numel() ** 0.5
        assert abs(drawn.mean().item() - mean) < error, name
        assert abs(drawn.std().item() - deviation) < 2 * error, name
        centred = drawn - mean
        assert abs((centred[1:] * centred[:-1]).mean().item()) < error * deviation, name
