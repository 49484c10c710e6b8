"""Devices: which one is current, for whom, and what waits for it."""

from __future__ import annotations

from typing import Any

import torch

import anyaccel as acc
from anyaccel.conformance import Context, check

from ._raises import raises


@check
def accelerator_has_no_index(context: Context) -> None:
    """torch.accelerator.current_accelerator: the index is None."""
    device: Any = acc.current_accelerator(check_available=True)
    assert device is not None
    assert device.index is None
    assert acc.is_available()


@check
def index_is_what_was_set(context: Context) -> None:
    """torch.accelerator.set_device_index."""
    other = context.other_device()
    for way in (other, f"{context.type}:{other}", torch.device(context.type, other)):
        acc.set_device_index(0)
        acc.set_device_index(way)
        assert acc.current_device_index() == other
        assert torch.empty(1, device=context.type).device.index == other


@check
def negative_index_changes_nothing(context: Context) -> None:
    """torch.accelerator.set_device_index: no-op for a negative index."""
    acc.set_device_index(context.other_device())
    before = acc.current_device_index()
    acc.set_device_index(-1)
    with acc.device(-1):
        assert acc.current_device_index() == before


@check
def another_type_is_a_value_error(context: Context) -> None:
    """torch.accelerator.set_device_index: the type must match."""
    for call in (acc.set_device_index, acc.device, acc.synchronize, acc.current_stream, acc.memory_allocated):
        with raises(ValueError, match=rf"'cpu'.*'{context.type}'"):
            call("cpu")


@check
def index_out_of_range_is_a_value_error(context: Context) -> None:
    """anyaccel: a wrong index is a ValueError."""
    count = acc.device_count()
    for call in (acc.set_device_index, acc.device, acc.synchronize, acc.current_stream):
        with raises(ValueError, match=f"there is no device {count}"):
            call(count)


@check
def context_restores_the_index(context: Context) -> None:
    """torch.cuda.device."""
    before, other = acc.current_device_index(), context.other_device()
    with acc.device(other), acc.device(before), acc.device(other), acc.device(None):
        assert acc.current_device_index() == other
    assert acc.current_device_index() == before
    with raises(KeyError), acc.device(other):
        raise KeyError
    assert acc.current_device_index() == before


@check
def context_of_a_tensor(context: Context) -> None:
    """torch.cuda.device_of."""
    before, other = acc.current_device_index(), context.other_device()
    tensor = context.tensor(0, device=other)
    for obj, index in ((tensor, other), (tensor.untyped_storage(), other), (torch.zeros(1), before)):
        with acc.device_of(obj):
            assert acc.current_device_index() == index
    assert acc.current_device_index() == before


@check
def index_is_per_thread(context: Context) -> None:
    """torch: the current device is per thread."""
    other = context.other_device()
    with acc.device(other):
        assert context.in_thread(acc.current_device_index) == 0
    context.in_thread(lambda: acc.set_device_index(other))
    assert acc.current_device_index() != other


@check
def state_is_shared_with_torch(context: Context) -> None:
    """anyaccel: torch.accelerator, the device's module and anyaccel share one state."""
    other = context.other_device()
    acc.set_device_index(other)
    assert torch.accelerator.current_device_index() == other
    torch.accelerator.set_device_index(0)
    assert acc.current_device_index() == 0
    module = torch.get_device_module(context.type)
    if hasattr(module, "set_device"):
        module.set_device(other)
        assert acc.current_device_index() == other


@check
def synchronize_waits_for_all_streams(context: Context) -> None:
    """torch.accelerator.synchronize: all streams of the device."""
    context.need_feature("Stream")
    streams = [acc.Stream() for _ in range(3)]
    tensors = [context.tensor(0) for _ in streams]
    for stream, tensor in zip(streams, tensors, strict=True):
        with acc.stream(stream):
            for _ in range(20):
                tensor.add_(1)
    acc.synchronize()
    assert all(stream.query() for stream in streams)
    assert [float(tensor[0]) for tensor in tensors] == [20.0, 20.0, 20.0]


@check
def synchronize_leaves_other_devices_alone(context: Context) -> None:
    """torch.accelerator.synchronize: of no other device, and the current one stays."""
    before, other = acc.current_device_index(), context.other_device()
    tensor, stream = context.tensor(0, device=other), acc.Stream(other)
    with context.hold(stream):
        with acc.stream(stream):
            tensor.add_(1)
        acc.synchronize(before)
        assert acc.current_device_index() == before
        assert not stream.query()
    acc.synchronize(other)
    assert acc.current_device_index() == before
    assert stream.query()


@check
def supported_dtypes_are_true(context: Context) -> None:
    """torch.accelerator.get_device_capability: supported_dtypes allocate and convert, others do not."""
    context.need_feature("get_device_capability")
    supported = acc.get_device_capability()["supported_dtypes"]
    assert torch.float32 in supported
    for dtype in sorted(supported, key=str):
        made = torch.empty(4, dtype=dtype, device=context.type)
        assert made.dtype == dtype
        assert torch.zeros(4, device=context.type).to(dtype).dtype == dtype


@check
def capability_is_the_caller_s_own(context: Context) -> None:
    """anyaccel: torch caches the capability on the argument and shares the dict."""
    context.need_feature("get_device_capability")
    acc.get_device_capability().clear()
    assert acc.get_device_capability()
