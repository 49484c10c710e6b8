"""Autocast on the sim: CUDA's policy, operator by operator, and what stands on it (gradients, GradScaler, checkpoints)."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import anyaccel as acc

pytestmark = pytest.mark.sim

LOWER = [torch.float16, torch.bfloat16]


def ones(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="sim", requires_grad=grad)


def host_waits() -> dict[str, int]:
    return acc.sim.stats()["host_waits"]


def test_the_operators_with_a_policy_are_those_of_cuda() -> None:
    cuda, sim = (set(torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{key}")) for key in ("CUDA", "PrivateUse1"))
    assert len(sim) > 100
    assert cuda - sim == {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose"}
    assert sim <= cuda


def convert(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    return type(value)(convert(member, change) for member in value) if isinstance(value, (tuple, list)) else value


def cpu_in(dtype: torch.dtype | None) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor.cpu().to(dtype) if dtype and tensor.is_floating_point() else tensor.cpu()


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for member in value for tensor in tensors_in(member)] if isinstance(value, (tuple, list)) else []


# torch's lists of operators with arguments -> where the operators are, and the dtype they run in (None: what promotion gives).
LISTS = {
    "torch_fp16": (torch, "lower"),
    "nn_fp16": (torch._C._nn, "lower"),
    "linalg_fp16": (torch._C._linalg, "lower"),
    "methods_fp16": (torch.Tensor, "lower"),
    "torch_fp32": (torch, torch.float32),
    "nn_fp32": (torch._C._nn, torch.float32),
    "methods_fp32": (torch.Tensor, torch.float32),
    "torch_need_autocast_promote": (torch, torch.float32),
    "torch_expect_builtin_promote": (torch, None),
    "methods_expect_builtin_promote": (torch.Tensor, None),
}


@pytest.mark.filterwarnings("ignore:Using torch.cross without", "ignore:torch.chain_matmul is deprecated")
@pytest.mark.parametrize(
    ("name", "lower"), [(name, lower) for name in LISTS for lower in LOWER if LISTS[name][1] == "lower" or lower == LOWER[0]]
)
def test_each_operator_runs_in_the_dtype_of_its_policy(name: str, lower: torch.dtype) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what torch's test helpers import
        from torch.testing._internal.autocast_test_lists import AutocastTestLists
    module, dtype = LISTS[name]
    dtype = lower if dtype == "lower" else dtype
    torch.manual_seed(0)
    wrong, checked = [], 0
    for op, args, *rest in getattr(AutocastTestLists("sim"), name):
        if op.startswith("cudnn") or not hasattr(module, op) or isinstance(args, str):  # einsum's arguments don't fit its equation
            continue
        kwargs = next((more for more in rest if isinstance(more, dict)), {})
        expected_dtype = next((more for more in rest if isinstance(more, torch.dtype)), dtype)
        function = getattr(module, op)
        with torch.autocast("sim", dtype=lower):
            result = function(*args, **kwargs)
        expected = function(*convert(args, cpu_in(dtype)), **kwargs)
        checked += 1
        if type(result) is not type(expected):
            wrong.append(f"{op}: {result} is not {expected}")
        for one, other in zip(tensors_in(result), tensors_in(expected), strict=True):
            if one.dtype != expected_dtype:
                wrong.append(f"{op}: {one.dtype}, not {expected_dtype}")
            else:
                tolerance = 4 * torch.finfo(dtype).eps if dtype else 0  # the values are about 1
                torch.testing.assert_close(one.cpu(), other, rtol=tolerance, atol=tolerance, msg=lambda text, op=op: f"{op}: {text}")
    assert not wrong
    assert checked


def test_lists_of_tensors_are_cast_too() -> None:
    with torch.autocast("sim"):
        assert torch.einsum("ij,jk->ik", ones(2, 3), ones(3, 4)).dtype == torch.float16
        assert torch.linalg.multi_dot([ones(2, 3), ones(3, 4), ones(4, 5)]).dtype == torch.float16
        assert torch.tensordot(ones(2, 3), ones(3, 4, dtype=torch.float16), 1).dtype == torch.float32


def test_what_is_banned_says_what_to_use() -> None:
    with torch.autocast("sim"), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        torch.nn.functional.binary_cross_entropy(ones(3), ones(3))
    with torch.autocast("sim"), torch.autocast("sim", enabled=False):
        assert torch.nn.functional.binary_cross_entropy(ones(3), ones(3)).item() == 0


def test_the_dtype_is_float16_unless_another_is_asked_for() -> None:
    x = ones(2, 2)
    assert torch.get_autocast_dtype("sim") == torch.float16
    with torch.autocast(device_type=acc.current_accelerator().type):
        assert (x @ x).dtype == torch.float16
        assert torch.is_autocast_enabled("sim")
        assert not torch.is_autocast_enabled("cpu")
        with torch.autocast("sim", dtype=torch.bfloat16):
            assert torch.get_autocast_dtype("sim") == torch.bfloat16
            assert (x @ x).dtype == torch.bfloat16
        with torch.autocast("sim", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float16
    assert (x @ x).dtype == torch.float32
    with pytest.warns(UserWarning, match="float16"), torch.autocast("sim", dtype=torch.float64):
        assert (x @ x).dtype == torch.float32


def test_tensors_of_other_kinds_stay_as_they_are() -> None:
    with torch.autocast("sim"):
        assert (ones(2, 2, dtype=torch.float64) @ ones(2, 2, dtype=torch.float64)).dtype == torch.float64
        assert (ones(2, 2, dtype=torch.int64) @ ones(2, 2, dtype=torch.int64)).dtype == torch.int64
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32  # the CPU has an autocast of its own
        assert torch.softmax(ones(2, dtype=torch.float16), 0, dtype=torch.float16).dtype == torch.float16  # asked for


def test_autocast_is_of_one_thread() -> None:
    x, seen = ones(2, 2), []
    with torch.autocast("sim"):
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
    assert seen == [torch.float32]


class Casts(TorchDispatchMode):
    """Counts the casts that reach the device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("cache", "casts"), [(True, 1), (False, 3)])
