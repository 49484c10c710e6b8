"""Hot operators, each as a call on inputs that one shape describes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Inputs:
    """What the operators take; for each of them another shape (a, b, c) makes shapes that it has not seen."""

    x: Tensor  # (a, b, c)
    y: Tensor  # (a, b, c)
    z: Tensor  # (a, c, b)
    mask: Tensor  # (a, b, c)
    rows: Tensor  # (a * b, c)
    columns: Tensor  # (c, b)
    weight: Tensor  # (b, c)
    bias: Tensor  # (b)
    gain: Tensor  # (c)

    @classmethod
    def of(cls, shape: tuple[int, int, int], device: str) -> Inputs:
        a, b, c = shape
        shapes = [shape, shape, (a, c, b), shape, (a * b, c), (c, b), (b, c), (b,), (c,)]
        x, y, z, mask, *others = (torch.rand(each, device=device) for each in shapes)
        return cls(x, y, z, mask > 0.5, *others)


OPERATORS: dict[str, Callable[[Inputs], object]] = {
    "x + y": lambda i: i.x + i.y,
    "x * 2": lambda i: i.x * 2,
    "x.mul_(1)": lambda i: i.x.mul_(1),
    "x > y": lambda i: i.x > i.y,
    "where": lambda i: torch.where(i.mask, i.x, i.y),
    "relu": lambda i: torch.relu(i.x),
    "gelu": lambda i: functional.gelu(i.x),
    "exp": lambda i: torch.exp(i.x),
    "sum": lambda i: i.x.sum(),
    "mean of a dimension": lambda i: i.x.mean(-1),
    "argmax of a dimension": lambda i: i.x.argmax(-1),
    "matmul": lambda i: i.rows @ i.columns,
    "bmm": lambda i: torch.bmm(i.x, i.z),
    "addmm": lambda i: torch.addmm(i.bias, i.rows, i.columns),
    "linear": lambda i: functional.linear(i.x, i.weight, i.bias),
    "softmax": lambda i: torch.softmax(i.x, -1),
    "layer_norm": lambda i: functional.layer_norm(i.x, i.gain.shape, i.gain, i.gain),
    "transpose and copy": lambda i: i.x.transpose(0, 1).contiguous(),
    "slice and copy": lambda i: i.y.copy_(i.x[:, :, :1]),
    "cat": lambda i: torch.cat([i.x, i.y]),
    "_foreach_add of 3": lambda i: torch._foreach_add([i.x, i.y, i.z], 1),
    "_foreach_mul_ of 3": lambda i: torch._foreach_mul_([i.x, i.y, i.z], 1),
}
