"""Puts a fake accelerator of any type where torch's would be."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.backends import fakes
from tests.backends.fakes import CLASSES, Install

from anyaccel.backends import cuda, registry, torchlike, xpu

OWN_OBJECTS = {"cuda": cuda, "xpu": xpu}


def vendor_module(calls: list[str], stream: Any) -> types.SimpleNamespace:
    """The module of a vendor outside torch, with the names of torch.cuda."""
    names = ("init", "is_initialized", "get_device_name", "get_device_properties", "empty_cache", "memory_stats", "memory_allocated")
    names += ("max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats", "mem_get_info")
    names += ("reset_accumulated_memory_stats",)
    module = types.SimpleNamespace(**{name: fakes.recorded(name, getattr(torch.cuda, name), calls) for name in names})
    module.default_stream = lambda index: stream(0, index)
    return module


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Makes torch say that it has an accelerator of a type, and anyaccel look anew."""

    def call(device_type: str, devices: int = 2, **vendor: Any) -> fakes.Accelerator:
        made = CLASSES[device_type]
        type_id = int(getattr(torch._C._autograd.DeviceType, made.type_name_in_torch).value)
        fake = fakes.Accelerator(device_type, type_id, devices)
        for name in ("current_device_index", "set_device_index", "synchronize", "current_stream", "set_stream", "exchange_device"):
            monkeypatch.setattr(made, name, staticmethod(getattr(fake, name)))
        monkeypatch.setattr(made, "restore_device", staticmethod(fake.set_device_index))
        for name in ("memory_stats", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "get_memory_info", "empty_cache"):
            monkeypatch.setattr(torch.accelerator, name, fakes.recorded(name, getattr(torch.accelerator, name), fake.calls))
        monkeypatch.setattr(torch.accelerator, "empty_host_cache", fakes.recorded("empty_host_cache", lambda: None, fake.calls))
        for name in ("isAllocatorInitialized", "getDeviceStats", "getDeviceCapability"):
            name = f"_accelerator_{name}"
            monkeypatch.setattr(torch._C, name, fakes.recorded(name, getattr(torch._C, name), fake.calls))

        stream = fakes.vendor_streams(fake)
        if device_type in ("hpu", "privateuseone"):
            module: Any = vendor_module(fake.calls, fake.stream)
            for name, value in vendor.items():
                setattr(module, name, value) if value is not None else delattr(module, name)
        else:
            real = getattr(torch, device_type)
            extra: dict[str, Any] = {}
            if device_type in ("cuda", "xpu"):
                event = fakes.Event if device_type == "cuda" else fakes.TimingEvent
                extra = {"Stream": stream, "Event": event, "device": lambda index: contextlib.nullcontext()}
            if device_type != "xpu":
                extra["default_stream"] = lambda index: fake.stream(0, index)
            module = fakes.Recorded(real, fake.calls, **extra)
        if device_type in OWN_OBJECTS:
            monkeypatch.setattr(OWN_OBJECTS[device_type], f"_{device_type}", module)
        monkeypatch.setattr(torch, device_type, module, raising=False)
        if device_type == "mps":
            monkeypatch.setattr(torch.backends, "mps", fakes.Recorded(torch.backends.mps, fake.calls))
        monkeypatch.setattr(torchlike.torch, "Stream", _Streams(fake)) if device_type not in ("cuda", "xpu") else None
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(device_type))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: fake.devices)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        torch.get_device_module.cache_clear()  # type: ignore[attr-defined]
        registry.forget()
        return fake

    yield call
    torch.get_device_module.cache_clear()  # type: ignore[attr-defined]
    registry.forget()


class _StreamMeta(type):
    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, torch._C.Stream)


def _Streams(fake: fakes.Accelerator) -> Any:  # noqa: N802 (makes a class)
    """`torch.Stream` as far as the backends use it: new ones come from the fake."""

    class Stream(metaclass=_StreamMeta):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            if len(args) == 3:
                return torch._C.Stream(*args)
            return fake.new_stream(*args, **kwargs)

    return Stream