def test_weights_are_cast_once_while_the_cache_is_on(cache: bool, casts: int) -> None:
    x, weight = ones(2, 2, dtype=torch.float16), ones(2, 2, grad=True)
    with torch.autocast("sim", cache_enabled=cache), Casts() as seen:
        for _ in range(3):
            torch.nn.functional.linear(x, weight)
    assert seen.count == casts


def test_gradients_have_the_dtype_of_the_weights_and_the_values_of_the_lower_one() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 8), torch.randn(3, 8)

    def gradient(device: str) -> torch.Tensor:
        w = weight.to(device).requires_grad_()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = torch.nn.functional.linear(x.to(device), w).float().square().sum()
        loss.backward()
        assert w.grad is not None and w.grad.dtype == torch.float32
        return w.grad.cpu()

    assert torch.equal(gradient("sim"), gradient("cpu"))


def test_custom_functions_follow_autocast() -> None:
    seen: dict[str, object] = {}

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="sim")
        def forward(ctx, a, b):
            seen["forward"] = (a @ b).dtype
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="sim")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen["backward"] = torch.is_autocast_enabled("sim")
            return grad @ b.t(), a.t() @ grad

    class InFloat32(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="sim", cast_inputs=torch.float32)
        def forward(ctx, a):
            seen["cast"] = a.dtype, torch.is_autocast_enabled("sim")
            return a * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="sim")
        def backward(ctx, grad):
            seen["backward of cast"] = torch.is_autocast_enabled("sim")
            return grad * 2

    a = ones(2, 2, grad=True)
    with torch.autocast("sim"):
        result = InFloat32.apply(Product.apply(a, ones(2, 2)))
    assert result.dtype == torch.float32
    result.sum().backward()
    assert seen == {"forward": torch.float16, "backward": True, "cast": (torch.float32, False), "backward of cast": False}
    assert a.grad.tolist() == [[4, 4], [4, 4]]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_recomputes_under_the_same_autocast(reentrant: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)).to("sim")
    x = torch.randn(4, 8, device="sim", requires_grad=True)
    seen: list[torch.dtype] = []
    model[0].register_forward_hook(lambda _module, _args, result: seen.append(result.dtype))

    def gradients(run: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        model.zero_grad()
        with torch.autocast("sim", dtype=torch.bfloat16):
            loss = run(x).float().square().sum()
        loss.backward()
        return [weight.grad for weight in model.parameters()]

    expected = gradients(model)
    torch.testing.assert_close(gradients(lambda x: checkpoint(model, x, use_reentrant=reentrant)), expected, rtol=0, atol=0)
    assert seen == [torch.bfloat16] * 3


def train(steps: int, *, overflow_at: int, **options: object) -> tuple[list[float], list[list[float]], dict[str, int]]:
    """Train a line with float16 and a scaler; give the scales, the weights and what the host waited for, after each step."""
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0], device="sim"))
    optimizer = torch.optim.AdamW([weight], lr=0.1, **options)
    scaler = torch.amp.GradScaler("sim", init_scale=2.0**8, growth_interval=3)
    scales, weights = [], []
    x = ones(2)
    torch.accelerator.synchronize()
    acc.sim.reset_stats()
    for step in range(steps):
        with torch.autocast("sim"):
            loss = torch.nn.functional.linear(x * (1e30 if step == overflow_at else 1), weight[None]).sum()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler._scale.clone())
        weights.append(weight.detach().clone())
    waits = host_waits()
    return [scale.item() for scale in scales], [each.tolist() for each in weights], waits


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["plain", "foreach", "fused"])
def test_a_scaler_skips_steps_that_overflow_and_waits_no_more_than_on_cuda(options: dict[str, object]) -> None:
    scales, weights, waits = train(6, overflow_at=2, **options)
    assert scales == [2**8, 2**8, 2**7, 2**7, 2**7, 2**8]
    assert weights[2] == weights[1]
    assert all(one != other for i, (one, other) in enumerate(itertools.pairwise(weights)) if i != 1)
    # step() reads found_inf, once, but for fused optimizers, which read it on the device; so it is on CUDA.
    assert sum(waits.values()) == (0 if "fused" in options else 6), waits


def test_unscaling_by_hand_and_clipping() -> None:
    weight = torch.nn.Parameter(ones(4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("sim", init_scale=2.0**10)
    scaler.scale((weight * 3).sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [3] * 4
    torch.nn.utils.clip_grad_norm_([weight], 3.0)
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(weight.detach().cpu(), torch.full((4,), -0.5))
    state = scaler.state_dict()
    other = torch.amp.GradScaler("sim")
    other.load_state_dict(state)
    assert other.get_scale() == 2.0**10
