"""The sim asks Meta kernels about large calls, and runs operators as their `out=` forms. Where either says something else than the
functional CPU kernel does, the operator is in one table (csrc/torch/disagreements.h), and nothing else is.

A run draws operators, a dtype and samples; with ANYACCEL_TEST_WHOLE=1 it takes all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from tests.operator_samples import arguments_of, dtypes_of, name_of, operators, samples_of, tensors_of, whole
from torch._C import _dispatch_has_kernel_for_dispatch_key as has_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = [pytest.mark.sim, pytest.mark.filterwarnings("ignore")]

SHARDS = 8
DRAWN = 0.2

# What answers on meta tensors.
META = ("Meta", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")
DEPENDS_ON_DATA = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}

# Whose samples show that what is in the table disagrees.
EVIDENCE = {
    "aten::_batch_norm_with_update": "_batch_norm_with_update",
    "aten::_ctc_loss": "nn.functional.ctc_loss",
    "aten::_embedding_bag": "nn.functional.embedding_bag",
    "aten::_embedding_bag_forward_only": "nn.functional.embedding_bag",
    "aten::_fft_c2r": "fft.hfft2",
    "aten::_fft_r2c": "fft.rfft2",
    "aten::_linalg_svd": "linalg.svd",
    "aten::_native_batch_norm_legit": "_native_batch_norm_legit",
    "aten::_native_batch_norm_legit.no_stats": "_native_batch_norm_legit",
    "aten::binary_cross_entropy": "nn.functional.binary_cross_entropy",
    "aten::huber_loss": "nn.functional.huber_loss",
    "aten::linalg_eig": "linalg.eig",
    "aten::max_unpool2d": "nn.functional.max_unpool2d.grad",
    "aten::mse_loss": "nn.functional.mse_loss",
    "aten::native_batch_norm": "native_batch_norm",
    "aten::native_layer_norm": "native_layer_norm",
    "aten::nonzero_static": "nonzero_static",
    "aten::smooth_l1_loss": "nn.functional.smooth_l1_loss",
}
ATTENTION = "aten::_native_multi_head_attention"


def table() -> dict[str, str]:
    """The operators of disagreements.h, with their overloads, and what disagrees."""
    import _anyaccel_sim

    return dict(_anyaccel_sim.disagreeing_operators())


def layouts(values: list[Any], *, strides: bool) -> list[Any]:
    """Shapes and types, and strides where they mean something."""

    def steps(x: torch.Tensor) -> list[int]:
        return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1] if strides and x.numel() else []

    leaves = pytree.tree_leaves(values)
    return [(tuple(x.shape), x.dtype, steps(x)) if isinstance(x, torch.Tensor) else None for x in leaves]


def is_expanded(x: torch.Tensor) -> bool:
    return any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))


def full_name(func: Any) -> str:
    schema = func._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def on_meta(value: Any) -> Any:
    def move(x: Any) -> Any:
        if isinstance(x, torch.device):
            return torch.device("meta")
        if not isinstance(x, torch.Tensor):
            return x
        moved = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        moved = torch._conj(moved) if x.is_conj() else moved
        return torch._neg_view(moved) if x.is_neg() else moved

    return pytree.tree_map(move, value)


def out_form(func: Any) -> Any:
    """The overload with the same arguments and, after them, one written tensor per return, as plan.cpp finds it."""
    mine = func._schema
    wanted = [(x.name, str(x.type)) for x in mine.arguments]
    for name in func._overloadpacket.overloads():
        candidate = getattr(func._overloadpacket, name)
        theirs = candidate._schema.arguments
        if len(theirs) != len(wanted) + len(mine.returns) or [(x.name, str(x.type)) for x in theirs[: len(wanted)]] != wanted:
            continue
        if all(x.is_write and str(x.type) == "Tensor" for x in theirs[len(wanted) :]):
            return candidate
    return None


def poisoned(like: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout over bytes of 0xFF, which can't be resized: as a task has them."""
    count = 1 + sum(step * (size - 1) for step, size in zip(like.stride(), like.shape, strict=True)) if like.numel() else 0
    if count == 0:
        return torch.empty_like(like)
    return torch.frombuffer(bytearray(b"\xff" * (count * like.element_size())), dtype=like.dtype).as_strided(like.shape, like.stride())


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


