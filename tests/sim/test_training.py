"""Training on the sim: the losses and weights of the CPU, no wait that the program does not ask for, under both schedules."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.helpers import run_python
from torch import nn
from torch.nn import functional as F  # noqa: N812

import anyaccel as acc

pytestmark = pytest.mark.sim

STEPS = 20


class Network(nn.Module):
    """Its input is a batch of `inputs`, its output one number per class."""

    classes = 3
    inputs: tuple[int, ...]


class Convolutions(Network):
    inputs = (1, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.GELU()
        )
        self.head = nn.Linear(8, self.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Recurrent(Network):
    inputs = (5, 4)

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, self.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Encoder(Network):
    inputs = (5, 8)

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, self.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


class Decoder(Network):
    inputs = (5, 8)

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.into_heads = nn.Linear(8, 24)
        self.out_of_heads = nn.Linear(8, 8)
        self.wide = nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
        self.head = nn.Linear(8, self.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.into_heads(self.norm(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out_of_heads(attended.transpose(1, 2).flatten(2))
        return self.head((x + self.wide(x))[:, -1])


class Embeddings(Network):
    inputs = (6,)

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8, padding_idx=0)
        self.bags = nn.EmbeddingBag(50, 8, mode="mean")
        self.head = nn.Linear(8, self.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = (x.abs() * 10).long()
        return self.head(self.words(words).sum(1) + self.bags(words))


NETWORKS = (Convolutions, Recurrent, Encoder, Decoder, Embeddings)
OPTIMIZERS = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def train(kind: type[Network], device: str, dtype: torch.dtype, options: dict[str, bool]) -> tuple[list[torch.Tensor], dict[str, int]]:
    """Train for STEPS steps. Give the losses and the weights, on the CPU, and what the host waited for."""
    torch.default_generator.manual_seed(1)
    network = kind().to(device=device, dtype=dtype)
    x = torch.randn(8, *kind.inputs, dtype=dtype).to(device)
    labels = torch.randint(kind.classes, (8,)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, **options)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    losses = []
    if device != "cpu":
        torch.accelerator.synchronize()
        acc.sim.reset_stats()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    waits = dict(acc.sim.stats()["host_waits"]) if device != "cpu" else {}
    return [torch.stack(losses).cpu(), *(value.detach().cpu() for value in network.state_dict().values())], waits


@pytest.mark.parametrize("options", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("kind", NETWORKS)
def test_training_gives_what_the_cpu_gives_without_a_wait(kind: type[Network], options: dict[str, bool]) -> None:
    # In float64: training multiplies the last digits' differences, and what is compared here is the way, not the digits.
    expected, _ = train(kind, "cpu", torch.float64, options)
    got, waits = train(kind, "sim", torch.float64, options)
    assert waits == {}
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-8)
    assert got[0][-1] < got[0][0]  # it has learnt


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", NETWORKS)
def test_one_step_gives_what_the_cpu_gives_in_lower_precision(kind: type[Network], dtype: torch.dtype) -> None:
    def gradients(device: str) -> list[torch.Tensor]:
        torch.default_generator.manual_seed(1)
        network = kind().to(device=device, dtype=dtype)
        loss = F.cross_entropy(network(torch.randn(4, *kind.inputs, dtype=dtype).to(device)), torch.arange(4, device=device) % 3)
        loss.backward()
        return [loss.detach().cpu(), *(weight.grad.cpu() for weight in network.parameters())]

    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(gradients("sim"), gradients("cpu"), rtol=32 * eps, atol=8 * eps)


def digest() -> dict[str, list[float]]:
    """What float32 training gives, all of it, in numbers that json keeps whole."""
    results = {}
    for kind in NETWORKS:
        for name, options in OPTIMIZERS.items():
            values, waits = train(kind, "sim", torch.float32, options)
            assert waits == {}, waits
            results[f"{kind.__name__} {name}"] = [value.double().sum().item() for value in values]
    return results


def test_both_schedules_give_the_same_bits() -> None:
    program = f"""
        import json, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tests.sim.test_training import digest
        print(json.dumps(digest()))
    """
    serial, threads = (
        json.loads(run_python(program, {"ANYACCEL_SIM": "1", "ANYACCEL_SIM_SCHEDULE": schedule}).stdout)
        for schedule in ("serial", "threads")
    )
    assert len(serial) == len(NETWORKS) * len(OPTIMIZERS)
    assert serial == threads
    assert all(math.isfinite(number) for numbers in serial.values() for number in numbers)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # from the CPU
@pytest.mark.parametrize("padded", [False, True])
def test_a_transformer_answers_without_gradients(padded: bool) -> None:
    torch.default_generator.manual_seed(1)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True), 2).eval()
    x = torch.randn(3, 5, 8)
    padding = torch.arange(5) >= torch.tensor([[5], [3], [2]])
    with torch.no_grad():  # where torch takes kernels of whole layers, and nested tensors, where a device has them
        expected = encoder(x, src_key_padding_mask=padding if padded else None)
        result = encoder.to("sim")(x.to("sim"), src_key_padding_mask=padding.to("sim") if padded else None).cpu()
    kept = ~padding if padded else torch.ones_like(padding)
    torch.testing.assert_close(result[kept], expected[kept])


@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_answers_without_gradients(need_weights: bool) -> None:
    torch.default_generator.manual_seed(1)
    attention, x = nn.MultiheadAttention(64, 4, batch_first=True).eval(), torch.randn(4, 128, 64)
    with torch.no_grad():
        expected = attention(x, x, x, need_weights=need_weights)
        attention, x = attention.to("sim"), x.to("sim")
        before = dict(acc.sim.stats()["host_waits"])
        result = attention(x, x, x, need_weights=need_weights)
        assert acc.sim.stats()["host_waits"] == before
    assert (result[1] is None) == (not need_weights)
    torch.testing.assert_close(result, expected, check_device=False)


class Calls(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def an_optimizer(
    kind: Callable[..., torch.optim.Optimizer], device: str, **options: object
) -> tuple[torch.optim.Optimizer, list[nn.Parameter]]:
    weights = [nn.Parameter(torch.linspace(0, 1, 4 + i, dtype=torch.float64).to(device)) for i in range(3)]
    for weight in weights:
        weight.grad = weight.detach().cos()
    return kind(weights, **options), weights


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_optimizers_run_fused(name: str) -> None:
    options = {"lr": 0.1, "fused": True}
    optimizer, weights = an_optimizer(getattr(torch.optim, name), "sim", **options)
    with Calls() as calls:
        optimizer.step()
    assert f"aten::_fused_{name.lower()}_" in calls.names
    optimizer.step()
    reference, expected = an_optimizer(getattr(torch.optim, name), "cpu", **options | {"fused": False})
    reference.step()
    reference.step()
    torch.testing.assert_close([weight.detach().cpu() for weight in weights], [weight.detach() for weight in expected])


# (ASGD and Adafactor read their step counts on the host, on every device.)
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "RMSprop", "Rprop"])
def test_foreach_is_what_optimizers_take_by_themselves(name: str) -> None:
    kind = getattr(torch.optim, name)
    optimizer, weights = an_optimizer(kind, "sim")
    reference, expected = an_optimizer(kind, "cpu", foreach=False)
    torch.accelerator.synchronize()
    before = acc.sim.stats()["host_waits"]
    with Calls() as calls:
        optimizer.step()
        optimizer.step()
    assert acc.sim.stats()["host_waits"] == before
    reference.step()
    reference.step()
    torch.testing.assert_close([weight.detach().cpu() for weight in weights], [weight.detach() for weight in expected])
    assert any("_foreach_" in call for call in calls.names), calls.names


@pytest.mark.parametrize("set_to_none", [True, False])
def test_fused_steps_and_clearing_gradients_do_not_wait(set_to_none: bool) -> None:
    optimizer, weights = an_optimizer(torch.optim.AdamW, "sim", lr=0.1, fused=True)
    with acc.sim.hold():
        optimizer.step()  # would hang if it waited
        optimizer.zero_grad(set_to_none=set_to_none)
    assert all((weight.grad is None) if set_to_none else weight.grad.tolist() == [0] * weight.numel() for weight in weights)
    assert optimizer.state_dict()["state"][0]["step"].device.type == "sim"


def test_a_learning_rate_on_the_device() -> None:
    optimizer, weights = an_optimizer(torch.optim.AdamW, "sim", lr=torch.tensor(0.1, device="sim"), fused=True)
    reference, expected = an_optimizer(torch.optim.AdamW, "cpu", lr=0.1)
    optimizer.step()
    reference.step()
    torch.testing.assert_close([weight.detach().cpu() for weight in weights], [weight.detach() for weight in expected])


def test_gradients_accumulate_over_batches_as_over_one() -> None:
    network = Decoder().double().to("sim")
    x, label = torch.randn(8, *Decoder.inputs, dtype=torch.float64).to("sim"), (torch.arange(8) % 3).to("sim")
    F.cross_entropy(network(x), label).backward()
    expected = [weight.grad.clone() for weight in network.parameters()]
    network.zero_grad()
    for part, labels in zip(x.chunk(4), label.chunk(4), strict=True):
        (F.cross_entropy(network(part), labels) / 4).backward()
    torch.testing.assert_close([weight.grad for weight in network.parameters()], expected)
