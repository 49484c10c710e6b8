"""torch's own samples of its operators (op_db), and how to take them to the sim.

The database costs seconds to import, so that functions do it: never import it while pytest collects.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

WHOLE = "ANYACCEL_TEST_WHOLE"
"""Set to 1: every operator with every dtype and every sample, instead of a few drawn by the seed."""

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)

# Their samples ask for a GPU's compiler.
_NOT_ON_THE_CPU = "jiterator"

Arguments = tuple[Any, tuple[Any, ...], dict[str, Any]]


def whole() -> bool:
    return os.environ.get(WHOLE, "") not in ("", "0")


def name_of(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def operators() -> list[Any]:
    """Every operator of the database that has samples for the CPU."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if not op.name.startswith(_NOT_ON_THE_CPU)]


def dtypes_of(op: Any, rng: random.Random) -> list[torch.dtype]:
    """The dtypes to test an operator with: all, or one that is drawn."""
    known = [dtype for dtype in DTYPES if dtype in op.dtypes]
    return known if whole() or not known else [rng.choice(known)]


def samples_of(op: Any, dtype: torch.dtype, rng: random.Random, *, count: int, requires_grad: bool = False) -> Iterator[Any]:
    """Samples for the CPU: all, or `count` that are drawn from the first ones."""
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    if whole():
        return samples
    first = list(itertools.islice(samples, 4 * count))
    return iter(rng.sample(first, min(count, len(first))))


def arguments_of(sample: Any) -> Arguments:
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


class Mover:
    """Takes tensors to the sim with their strides, bits and alias relations: what shared memory shares it there."""

    def __init__(self, device: str = "sim") -> None:
        self.device = torch.device(device)
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._kept: list[torch.Tensor] = []  # so that no id is used again

    def move(self, value: Any) -> Any:
        return pytree.tree_map(self._move, value)

    def _move(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return self.device
        if not isinstance(leaf, torch.Tensor) or leaf.is_meta:
            return leaf
        if id(leaf) not in self._tensors:
            self._kept.append(leaf)
            self._tensors[id(leaf)] = self._tensor(leaf)
        return self._tensors[id(leaf)]

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return tensor.detach().to(self.device)
        plain = tensor.detach()
        storage = self._storage(plain.untyped_storage())
        moved = torch.empty(0, dtype=plain.dtype, device=self.device)
        moved.set_(storage, plain.storage_offset(), plain.size(), plain.stride())
        if plain.is_conj():
            moved = torch._conj(moved)
        if plain.is_neg():
            moved = torch._neg_view(moved)
        return moved.requires_grad_(tensor.requires_grad)

    def _storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        key = storage.data_ptr()
        if key == 0:
            return torch.empty(0, device=self.device).untyped_storage()
        if key not in self._storages:
            content = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages[key] = content.to(self.device).untyped_storage()
        return self._storages[key]


def to_cpu(value: Any) -> Any:
    return pytree.tree_map(lambda leaf: leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf, value)


class _Draws(TorchDispatchMode):
    """Notices whether an operator took numbers from the host's generator."""

    drew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = torch.random.get_rng_state()
        result = func(*args, **(kwargs or {}))
        self.drew |= not torch.equal(before, torch.random.get_rng_state())
        return result


def call_on_cpu(op: Any, arguments: Arguments) -> tuple[Any, bool]:
    """What the operator returns, and whether it makes that from random numbers."""
    result = op(arguments[0], *arguments[1], **arguments[2])
    with torch.no_grad(), _Draws() as mode:  # apart: torch's kernels for conjugate views give other numbers under a mode
        op(arguments[0], *arguments[1], **arguments[2])
    return result, mode.drew