class Compare(TorchDispatchMode):
    """Puts each call that the sim's fallback would see also to Meta and to the `out=` form, and notes who disagrees."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, set[str]] = {}
        self.calls = 0
        self.table = table()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        state = torch.random.get_rng_state()
        result = func(*args, **kwargs)
        if self.concerns(func, (args, kwargs, result)):
            self.calls += 1
            values = result if isinstance(result, (tuple, list)) and len(func._schema.returns) > 1 else [result]
            for what, agrees in (
                ("meta", lambda: self.meta_agrees(func, args, kwargs, values)),
                ("out", lambda: self.out_agrees(func, args, kwargs, values, state)),
            ):
                if not agrees():
                    self.found.setdefault(full_name(func), set()).add(what)
        return result

    def concerns(self, func: Any, everything: Any) -> bool:
        """True for functional operators of dense tensors that have a CPU kernel, and whose results don't depend on the data."""
        name, returns = full_name(func), func._schema.returns
        return (
            name.startswith("aten::")
            and has_kernel(name, "CPU")
            and (name in self.table or not DEPENDS_ON_DATA & set(func.tags))
            and bool(returns)
            and all(x.alias_info is None and "Tensor" in str(x.type) for x in returns)
            and all(x.is_cpu and x.layout == torch.strided for x in tensors_of(everything))
        )

    def meta_agrees(self, func: Any, args: Any, kwargs: Any, values: list[Any]) -> bool:
        if not any(has_kernel(full_name(func), key) for key in META):
            return True  # nobody asks
        try:
            told = func(*on_meta(args), **on_meta(kwargs))
        except Exception:
            return DEPENDS_ON_DATA & set(func.tags) != set()
        strides = not any(map(is_expanded, tensors_of((args, kwargs))))  # which of their dimensions comes first is anybody's guess
        return layouts(told, strides=strides) == layouts(values, strides=strides)

    def out_agrees(self, func: Any, args: Any, kwargs: Any, values: list[Any], state: torch.Tensor) -> bool:
        form = out_form(func)
        if form is None or not all(isinstance(x, torch.Tensor) for x in values):
            return True  # nobody runs it
        outputs = [poisoned(x) for x in values]
        names = [x.name for x in form._schema.arguments[-len(outputs) :]]
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(state)
            try:
                form(*args, **kwargs, **dict(zip(names, outputs, strict=True)))
            except Exception:
                return False
        return all(map(same, outputs, values))


def disagreements(op: Any, samples: Iterable[Any]) -> Compare:
    mode = Compare()
    for sample in samples:
        arguments = arguments_of(sample)
        with mode:
            result = op(arguments[0], *arguments[1], **arguments[2])
            outputs = [x for x in tensors_of(result) if x.requires_grad]
            inputs = [x for x in tensors_of(arguments) if x.requires_grad]
            if outputs and inputs:
                torch.autograd.grad([x.real.sum() for x in outputs], inputs, allow_unused=True)
    return mode


def has_gradients(op: Any, dtype: torch.dtype) -> bool:
    return op.supports_autograd and dtype in (op.backward_dtypes if dtype.is_floating_point else ())


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_disagrees_with_the_functional_kernel_is_in_the_table(shard: int, seed: int) -> None:
    calls, unknown = 0, set()
    for op in operators()[shard::SHARDS]:
        rng = random.Random(f"{seed} {name_of(op)}")
        if not whole() and rng.random() > DRAWN:
            continue
        for dtype in dtypes_of(op, rng):
            torch.manual_seed(seed)
            mode = disagreements(op, samples_of(op, dtype, rng, count=1, requires_grad=has_gradients(op, dtype)))
            calls += mode.calls
            unknown |= {(name, what) for name, found in mode.found.items() for what in found if mode.table.get(name) not in (what, "meta")}
    assert calls > 10
    assert not unknown, f"seed {seed}: {sorted(unknown)}"


def evidence(op: Any, name: str, what: str) -> bool:
    """True if some sample of an operator shows the disagreement."""
    for dtype in (torch.float32, torch.bfloat16):
        for requires_grad in (False, True):
            for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
                if what in disagreements(op, [sample]).found.get(name, ()):
                    return True
    return False


@pytest.mark.parametrize("name", EVIDENCE)
def test_what_is_in_the_table_disagrees(name: str) -> None:
    (op,) = [op for op in operators() if name_of(op) == EVIDENCE[name]]
    assert evidence(op, name, table()[name])


def test_attention_leaves_out_weights_that_nobody_asked_for() -> None:
    """The database has no samples of it."""
    x, weight, bias = torch.randn(2, 3, 4), torch.randn(12, 4), torch.randn(12)
    with Compare() as mode:
        torch._native_multi_head_attention(x, x, x, 4, 2, weight, bias, weight[:4], bias[:4], need_weights=False)
    assert mode.found == {ATTENTION: {table()[ATTENTION]}}


def test_there_is_evidence_for_all_of_the_table() -> None:
    assert table().keys() == {*EVIDENCE, ATTENTION}
