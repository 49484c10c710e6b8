"""Operators give what the CPU gives: shapes, types, errors, aliases."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

import anyaccel as acc

pytestmark = pytest.mark.sim


def on_sim(*values):
    return [value.detach().to("sim").requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value for value in values]


def same(operator, *values) -> None:
    expected = operator(*[value.clone() if isinstance(value, torch.Tensor) else value for value in values])
    result = operator(*on_sim(*values))
    assert_close([x.cpu() for x in result] if isinstance(result, (tuple, list)) else result.cpu(), expected, equal_nan=True)


CASES = {
    "add": (torch.add, torch.randn(3, 4), torch.randn(4)),
    "scalar on the host": (torch.mul, torch.randn(3), torch.tensor(2.5)),
    "type promotion": (torch.add, torch.arange(3), 0.5),
    "matmul": (torch.matmul, torch.randn(2, 3, 4), torch.randn(4, 5)),
    "transposed": (lambda x: x.t() + 1, torch.randn(3, 4)),
    "expanded": (lambda x: x.expand(5, 3) * 2, torch.randn(3)),
    "empty": (lambda x: x + 1, torch.empty(0, 3)),
    "no dimensions": (lambda x: x.exp(), torch.tensor(1.0)),
    "channels last": (lambda x: x.to(memory_format=torch.channels_last).relu(), torch.randn(2, 3, 4, 4)),
    "max with indices": (lambda x: tuple(x.max(dim=1)), torch.randn(3, 4)),
    "sort": (lambda x: tuple(x.sort(descending=True)), torch.randn(7)),
    "cat": (lambda x, y: torch.cat([x, y]), torch.randn(2, 3), torch.randn(4, 3)),
    "stack": (lambda x, y: torch.stack([x, y]), torch.randn(3), torch.randn(3)),
    "index": (lambda x, i: x[i, :2], torch.randn(5, 4), torch.tensor([3, 0, 3])),
    "index with a mask": (lambda x: x[x > 0], torch.randn(20)),
    "index put": (lambda x, i: x.index_put_((i,), torch.tensor(9.0, device=x.device)), torch.zeros(5), torch.tensor([1, 3])),
    "nonzero": (torch.nonzero, torch.tensor([0, 1, 0, 2])),
    "unique": (torch.unique, torch.tensor([3, 1, 3, 2])),
    "complex and conj": (lambda x: (x.conj() @ x).conj(), torch.randn(3, 3, dtype=torch.complex64)),
    "negative view": (lambda x: x.conj().imag + 1, torch.randn(3, dtype=torch.complex64)),
    "bfloat16": (lambda x: (x @ x).softmax(-1), torch.randn(4, 4, dtype=torch.bfloat16)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, (4,)), torch.randn(3, 4)),
    "layer norm in bfloat16": (lambda x: torch.nn.functional.layer_norm(x, (4,)), torch.randn(3, 4, dtype=torch.bfloat16)),
    "batch norm in eval": (
        lambda x, m, v: torch.nn.functional.batch_norm(x, m, v),
        torch.randn(3, 4),
        torch.randn(4),
        torch.rand(4),
    ),
    "convolution": (lambda x, w, b: torch.conv2d(x, w, b, padding=1), torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)),
    "transposed convolution": (
        lambda x, w: torch.conv_transpose2d(x, w, stride=2),
        torch.randn(2, 3, 5, 5),
        torch.randn(3, 4, 3, 3),
    ),
    "convolution in one dimension": (torch.conv1d, torch.randn(2, 3, 8), torch.randn(4, 3, 3)),
    "pooling": (lambda x: torch.nn.functional.max_pool2d(x, 2), torch.randn(2, 3, 8, 8)),
    "embedding": (lambda w, i: torch.nn.functional.embedding(i, w), torch.randn(7, 3), torch.tensor([[1, 2], [6, 0]])),
    "cross entropy": (torch.nn.functional.cross_entropy, torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])),
    "attention": (
        torch.nn.functional.scaled_dot_product_attention,
        torch.randn(2, 3, 5, 4),
        torch.randn(2, 3, 5, 4),
        torch.randn(2, 3, 5, 4),
    ),
    "unfold": (lambda x: x.unfold(0, 3, 2) * 1, torch.randn(9)),
    "foreach": (lambda x, y: torch._foreach_add([x, y], [y, x]), torch.randn(3), torch.randn(3)),
    "a kernel that conjugates by a bit": (
        lambda x, y, b: torch.linalg.lu_solve(x, y, b, left=False),
        *torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64)),
        torch.randn(4, 3, dtype=torch.complex64),
    ),
    "svd": (lambda x: torch.linalg.svdvals(x), torch.randn(4, 3)),
    "fft": (torch.fft.fft, torch.randn(8)),
    "cumsum": (lambda x: x.cumsum(0), torch.randn(8)),
    "histogram": (lambda x: torch.histc(x, 4, 0, 1), torch.rand(20)),
    "where": (lambda x: torch.where(x > 0, x, 0.0), torch.randn(8)),
    "masked fill": (lambda x: x.masked_fill(x > 0, 1.5), torch.randn(8)),
    "scatter": (lambda x, i: x.scatter_add(0, i, torch.ones_like(x)), torch.zeros(4), torch.tensor([0, 0, 3, 1])),
    "one hot": (lambda i: torch.nn.functional.one_hot(i, 4), torch.tensor([0, 3, 1])),
    "roll": (lambda x: x.roll(2), torch.arange(5)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_results_equal_the_cpus(case) -> None:
    same(*case)


GRADIENTS = {
    "linear": (torch.nn.functional.linear, (3, 4), (5, 4), (5,)),
    "convolution": (lambda x, w, b: torch.conv2d(x, w, b), (2, 3, 6, 6), (4, 3, 3, 3), (4,)),
    "layer norm": (lambda x, w, b: torch.nn.functional.layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)),
    "softmax": (lambda x: x.softmax(-1), (3, 4)),
    "attention": (torch.nn.functional.scaled_dot_product_attention, (1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)),
    "views": (lambda x: x[1:, ::2].reshape(-1) * 2, (3, 4)),
    "gelu": (torch.nn.functional.gelu, (3, 4)),
}


@pytest.mark.parametrize("case", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_gradients_equal_the_cpus(case) -> None:
    operator, *shapes = case
    values = [torch.randn(shape, requires_grad=True) for shape in shapes]
    expected = torch.autograd.grad(operator(*values).square().sum(), values)
    moved = on_sim(*values)
    result = torch.autograd.grad(operator(*moved).square().sum(), moved)
    assert_close([x.cpu() for x in result], list(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_networks_equal_the_cpus(kind) -> None:
    cpu = kind(3, 5, num_layers=2)
    sim = kind(3, 5, num_layers=2)
    sim.load_state_dict(cpu.state_dict())
    sim.to("sim")
    x = torch.randn(4, 2, 3, requires_grad=True)
    y = x.detach().to("sim").requires_grad_()
    expected, result = cpu(x), sim(y)
    assert_close(result[0].cpu(), expected[0])
    expected[0].square().sum().backward()
    result[0].square().sum().backward()
    assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(sim.parameters(), cpu.parameters(), strict=True):
        assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_batch_norm_updates_its_statistics() -> None:
    cpu = torch.nn.BatchNorm1d(4)
    sim = torch.nn.BatchNorm1d(4).to("sim")
    x = torch.randn(8, 4)
    assert_close(sim(x.to("sim")).cpu(), cpu(x))
    assert_close(sim.running_mean.cpu(), cpu.running_mean)


REFUSED = {
    "shapes that do not broadcast": lambda d: torch.ones(3, device=d) + torch.ones(4, device=d),
    "matmul of other shapes": lambda d: torch.ones(3, 4, device=d) @ torch.ones(3, 4, device=d),
    "a dimension that is not there": lambda d: torch.ones(3, device=d).sum(4),
    "a dtype that the operator has not": lambda d: torch.linalg.svdvals(torch.ones(3, 3, dtype=torch.int64, device=d)),
    "in place on an expanded tensor": lambda d: torch.ones(1, device=d).expand(3).add_(1),
    "overlapping copy": lambda d: (lambda x: x[1:].copy_(x[:-1]))(torch.ones(4, device=d)),
    "out of another type": lambda d: torch.add(torch.ones(3, device=d), 1.5, out=torch.ones(3, dtype=torch.int64, device=d)),
    "a view that is none": lambda d: torch.ones(3, 4, device=d).t().view(12),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_bad_arguments_raise_the_cpus_exception_at_the_call(call) -> None:
    with pytest.raises((RuntimeError, IndexError, NotImplementedError)) as expected:
        call("cpu")
    with pytest.raises(type(expected.value)):
        call("sim")
    torch.accelerator.synchronize()  # and the device is well


def test_tensors_on_two_devices_are_refused() -> None:
    x = torch.ones(3, device="sim")
    for other in (torch.ones(3), torch.ones(3, device="sim:1")):
        with pytest.raises(RuntimeError, match=r"same device.*sim:0"):
            x + other


def test_a_cpu_scalar_is_read_at_the_call() -> None:
    x = torch.ones(3, device="sim")
    scalar = torch.tensor(2.0)
    torch.accelerator.synchronize()
    with acc.sim.hold(torch.accelerator.current_stream()):
        y = x * scalar
        scalar.fill_(100)
    assert y.tolist() == [2, 2, 2]


def test_out_is_resized_at_the_call() -> None:
    x = torch.ones(3, device="sim")
    out = torch.empty(0, device="sim")
    assert torch.add(x, x, out=out) is out
    assert out.tolist() == [2, 2, 2]
    with pytest.warns(UserWarning, match="resized"):
        torch.add(x, x, out=torch.empty(2, device="sim"))


def test_what_changes_right_after_a_call_does_not_reach_the_task() -> None:
    x = torch.arange(6.0, device="sim").reshape(2, 3)
    torch.accelerator.synchronize()
    with acc.sim.hold(torch.accelerator.current_stream()):
        y = x * 2
        x.t_()
        z = y + 1
        y.data = torch.zeros(1, device="sim")
        w = z + 1
        z.untyped_storage().resize_(0)
    assert w.tolist() == [[2, 4, 6], [8, 10, 12]]


def test_views_share_memory() -> None:
    x = torch.zeros(2, 3, device="sim")
    x.view(-1)[4] = 5
    x.t()[0, 1] = 7
    x.as_strided((1,), (1,), 2).fill_(9)
    assert x.tolist() == [[0, 0, 9], [7, 5, 0]]


def test_set_and_resize_keep_what_was_there() -> None:
    x = torch.zeros(4, device="sim")
    torch.accelerator.synchronize()
    with acc.sim.hold(torch.accelerator.current_stream()):  # what is not there yet is kept as well
        x.copy_(torch.arange(4.0, device="sim"))
        x.resize_(2, 4)
    assert x[0].tolist() == [0, 1, 2, 3]
    y = torch.empty(0, device="sim")
    y.set_(x.untyped_storage(), 1, (2,), (1,))
    assert y.tolist() == [1, 2]
    y.set_()
    assert y.numel() == 0 and y.device.type == "sim"


def test_deterministic_mode_fills_fresh_memory() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(4, device="sim").isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_change_of_the_default_dtype_is_noticed() -> None:
    x = torch.ones(3, dtype=torch.int64, device="sim")
    assert torch.sqrt(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.sqrt(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


OTHER_LAYOUTS = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed sparse": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.filterwarnings("ignore")  # torch warns of these layouts in ways of its own
@pytest.mark.parametrize("make", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS.keys())
def test_tensors_of_other_layouts_are_refused_clearly(make) -> None:
    with pytest.raises(NotImplementedError, match="sim has no"):
        make().to("sim").to_dense()


BAD_CONVOLUTIONS = {
    "a weight on the host": lambda: torch.ones(1, 2, 2, 2),
    "a weight on another device": lambda: torch.ones(1, 2, 2, 2, device="sim:1"),
    "a weight of another type": lambda: torch.ones(1, 2, 2, 2, dtype=torch.float64, device="sim"),
}


@pytest.mark.parametrize("weight", BAD_CONVOLUTIONS.values(), ids=BAD_CONVOLUTIONS.keys())
def test_convolution_refuses_what_does_not_fit(weight) -> None:
    with pytest.raises(RuntimeError, match=r"same device|should be the same"):
        torch.conv2d(torch.ones(1, 2, 4, 4, device="sim"), weight())
    torch.accelerator.synchronize()


@pytest.mark.parametrize("operator", [torch.max, torch.min, torch.argmax])
def test_the_largest_of_nothing_is_refused_as_on_the_cpu(operator) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        operator(torch.ones(0))
    with pytest.raises(type(expected.value)):
        operator(torch.ones(0, device="sim"))


BAD_DESTINATIONS = {
    "from the host": lambda: torch.zeros(1, device="sim").expand(4).copy_(torch.ones(4)),
    "from pinned memory": lambda: torch.zeros(1, device="sim").expand(4).copy_(torch.ones(4).pin_memory(), non_blocking=True),
    "to the host": lambda: torch.zeros(1).expand(4).copy_(torch.ones(4, device="sim")),
    "to another device": lambda: torch.zeros(1, device="sim:1").expand(4).copy_(torch.ones(4, device="sim")),
}


@pytest.mark.parametrize("copy", BAD_DESTINATIONS.values(), ids=BAD_DESTINATIONS.keys())
def test_a_destination_that_overlaps_itself_is_refused_at_the_call(copy) -> None:
    with pytest.raises(RuntimeError, match="memory location"):
        copy()
    torch.accelerator.synchronize()


@pytest.mark.parametrize("left", [0, 16])
@pytest.mark.parametrize("use", [lambda x: x.add_(1), lambda x: x.cpu(), lambda x: x.clone(), lambda x: x.copy_(torch.ones(64))])
def test_a_storage_that_is_too_small_is_told(use, left: int) -> None:
    x = torch.ones(64, device="sim")
    x.untyped_storage().resize_(left)
    with pytest.raises(RuntimeError, match="storage"):
        use(x)
    torch.accelerator.synchronize()


def test_a_custom_operator_whose_meta_kernel_is_wrong_is_told() -> None:
    with torch.library._scoped_library("anyaccel_tests", "FRAGMENT") as library:
        library.define("wrong(Tensor x) -> Tensor")
        library.impl("wrong", lambda x: x.new_ones(5), "CPU")
        library.impl("wrong", lambda x: x.new_empty(3), "Meta")
        torch.ops.anyaccel_tests.wrong(torch.ones(2, device="sim"))
        with pytest.raises(torch.AcceleratorError, match="Meta kernel"):
            torch.accelerator.synchronize()
        acc.sim.reset_errors()
