"""What the backends call exists in this torch and takes what they give it.

The fakes hold each recorded call against the real signature; here are the classes and the functions of C that they replace whole.
"""

from __future__ import annotations

import pytest
import torch
from tests.backends import fakes


@pytest.mark.parametrize("module", [torch.cuda, torch.xpu])
def test_stream_classes(module: object) -> None:
    made = module.Stream  # type: ignore[attr-defined]
    fakes.accepts(made, device=0, priority=-1)
    fakes.accepts(made.__new__, made, stream_id=1, device_index=0, device_type=1)
    fakes.accepts(module.current_stream, 0)  # type: ignore[attr-defined]
    fakes.accepts(module._exchange_device, 0)  # type: ignore[attr-defined]
    fakes.accepts(module._maybe_exchange_device, 0)  # type: ignore[attr-defined]


def test_event_classes() -> None:
    fakes.accepts(torch.cuda.Event, enable_timing=True, blocking=True, interprocess=True)
    fakes.accepts(torch.xpu.Event, enable_timing=True)
    with pytest.raises(TypeError):
        fakes.accepts(torch.xpu.Event, blocking=True)


@pytest.mark.parametrize("name", ["current_device_index", "set_device_index", "synchronize", "current_stream", "set_stream"])
def test_accelerator_functions(name: str) -> None:
    fakes.accepts(getattr(torch.accelerator, name), *([] if name == "current_device_index" else [0]))


def test_default_streams() -> None:
    fakes.accepts(torch.cuda.default_stream, 0)
    fakes.accepts(torch.mtia.default_stream, 0)
    assert not hasattr(torch.xpu, "default_stream")


@pytest.mark.skipif(not hasattr(torch._C, "_accelerator_exchangeDevice"), reason="torch 2.8")
def test_functions_of_c() -> None:
    for name in ("exchangeDevice", "maybeExchangeDevice", "isAllocatorInitialized", "getDeviceStats"):
        assert callable(getattr(torch._C, f"_accelerator_{name}"))


def test_torch_s_own_objects_are_made_with_these_arguments() -> None:
    torch.Event(enable_timing=True)
    torch.Stream(device=torch.device("cpu"), priority=0)
    torch.Stream(1, 0, 0)


def test_the_fakes_do_hold_calls_against_signatures() -> None:
    module = fakes.Recorded(torch.cuda, [])
    with pytest.raises(AttributeError):
        module.no_such_function()
    with pytest.raises(TypeError):
        module.empty_cache(0)
