"""What is peculiar to a backend."""

from __future__ import annotations

import types

import pytest
import torch
from tests.backends import fakes
from tests.backends.fakes import CLASSES, Install

import anyaccel as acc
from anyaccel.backends import registry


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_the_vendor_s_own_objects_are_handed_out(install: Install, device_type: str) -> None:
    install(device_type)
    module = getattr(torch, device_type)
    assert type(acc.Stream()) is module.Stream
    assert type(acc.Event()) is module.Event


def test_cuda_honours_the_flags(install: Install) -> None:
    install("cuda")
    assert acc.Event(enable_timing=True, blocking=True).flags == (True, True, False)  # type: ignore[attr-defined]
    assert acc.Event(interprocess=True).flags == (False, False, True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_the_priority_of_a_generic_stream_is_found(install: Install, device_type: str) -> None:
    fake = install(device_type)
    assert acc.stream_priority(acc.Stream(priority=-2)) == -2
    assert acc.stream_priority(fake.stream(7, 1)) == 0
    assert acc.stream_priority_range() == (0, -3)


def test_mps_has_numbers_only_for_now(install: Install) -> None:
    install("mps", devices=1)
    assert acc.memory_allocated() == 7
    assert acc.memory_reserved() == 70
    assert acc.get_memory_info() == (930, 1000)
    with pytest.raises(acc.Unsupported, match=r"max_memory_allocated is not supported on 'mps'. Instead: sample"):
        acc.max_memory_allocated()


def test_mps_does_not_pass_its_only_stream_off_as_a_new_one(install: Install) -> None:
    install("mps", devices=1)
    with pytest.raises(acc.Unsupported, match="MPS has one stream"):
        acc.Stream()
    assert acc.default_stream() == acc.current_stream()


def test_mtia_counts_under_other_names(install: Install) -> None:
    install("mtia")
    assert acc.memory_allocated() == 7
    assert acc.max_memory_allocated() == 9
    assert acc.memory_stats() == {"allocated_bytes.all.current": 7, "allocated_bytes.all.peak": 9}


@pytest.mark.parametrize("device_type", ["hpu", "privateuseone"])
def test_what_a_vendor_s_module_lacks_is_unsupported(install: Install, device_type: str) -> None:
    install(device_type, default_stream=None)
    assert not acc.supports("default_stream")
    with pytest.raises(acc.Unsupported) as caught:
        acc.default_stream()
    assert (caught.value.feature, caught.value.backend) == ("default_stream", device_type)


def test_a_vendor_s_flags_are_tried_and_not_believed(install: Install) -> None:
    install("hpu", Event=fakes.TimingEvent)
    assert not acc.supports("Event.blocking")
    with pytest.raises(acc.Unsupported, match=r"Event\.blocking"):
        acc.Event(blocking=True)
    assert acc.Event(enable_timing=True).flags[0]  # type: ignore[attr-defined]
    install("hpu", Event=fakes.Event)
    assert acc.supports("Event.blocking")
    assert acc.Event(blocking=True).flags[1]  # type: ignore[attr-defined]


def test_torch_s_event_drops_flags_so_it_does_not_count(install: Install) -> None:
    install("privateuseone")
    assert not acc.supports("Event.interprocess")
    with pytest.raises(acc.Unsupported):
        acc.Event(interprocess=True)


def test_attributes_of_streams_are_tried_and_not_believed(install: Install) -> None:
    install("privateuseone")
    assert hasattr(torch._C.Stream, "native_handle")
    assert not acc.supports("Stream.native_handle")  # there is no device to ask


def test_a_vendor_s_allocator_that_torch_asserts_on_is_asked_through_its_module(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install("privateuseone")

    def internal_assert() -> bool:
        raise RuntimeError("Allocator for privateuseone is not a DeviceAllocator.")

    monkeypatch.setattr(torch._C, "_accelerator_isAllocatorInitialized", internal_assert)
    registry.forget()
    assert acc.memory_allocated() == 7
    assert acc.get_memory_info() == (30, 100)
    acc.empty_cache()
    assert fake.calls == ["memory_allocated", "mem_get_info", "empty_cache"]


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_before_torch_2_9_the_module_counts(install: Install, monkeypatch: pytest.MonkeyPatch, device_type: str) -> None:
    fake = install(device_type)
    monkeypatch.setattr(CLASSES[device_type], "has_device_allocator", False)
    assert acc.memory_allocated() == 7
    acc.reset_peak_memory_stats()
    assert fake.calls == ["memory_stats", "reset_peak_memory_stats"]


def test_properties_have_the_same_fields_whatever_the_vendor_calls_them(install: Install) -> None:
    install("cuda")
    raw = types.SimpleNamespace(name="A", total_memory=10, multi_processor_count=3, major=9, minor=0, uuid=object())
    read = registry.choose().read_properties(raw)  # type: ignore[attr-defined]
    assert (read.compute_units, read.capability, read.vendor, read.raw) == (3, (9, 0), None, raw)
    assert isinstance(read.uuid, str)
    assert acc.get_device_properties().vendor == "Fake"


def test_one_statistic_is_read_without_flattening_all(install: Install) -> None:
    fake = install("cuda")
    assert acc.max_memory_reserved(1) == 90
    assert fake.calls == ["_accelerator_isAllocatorInitialized", "_accelerator_getDeviceStats"]


def test_capabilities_are_the_caller_s_own(install: Install) -> None:
    install("cuda")
    first = acc.get_device_capability()
    first.clear()
    assert acc.get_device_capability() == {"supported_dtypes": {torch.float32}}
