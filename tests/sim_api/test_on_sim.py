"""What the API promises on the sim, beyond the conformance checks."""

from __future__ import annotations

import gc

import pytest
import torch
from tests.backends.uses import USES
from tests.helpers import run_python

import anyaccel as acc
from anyaccel.backends import registry, sim, table

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("feature", table.features())
def test_the_table_is_what_the_sim_does(feature: str) -> None:
    supported = table.since(feature, "sim") != "-"
    assert acc.supports(feature) == supported
    use = USES.get(feature, getattr(acc, feature, None))
    device = acc.current_device_index()
    try:
        if use is None:
            value = getattr(acc.current_stream(), feature.partition(".")[2])
            assert (value() if callable(value) else value) is not None
        elif supported:
            use()
        else:
            with pytest.raises(acc.Unsupported) as caught:
                use()
            assert (caught.value.feature, caught.value.backend) == (feature, "sim")
    finally:
        acc.set_device_index(device)


def test_what_is_made_is_torch_s() -> None:
    assert type(registry.choose()) is sim.Sim
    assert type(acc.Stream()) is torch.Stream
    assert type(acc.current_stream()) is torch.Stream
    assert type(acc.Event(enable_timing=True, blocking=True)) is torch.Event


def test_the_device_module_shares_the_state() -> None:
    module = torch.get_device_module("sim")
    before, side = acc.current_stream(0), acc.Stream(2)
    try:
        acc.set_stream(side)
        assert module.current_device() == acc.current_device_index() == torch.accelerator.current_device_index() == 2
        assert module.current_stream() == side
        module.set_device(3)
        assert acc.current_device_index() == 3
        acc.set_device_index(1)
        assert module.current_device() == 1
    finally:
        acc.set_stream(acc.default_stream(2))
        acc.set_stream(before)


def test_properties_and_names() -> None:
    properties = acc.get_device_properties(1)
    assert properties.backend == "sim"
    assert properties.name == acc.get_device_name(1)
    assert properties.total_memory_bytes == acc.get_memory_info(1)[1]
    with pytest.raises(AttributeError):
        properties.name = "other"  # type: ignore[misc]


def test_contexts_keep_nothing_alive() -> None:
    tensor = torch.ones(1, device="sim")
    context = acc.stream(acc.Stream())
    with context, context:
        pass
    assert context._saved == {}  # type: ignore[attr-defined]
    del tensor
    gc.collect()


def test_it_can_be_enabled_after_anyaccel_was_used() -> None:
    run_python(
        """
        import torch, anyaccel as acc
        assert acc.memory_allocated() == 0 and acc.device_count() == 0
        try:
            acc.current_device_index()
        except acc.NoAccelerator:
            pass
        else:
            raise AssertionError("there is one already")
        acc.sim.enable(devices=3)
        assert acc.device_count() == 3 and acc.current_accelerator().type == "sim"
        with acc.device(2), acc.stream(acc.Stream()):
            assert (torch.ones(4, device="sim") * 2).sum().item() == 8
        """
    )


def test_the_stand_in_gives_way_to_it() -> None:
    run_python(
        """
        import anyaccel as acc
        acc.allow_cpu()
        assert acc.current_stream().device.type == "cpu"
        acc.sim.enable(devices=1)
        assert acc.current_stream().device.type == "sim"
        """
    )


def test_looking_for_it_does_not_poison_fork() -> None:
    run_python(
        """
        import os, torch, anyaccel as acc
        assert acc.is_available() and acc.device_count() == 2 and acc.current_accelerator().type == "sim" and acc.supports("Stream")
        assert not acc.is_initialized()
        child = os.fork()
        if child == 0:
            assert torch.ones(4, device="sim:1").sum().item() == 4
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        env={"ANYACCEL_SIM": "2"},
    )
