"""Tensors of every form go through operators as on the CPU: strides, views, memory that overlaps, `out=`, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.operator_samples import Mover, tensors_of, to_cpu
from torch.testing import assert_close

import anyaccel as acc

pytestmark = pytest.mark.sim


@pytest.fixture(autouse=True)
def healthy() -> Iterator[None]:
    yield
    acc.sim.reset_errors()
    torch.accelerator.synchronize()


FORMS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(3, 4),
    "transposed": lambda: torch.randn(4, 3).t(),
    "every other": lambda: torch.randn(6, 8)[::2, 1::2],
    "at an offset": lambda: torch.randn(5, 4)[2:],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels last in three dimensions": lambda: torch.randn(2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d),
    "no elements": lambda: torch.randn(0, 4),
    "no elements in the middle": lambda: torch.randn(3, 0, 4),
    "no dimensions": lambda: torch.randn(()),
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "expanded from one": lambda: torch.randn(()).expand(3, 4),
    "overlapping": lambda: torch.randn(8).as_strided((3, 4), (2, 1)),
    "conjugate": lambda: torch.randn(3, 4, dtype=torch.complex64).conj(),
    "conjugate and transposed": lambda: torch.randn(4, 3, dtype=torch.complex64).mH,
    "negative": lambda: torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    "real part": lambda: torch.randn(3, 4, dtype=torch.complex64).real,
}

OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + x,
    "multiply by a number": lambda x: x * 2.5,
    "exp": torch.exp,
    "clone": torch.clone,
    "contiguous": lambda x: x.contiguous(),
    "reshape": lambda x: x.reshape(-1),
    "sum": torch.sum,
    "sum over the last dimension": lambda x: x.sum(-1) if x.dim() else x.sum(),
    "cumsum": lambda x: x.cumsum(0),
    "softmax": lambda x: x.abs().softmax(-1),
    "matmul": lambda x: x @ x.mT if x.dim() > 1 else x,
    "cat": lambda x: torch.cat([x, x]) if x.dim() else x,
    "where": lambda x: torch.where(x == x, x, 0),
    "to another type": lambda x: x.to(torch.complex128),
    "empty like": lambda x: torch.zeros_like(x),
    "flip": lambda x: x.flip(0) if x.dim() else x,
    "index": lambda x: x[torch.tensor([0, 0], device=x.device)] if x.dim() and x.shape[0] else x,
    "stack": lambda x: torch.stack([x, x], -1),
    "copy to": lambda x: torch.zeros(x.shape, dtype=x.dtype, device=x.device).copy_(x),
    "to the host and back": lambda x: x.cpu().to(x.device, copy=True),
}


def steps(x: torch.Tensor) -> list[int]:
    """Strides, where they mean something."""
    return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1] if x.numel() else []


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS.keys())
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_results_have_the_cpus_values_and_strides(form: Callable[[], torch.Tensor], operator: Callable[[torch.Tensor], Any]) -> None:
    x = form()
    y = Mover().move(x)
    assert (y.stride(), y.storage_offset(), y.is_conj(), y.is_neg()) == (x.stride(), x.storage_offset(), x.is_conj(), x.is_neg())
    expected, result = operator(x), operator(y)
    assert_close(to_cpu(result), expected)
    assert steps(result) == steps(expected)
    assert_close(to_cpu(y), x)  # and the argument is as it was


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "a row": lambda x: x[1].mul_(2),
    "a column": lambda x: x[:, 1].zero_(),
    "transposed": lambda x: x.t().add_(torch.arange(3.0, device=x.device)[None, :3].expand(4, 3)),
    "every other": lambda x: x[:, ::2].neg_(),
    "a diagonal": lambda x: x.diagonal().fill_(7),
    "by an index": lambda x: x.index_fill_(1, torch.tensor([0, 2], device=x.device), -1),
    "by a mask": lambda x: x.__setitem__(x > 0, 0.0),
    "by slices": lambda x: x.__setitem__((slice(None), slice(1, 3)), x[:, :2].clone()),
    "flattened": lambda x: x.view(-1)[3:9].exp_(),
    "sorted": lambda x: x.copy_(x.sort(-1).values),
    "a view of a view": lambda x: x[1:].t()[1:].unsqueeze(0).squeeze(0).sub_(3),
    "unfolded": lambda x: x.unfold(1, 2, 2).mul_(3),
    "its parts": lambda x: [part.add_(i) for i, part in enumerate(x.split(1))],
    "the sum of views": lambda x: torch.add(x[0], x[1], out=x[2]),
}


@pytest.mark.parametrize("operator", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_writing_to_a_view_writes_to_its_base(operator: Callable[[torch.Tensor], Any]) -> None:
    x = torch.randn(3, 4)
    y = x.to("sim")
    operator(x)
    operator(y)
    assert_close(y.cpu(), x)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_writing_through_bits_resolves_them(part: str) -> None:
    x = torch.randn(4, dtype=torch.complex64)
    y = x.to("sim")
    for z in (x, y):
        getattr(z.conj(), part).add_(1)
        z.conj().mul_(2j)
        z[1:].conj().copy_(z[:-1].clone())
    assert_close(y.cpu(), x)


# `out=` -------------------------------------------------------------------------------------------------------------------------

OUT: dict[str, tuple[Callable[..., Any], int]] = {
    "add": (lambda x, out: torch.add(x, x, out=out), 1),
    "matmul": (lambda x, out: torch.matmul(x, x, out=out), 1),
    "sum": (lambda x, out: torch.sum(x, 0, out=out), 1),
    "max": (lambda x, out: torch.max(x, 0, out=out), 2),
    "sort": (lambda x, out: torch.sort(x, out=out), 2),
    "cat": (lambda x, out: torch.cat([x, x], out=out), 1),
    "nonzero": (lambda x, out: torch.nonzero(x, out=out), 1),
    "masked_select": (lambda x, out: torch.masked_select(x, x > 0, out=out), 1),
    "index_select": (lambda x, out: torch.index_select(x, 0, torch.tensor([2, 0], device=x.device), out=out), 1),
    "arange": (lambda x, out: torch.arange(5, out=out), 1),
    "svd": (lambda x, out: torch.linalg.svd(x, out=out), 3),
    "histc": (lambda x, out: torch.histc(x, 4, 0, 1, out=out), 1),
    "fft": (lambda x, out: torch.fft.fft(x, out=out), 1),
}


def outputs_for(operator: Callable[..., Any], count: int, x: torch.Tensor, shape: tuple[int, ...]) -> Any:
    """Tensors of the right types and a given shape."""
    probe = [torch.empty(0) for _ in range(count)]
    for candidates in ([torch.float32] * 3, [torch.float32, torch.int64], [torch.int64], [torch.complex64]):
        probe = [torch.empty(0, dtype=dtype) for dtype in candidates[:count]]
        try:
            operator(x, out=probe[0] if count == 1 else tuple(probe))
        except RuntimeError:
            continue
        break
    made = tuple(torch.full(shape, 9, dtype=y.dtype) for y in probe)
    return made[0] if count == 1 else made


@pytest.mark.parametrize("shape", [(0,), (2,), (2, 3)])
@pytest.mark.parametrize(("operator", "count"), OUT.values(), ids=OUT.keys())
def test_out_of_another_size_is_resized_at_the_call_as_on_the_cpu(operator: Callable[..., Any], count: int, shape: Any) -> None:
    x = torch.randn(3, 3)
    out = outputs_for(operator, count, x, shape)
    given = Mover().move(out)
    with warnings.catch_warnings(record=True) as of_cpu:
        warnings.simplefilter("always")
        operator(x, out=out)
    with warnings.catch_warnings(record=True) as of_sim:
        warnings.simplefilter("always")
        operator(x.to("sim"), out=given)
    assert [y.shape for y in tensors_of(given)] == [y.shape for y in tensors_of(out)]
    assert [steps(y) for y in tensors_of(given)] == [steps(y) for y in tensors_of(out)]
    assert_close(to_cpu(given), out)
    assert {"resized" in str(w.message) for w in of_sim} == {"resized" in str(w.message) for w in of_cpu}


@pytest.mark.parametrize(("operator", "count"), OUT.values(), ids=OUT.keys())
def test_out_of_another_type_is_refused_at_the_call_as_on_the_cpu(operator: Callable[..., Any], count: int) -> None:
    x = torch.randn(3, 3)
    out = tuple(torch.empty(0, dtype=torch.bool) for _ in range(count))
    out = out[0] if count == 1 else out
    given = Mover().move(out)
    try:
        operator(x, out=out)
    except Exception as error:
        with pytest.raises(type(error)):
            operator(x.to("sim"), out=given)
    else:  # any number is true or false
        operator(x.to("sim"), out=given)
        assert_close(to_cpu(given), out)


@pytest.mark.parametrize("shape", [(), (3, 3)])
def test_a_kernel_may_resize_its_output_midway(shape: tuple[int, ...]) -> None:
    x = torch.randn(3, 3)
    out = torch.empty(shape, device="sim")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch._C._nn.mse_loss(x.to("sim"), -x.to("sim"), 1, out=out)
        torch.nn.functional.mse_loss(x.to("sim"), -x.to("sim"))
        torch.accelerator.synchronize()
    assert_close(out.cpu(), torch.nn.functional.mse_loss(x, -x))
    assert len(warned) == (shape != ())  # at the call, and nobody else


def test_out_on_the_host_is_refused() -> None:
    x = torch.ones(3, device="sim")
    with pytest.raises(RuntimeError, match="same device"):
        torch.add(x, x, out=torch.empty(3))


def test_out_with_strides_of_its_own_keeps_them() -> None:
    x = torch.randn(3, 4)
    out = torch.zeros(4, 3, device="sim").t()
    torch.exp(x.to("sim"), out=out)
    assert out.stride() == (1, 3)
    assert_close(out.cpu(), x.exp())


OVERLAPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "out is a part of the argument": lambda x: torch.add(x[:-1], 1, out=x[1:]),
    "out is expanded": lambda x: torch.add(x, 1, out=x[:1].expand(6)),
    "in place on an expanded tensor": lambda x: x[:1].expand(6).add_(1),
    "a copy to what overlaps it": lambda x: x[1:].copy_(x[:-1]),
    "a gather into its argument": lambda x: torch.gather(x, 0, torch.arange(6, device=x.device), out=x),
    "a sum of what it writes": lambda x: torch.cumsum(x[:-1], 0, out=x[1:]),
}


@pytest.mark.parametrize("call", OVERLAPS.values(), ids=OVERLAPS.keys())
def test_memory_that_overlaps_is_refused_at_the_call_or_taken_as_on_the_cpu(call: Callable[[torch.Tensor], Any]) -> None:
    x = torch.arange(6.0)
    y = x.to("sim")
    try:
        call(x)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="memory location"):
            call(y)
    else:
        call(y)
    assert_close(y.cpu(), x)


# What changes after the call ----------------------------------------------------------------------------------------------------

AFTERWARDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "transposed in place": lambda x: x.t_(),
    "given other data": lambda x: setattr(x, "data", torch.zeros(7, device=x.device)),
    "emptied": lambda x: x.untyped_storage().resize_(0),
    "resized": lambda x: x.resize_(1),
    "set to nothing": lambda x: x.set_(),
    "squeezed": lambda x: x.unsqueeze_(0),
    "strided otherwise": lambda x: x.as_strided_((2,), (1,)),
    "filled": lambda x: x.fill_(-1),
    "deleted": lambda x: None,
}


@pytest.mark.parametrize("change", AFTERWARDS.values(), ids=AFTERWARDS.keys())
@pytest.mark.parametrize("operator", [lambda x: x * 2, lambda x: x @ x.mT, lambda x: x.sort(-1).values, lambda x: torch.cat([x, x])])
def test_what_becomes_of_an_argument_after_the_call_does_not_matter(operator: Any, change: Callable[[torch.Tensor], Any]) -> None:
    x = torch.randn(3, 4)
    y = x.to("sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(torch.accelerator.current_stream()):
        result = operator(y)
        change(y)
        del y
    assert_close(result.cpu(), operator(x))


@pytest.mark.parametrize("change", AFTERWARDS.values(), ids=AFTERWARDS.keys())
def test_what_becomes_of_a_result_after_the_call_does_not_matter(change: Callable[[torch.Tensor], Any]) -> None:
    x = torch.randn(3, 4)
    y = x.to("sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(torch.accelerator.current_stream()):
        result = y * 2
        twice = result * 2
        change(result)
        del result
    assert_close(twice.cpu(), x * 4)


# Devices and layouts ------------------------------------------------------------------------------------------------------------

MIXED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda x, y: x + y,
    "add, the other way": lambda x, y: y + x,
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: torch.cat([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "in place": lambda x, y: x.add_(y),
    "in place on the other": lambda x, y: y.add_(x),
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "linear": lambda x, y: torch.nn.functional.linear(x, y),
    "linear's bias": lambda x, y: torch.nn.functional.linear(x, x, y[0]),
    "convolution": lambda x, y: torch.conv1d(x[None], y[:, :, None]),
    "loss": lambda x, y: torch.nn.functional.mse_loss(x, y),
    "gather": lambda x, y: x.gather(0, y.long()),
    "index_select": lambda x, y: x.index_select(0, y[0].long()),
    "embedding": lambda x, y: torch.nn.functional.embedding(y.long(), x),
    "layer norm": lambda x, y: torch.nn.functional.layer_norm(x, (3,), y[0]),
    "batch norm": lambda x, y: torch.nn.functional.batch_norm(x, y[0], y[1], training=True),
    "clamp": lambda x, y: x.clamp(y),
    "foreach": lambda x, y: torch._foreach_add([x], [y]),
    "masked fill": lambda x, y: x.masked_fill(y > 0, 1.0),
    "cross entropy": lambda x, y: torch.nn.functional.cross_entropy(x, y[0].long()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("other", ["cpu", "sim:1"])
@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED.keys())
def test_tensors_of_several_devices_are_refused_at_the_call(call: Callable[[torch.Tensor, torch.Tensor], Any], other: str) -> None:
    x, y = torch.ones(3, 3, device="sim"), torch.ones(3, 3, device=other)
    with pytest.raises(RuntimeError, match=r"[Ee]xpected all tensors to be on the same device"):
        call(x, y)


HOST_TENSORS: dict[str, Callable[[Any, Any], Any]] = {
    "a number without dimensions": lambda x, host: x * host(torch.tensor(2.5)),
    "on the left": lambda x, host: host(torch.tensor(2.5)) - x,
    "in place": lambda x, host: x.clone().add_(host(torch.tensor(2))),
    "in where": lambda x, host: torch.where(x > 0, x, host(torch.tensor(0.5))),
    "a fill value": lambda x, host: x.clone().fill_(host(torch.tensor(3.0))),
    "a value to put": lambda x, host: x.clone().index_put_((torch.tensor([1], device=x.device),), host(torch.tensor(9.0))),
    "an index": lambda x, host: x[host(torch.tensor([2, 0]))],
    "two indices": lambda x, host: x[host(torch.tensor([2, 0])), host(torch.tensor([1, 1]))],
    "a mask": lambda x, host: x[host(torch.tensor([True, False, True]))],
    "an index to put at": lambda x, host: x.clone().index_put_((host(torch.tensor([1])),), torch.tensor(9.0, device=x.device)),
    "set by an index": lambda x, host: (y := x.clone(), y.__setitem__(host(torch.tensor([1])), 4.0))[0],
}


@pytest.mark.parametrize("call", HOST_TENSORS.values(), ids=HOST_TENSORS.keys())
def test_numbers_and_indices_may_come_from_the_host(call: Callable[[Any, Any], Any]) -> None:
    x = torch.randn(3, 3)
    result = call(x.to("sim"), lambda host: host)
    assert result.device.type == "sim"
    assert_close(result.cpu(), call(x, lambda host: host))


OTHER_LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "sparse columns": lambda: torch.eye(3).to_sparse_csc(),
    "sparse blocks": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
    "quantized by channel": lambda: torch.quantize_per_channel(torch.ones(3, 2), torch.ones(3), torch.zeros(3), 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}

MADE_ON_THE_SIM: dict[str, Callable[[], Any]] = {
    "made sparse": lambda: torch.eye(3, device="sim").to_sparse(),
    "made sparse by rows": lambda: torch.eye(3, device="sim").to_sparse_csr(),
    "a sparse tensor of parts": lambda: torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1), (3,), device="sim"),
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="sim"),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3, device="sim"), 1.0, 0, torch.qint8),
    "quantized by channel": lambda: torch.quantize_per_channel(
        torch.ones(3, 2, device="sim"), torch.ones(3, device="sim"), torch.zeros(3, device="sim"), 0, torch.qint8
    ),
    "empty and quantized": lambda: torch._empty_affine_quantized((3,), scale=1.0, zero_point=0, dtype=torch.qint8, device="sim"),
    "a dense one with a quantized type": lambda: torch.empty(3, dtype=torch.qint8, device="sim"),
    "empty and sparse": lambda: torch.empty(3, layout=torch.sparse_coo, device="sim"),
    "a sparse product": lambda: torch.sparse.mm(torch.eye(3).to_sparse(), torch.ones(3, 3, device="sim")),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS.keys())
def test_tensors_of_other_layouts_do_not_move_here(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(NotImplementedError, match=r"sim has no tensors.*[Uu]se a dense tensor"):
        make().to("sim")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", MADE_ON_THE_SIM.values(), ids=MADE_ON_THE_SIM.keys())
def test_tensors_of_other_layouts_are_not_made_here(make: Callable[[], Any]) -> None:
    with pytest.raises(NotImplementedError, match="sim has no tensors"):
        made = make()
        made + made  # a nested tensor is torch's own to make, without asking anybody


@pytest.mark.filterwarnings("ignore")
def test_jagged_tensors_are_made_of_dense_ones_and_work() -> None:
    made = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).to("sim")
    assert [x.tolist() for x in (made * 2).unbind()] == [[2, 2], [2, 2, 2]]
