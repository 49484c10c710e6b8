"""Gradients on the sim: those of the CPU, on the streams that torch's engine promises, and a process that survives what goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import anyaccel as acc

pytestmark = [pytest.mark.sim, pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")]  # torch's own use of it


@pytest.fixture(autouse=True)
def healthy():
    yield
    acc.sim.reset_errors()
    torch.sim.set_per_process_memory_fraction(1.0)


def numbers(*shape: int, device: str = "sim", grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The same numbers on every device."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=dtype).to(device).requires_grad_(grad)


def model(device: str) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
    for weight in layers.parameters():
        weight.data = numbers(*weight.shape, device="cpu")
    return layers.to(device)


def same(compute: Callable[[str], Any]) -> None:
    """`compute` gives on the sim what it gives on the CPU."""
    torch.testing.assert_close(compute("sim"), compute("cpu"), check_device=False)


# Hooks


def test_hooks_of_tensors_see_and_change_gradients() -> None:
    def compute(device: str) -> list[torch.Tensor]:
        seen = []
        x = numbers(5, device=device, grad=True)
        y = x.exp()
        y.register_hook(lambda grad: seen.append(grad.clone()))
        x.register_hook(lambda grad: grad * 10)
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
        y.square().sum().backward()
        return [*seen, x.grad]

    assert len(compute("sim")) == 3
    same(compute)


def test_an_optimizer_that_steps_in_hooks() -> None:
    def compute(device: str) -> list[torch.Tensor]:
        layers = model(device)
        for weight in layers.parameters():
            optimizer = torch.optim.SGD([weight], lr=0.1)

            def step(leaf: torch.Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
                optimizer.step()
                leaf.grad = None

            weight.register_post_accumulate_grad_hook(step)
        layers(numbers(4, 6, device=device)).square().sum().backward()
        assert all(weight.grad is None for weight in layers.parameters())
        return [weight.detach() for weight in layers.parameters()]

    same(compute)


def test_hooks_of_modules() -> None:
    def compute(device: str) -> list[torch.Tensor]:
        layers, seen = model(device), []
        layers[0].register_forward_pre_hook(lambda _module, args: (args[0] * 2,))
        layers[0].register_forward_hook(lambda _module, _args, result: result + 1)
        layers[3].register_full_backward_pre_hook(lambda _module, grads: (grads[0] * 3,))
        layers[3].register_full_backward_hook(lambda _module, grads, _: seen.append(grads[0].clone()))
        layers(numbers(4, 6, device=device)).square().sum().backward()
        return seen + [weight.grad for weight in layers.parameters()]

    same(compute)


def test_hooks_of_saved_tensors() -> None:
    packed = []

    def compute(device: str) -> torch.Tensor:
        x = numbers(5, device=device, grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: packed.append(saved.device.type) or saved * 2, lambda kept: kept / 2):
            y = x.exp() * x
        y.sum().backward()
        return x.grad

    same(compute)
    assert packed.count("sim") == packed.count("cpu") > 1


@pytest.mark.parametrize("pin_memory", [False, True])
def test_what_is_saved_may_wait_on_the_cpu(pin_memory: bool) -> None:
    def gradients(*, on_cpu: bool) -> list[torch.Tensor]:
        layers = model("sim")
        x = numbers(4, 6)
        if on_cpu:
            with torch.autograd.graph.save_on_cpu(pin_memory=pin_memory):
                y = layers(x)
            saved = y.grad_fn._raw_saved_mat1
            with pytest.raises(RuntimeError, match="already been set"):  # it is there, packed
                saved.register_hooks(lambda t: t, lambda t: t)
        else:
            y = layers(x)
        y.square().sum().backward()
        return [weight.grad for weight in layers.parameters()]

    torch.testing.assert_close(gradients(on_cpu=True), gradients(on_cpu=False))


# Checkpoints


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_a_checkpoint_draws_the_same_numbers_again(reentrant: bool, preserve: bool) -> None:
    masks = []
    block = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 2)).to("sim")
    block[1].register_forward_hook(lambda _module, _args, result: masks.append(result == 0))
    x = numbers(16, 8, grad=True)

    def gradients(run: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        masks.clear()
        block.zero_grad()
        torch.manual_seed(7)
        loss = run(x).square().sum()
        torch.rand(3, device="sim")  # somebody else draws between forward and backward
        loss.backward()
        return [weight.grad for weight in block.parameters()]

    expected = gradients(block)
    got = gradients(lambda x: checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=preserve))
    assert len(masks) == 2
    assert torch.equal(masks[0], masks[1]) == preserve
    if preserve:
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_a_checkpoint_draws_the_same_numbers_again_on_every_device() -> None:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        drawn.append((nn.functional.dropout(torch.ones_like(a)), nn.functional.dropout(torch.ones_like(b))))
        return (a * drawn[-1][0]).sum() + (b * drawn[-1][1]).sum().to("sim:0")

    drawn: list[tuple[torch.Tensor, torch.Tensor]] = []
    a, b = numbers(50, device="sim:0", grad=True), numbers(50, device="sim:1", grad=True)
    # The other kind may recompute on two of the engine's threads at once, and loses its place then: torch, on any device.
    checkpoint(run, a, b, use_reentrant=True).backward()
    assert torch.equal(a.grad, drawn[0][0]) and torch.equal(b.grad, drawn[0][1])
    assert torch.equal(drawn[0][0], drawn[1][0]) and torch.equal(drawn[0][1], drawn[1][1])


# More than one backward


def test_backward_of_backward() -> None:
    def compute(device: str) -> list[torch.Tensor]:
        x = numbers(5, device=device, grad=True)
        weight = numbers(5, 5, device=device, grad=True)
        y = torch.tanh(x @ weight).sum()
        (grad,) = torch.autograd.grad(y, x, create_graph=True)
        return list(torch.autograd.grad(grad.square().sum(), [x, weight]))

    same(compute)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.conv2d(x[None, None], x[None, None, :2, :2]),
        lambda x: nn.functional.layer_norm(x, (4,)),
        lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
        lambda x: torch.linalg.inv(x + 9 * torch.eye(4, device=x.device, dtype=x.dtype)),
    ],
    ids=["convolution", "layer_norm", "attention", "inverse"],
)
def test_gradients_are_the_slopes_of_the_function(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = numbers(4, 4, grad=True, dtype=torch.float64)
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_gradients_of_recurrent_cells_are_their_slopes(kind: type[nn.RNNCellBase], bias: bool) -> None:
    cell = kind(3, 2, bias=bias, dtype=torch.float64, device="sim")
    names = [name for name, _ in cell.named_parameters()]

    def step(x: torch.Tensor, state: torch.Tensor, memory: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = (state, memory) if kind is nn.LSTMCell else state + 0 * memory
        result = torch.func.functional_call(cell, dict(zip(names, weights, strict=True)), (x, hidden))
        return result if isinstance(result, tuple) else (result,)

    states = [numbers(2, size, grad=True, dtype=torch.float64) for size in (3, 2, 2)]
    assert torch.autograd.gradcheck(step, (*states, *cell.parameters()))
    assert torch.autograd.gradgradcheck(step, (*states, *cell.parameters()))


def test_a_graph_that_is_kept_accumulates() -> None:
    x = numbers(3, grad=True)
    y = x.square().sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad, 6 * x.detach())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_what_was_changed_after_it_was_saved_is_refused() -> None:
    x = numbers(3, grad=True)
    y = x.exp()
    loss = y.square().sum()
    y.data.add_(1)  # torch does not see this one
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_tangents_go_forward() -> None:
    from torch.autograd import forward_ad

    def compute(device: str) -> torch.Tensor:
        with forward_ad.dual_level():
            x = forward_ad.make_dual(numbers(4, device=device), numbers(2, 2, device=device).flatten())
            return forward_ad.unpack_dual((x.sin() * x).cumsum(0)).tangent

    same(compute)


# torch.func


def per_weight(device: str, *, samples: bool) -> Any:
    layers = model(device)

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layers, weights, (x,)).square().sum()

    weights = {name: weight.detach() for name, weight in layers.named_parameters()}
    gradients = torch.func.grad(loss)
    if samples:
        return torch.func.vmap(gradients, in_dims=(None, 0))(weights, numbers(5, 1, 6, device=device))
    return gradients(weights, numbers(4, 6, device=device))


TRANSFORMS: dict[str, Callable[[str], Any]] = {
    "grad": lambda device: per_weight(device, samples=False),
    "grad of grad": lambda device: torch.func.grad(torch.func.grad(lambda x: x.sin().prod()))(numbers(1, device=device)[0]),
    "vmap": lambda device: torch.func.vmap(torch.dot)(numbers(3, 4, device=device), numbers(3, 4, device=device)),
    "vmap in dims": lambda device: torch.func.vmap(torch.mv, in_dims=(2, None), out_dims=1)(
        numbers(2, 3, 4, device=device), numbers(3, device=device)
    ),
    "gradients per sample": lambda device: per_weight(device, samples=True),
    "jvp": lambda device: torch.func.jvp(torch.tanh, (numbers(4, device=device),), (numbers(2, 2, device=device).flatten(),)),
    "vjp": lambda device: torch.func.vjp(torch.tanh, numbers(4, device=device))[1](numbers(2, 2, device=device).flatten()),
    "jacrev": lambda device: torch.func.jacrev(lambda x: x.softmax(0))(numbers(4, device=device)),
    "jacfwd": lambda device: torch.func.jacfwd(lambda x: x.softmax(0))(numbers(4, device=device)),
    "hessian": lambda device: torch.func.hessian(lambda x: x.softmax(0).square().sum())(numbers(4, device=device)),
    "functional_call": lambda device: torch.func.functional_call(
        model(device), {"0.bias": numbers(8, device=device)}, numbers(2, 6, device=device)
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_transforms_of_functions(transform: Callable[[str], Any]) -> None:
    same(transform)


@pytest.mark.parametrize(("randomness", "equal"), [("same", True), ("different", False)])
def test_vmap_draws_as_it_is_told(randomness: str, equal: bool) -> None:
    x = torch.ones(2, 64, device="sim")
    first, second = torch.func.vmap(nn.functional.dropout, randomness=randomness)(x)
    assert torch.equal(first, second) == equal


# Functions of one's own


def test_functions_of_ones_own() -> None:
    class Twice(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, factor):
            return x * factor, x > 0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.factor = inputs[1]
            ctx.mark_non_differentiable(output[1])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, grad, grad_of_mask):
            assert grad_of_mask is None
            (x,) = ctx.saved_tensors
            return grad * ctx.factor * torch.ones_like(x), None

        @staticmethod
        def jvp(ctx, tangent, _):
            return tangent * ctx.factor, None

    def compute(device: str) -> list[torch.Tensor]:
        x = numbers(2, 3, device=device, grad=True)
        result, mask = Twice.apply(x, 2.0)
        result.square().sum().backward()
        mapped, _ = torch.func.vmap(Twice.apply, in_dims=(0, None))(x.detach(), 3.0)
        return [result, mask, x.grad, mapped]

    same(compute)


def test_a_function_that_writes_its_input() -> None:
    class Clear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.zero_()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            return torch.zeros_like(grad)

    x = numbers(3, grad=True)
    y = x * 1
    Clear.apply(y)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [0, 0, 0]


# What goes wrong


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled", "ignore:Error detected in")
def test_anomaly_detection_finds_the_nan() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * float("nan")

    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="'BrokenBackward' returned nan"):
        Broken.apply(numbers(3, grad=True)).sum().backward()


def a_step() -> torch.Tensor:
    x = numbers(3, grad=True)
    x.square().sum().backward()
    torch.accelerator.synchronize()
    return x.grad - 2 * x.detach()


def test_a_kernel_that_fails_in_backward_leaves_a_process_that_goes_on() -> None:
    class OutOfRange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad[torch.tensor([0, 9, 0], device="sim")]

    x = numbers(3, grad=True)
    with pytest.raises(torch.AcceleratorError, match=r"(?s)index.*backward"):
        OutOfRange.apply(x).sum().backward()
        torch.accelerator.synchronize()
    acc.sim.reset_errors()
    assert a_step().tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_detection_names_the_forward_call_of_what_fails_in_backward() -> None:
    def the_forward_call(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.gather(0, index)

    index = torch.zeros(3, dtype=torch.int64, device="sim")
    with torch.autograd.detect_anomaly(check_nan=False):
        y = the_forward_call(numbers(3, grad=True), index)
        index.data.fill_(77)  # torch does not see it
        y.sum().backward()
    with pytest.raises(torch.AcceleratorError, match=r"(?s)out of bounds.*forward call.*the_forward_call"):
        torch.accelerator.synchronize()


def test_running_out_of_memory_in_backward_leaves_a_process_that_goes_on() -> None:
    mebibyte = 2**20
    x = torch.ones(8 * mebibyte, dtype=torch.uint8, device="sim").view(torch.float32).requires_grad_()
    loss = (x.sin() * x).sum()  # keeps what backward needs, which then needs more
    torch.accelerator.synchronize()
    torch.sim.empty_cache()
    total = torch.sim.get_device_properties().total_memory
    torch.sim.set_per_process_memory_fraction((torch.sim.memory_reserved() + 4 * mebibyte) / total)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        loss.backward()
    before = torch.sim.memory_allocated()
    del loss
    assert torch.sim.memory_allocated() < before
    torch.sim.set_per_process_memory_fraction(1.0)
    assert a_step().tolist() == [0, 0, 0]


def test_an_exception_in_a_hook_comes_out_of_backward() -> None:
    x = numbers(3, grad=True)
    y = x.exp()

    def hook(grad: torch.Tensor) -> None:
        raise LookupError("not today")

    y.register_hook(hook)
    with pytest.raises(LookupError, match="not today"):
        y.sum().backward()
    assert a_step().tolist() == [0, 0, 0]


# Streams, devices, threads


def test_backward_does_not_wait_for_the_device() -> None:
    layers = model("sim")
    result = layers(numbers(4, 6)).square().sum()
    torch.accelerator.synchronize()
    before = acc.sim.stats()["host_waits"]
    with acc.sim.hold(torch.accelerator.current_stream()):
        result.backward()  # would hang if it waited
        assert acc.sim.stats()["host_waits"] == before


def test_backward_runs_on_the_streams_of_forward_and_the_current_one_waits_for_the_leaves() -> None:
    default, side = torch.accelerator.current_stream(), torch.Stream("sim")
    x = numbers(3, grad=True)
    seen = []
    side.wait_stream(default)
    with acc.stream(side):
        y = x.exp()
        y.register_hook(lambda grad: seen.append(torch.accelerator.current_stream()))
        result = y.square().sum()
    default.wait_stream(side)
    default.synchronize()
    with acc.sim.hold(side):
        result.backward()
        assert not side.query(), "backward ran elsewhere"
        assert not default.query(), "the current stream does not wait for the leaves"
        doubled = x.grad * 2  # in order after the gradient, though it was made on another stream
    assert seen == [side]
    torch.testing.assert_close(doubled, 4 * (2 * x.detach()).exp())


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")  # of one of the two it must be
def test_gradients_from_two_streams_add_up() -> None:
    default = torch.accelerator.current_stream()
    streams = [torch.Stream("sim") for _ in range(2)]
    x = numbers(3, grad=True)
    parts = []
    for factor, stream in enumerate(streams, start=1):
        stream.wait_stream(default)
        with acc.stream(stream):
            parts.append((x * factor).sum())
        default.wait_stream(stream)
    total = parts[0] + parts[1]
    default.synchronize()
    for held in streams:
        x.grad = None
        with acc.sim.hold(held):
            total.backward(retain_graph=True)
            grad = x.grad.clone()
        assert grad.tolist() == [3, 3, 3]


def test_one_backward_over_several_devices() -> None:
    def compute(devices: list[str]) -> list[torch.Tensor]:
        weights = [numbers(4, 4, device=device, grad=True) for device in devices]
        x = numbers(2, 4, device=devices[0])
        for weight in weights:
            x = torch.tanh(x.to(weight.device) @ weight)
        x.square().sum().backward()
        assert [weight.grad.device for weight in weights] == [torch.device(device) for device in devices]
        return [weight.grad.cpu() for weight in weights]

    expected = compute(["cpu"] * 4)
    torch.testing.assert_close(compute(["sim:0", "sim:1", "sim:2", "sim:1"]), expected)
    torch.testing.assert_close(compute(["cpu", "sim:3", "cpu", "sim:0"]), expected)


def test_threads_run_backwards_of_their_own() -> None:
    def work(index: int) -> None:
        with acc.stream(torch.Stream("sim")):
            layers, x = model("sim"), numbers(4, 6)
            torch.accelerator.synchronize()
            for _ in range(5):
                layers.zero_grad()
                layers(x).square().sum().backward()
            results[index] = [weight.grad.cpu() for weight in layers.parameters()]

    results: dict[int, list[torch.Tensor]] = {}
    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results.values():
        torch.testing.assert_close(result, results[0], rtol=0, atol=0)


def test_a_backward_inside_a_backward() -> None:
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x.square().sum()
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, grad):
            ctx.y.backward(grad)
            return ctx.x.grad

    x = numbers(3, grad=True)
    Inner.apply(x).mul(3).backward()
    torch.testing.assert_close(x.grad, 6 * x.detach())
