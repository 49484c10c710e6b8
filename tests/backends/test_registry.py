"""The accelerator is looked for when it is used, and remembered once it is there."""

from __future__ import annotations

import pytest
import torch
from tests.backends.fakes import CLASSES, Install

import anyaccel as acc
from anyaccel.backends import base, registry


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "active", None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)


@pytest.mark.parametrize("device_type", CLASSES)
def test_each_type_has_its_file(install: Install, device_type: str) -> None:
    install(device_type)
    assert type(registry.choose()) is CLASSES[device_type]
    assert registry.active is registry.choose()


def test_an_accelerator_that_comes_later_is_found(nothing: None, install: Install) -> None:
    with pytest.raises(acc.NoAccelerator):
        acc.current_device_index()
    install("cuda")
    assert acc.current_device_index() == 0


def test_a_build_without_devices_is_no_accelerator(install: Install) -> None:
    install("cuda", devices=0)
    assert acc.memory_allocated() == 0
    with pytest.raises(acc.NoAccelerator, match="ANYACCEL_SIM=2"):
        acc.synchronize()


def test_the_choice_is_made_once(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("cuda")
    acc.current_device_index()

    def again() -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", again)
    assert acc.current_device_index() == 0


def test_another_accelerator_takes_the_place_of_the_first(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("cuda")
    assert registry.choose().type == "cuda"
    monkeypatch.setattr(registry, "forget", lambda: None)  # so that only accelerator_changed() can do it
    install("xpu")
    assert registry.choose().type == "cuda"
    base.accelerator_changed()
    assert registry.choose().type == "xpu"


@pytest.mark.parametrize(("said", "allowed"), [("1", True), ("0", False), ("", False)])
def test_the_environment_allows_the_cpu(nothing: None, monkeypatch: pytest.MonkeyPatch, said: str, allowed: bool) -> None:
    monkeypatch.setenv("ANYACCEL_ALLOW_CPU", said)
    assert (registry.choose().type == "cpu") == allowed


def test_nonsense_in_the_environment_is_named(nothing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_ALLOW_CPU", "yes")
    with pytest.raises(acc.ConfigError, match="ANYACCEL_ALLOW_CPU is 'yes'"):
        acc.synchronize()


def test_the_stand_in_yields_to_an_accelerator(nothing: None, install: Install) -> None:
    with acc.allow_cpu():
        assert registry.choose().type == "cpu"
        install("cuda")
        assert registry.choose().type == "cuda"


def test_allow_cpu_ends_with_its_block(nothing: None) -> None:
    with acc.allow_cpu():
        with acc.allow_cpu(False), pytest.raises(acc.NoAccelerator):
            acc.synchronize()
        acc.synchronize()
    with pytest.raises(acc.NoAccelerator):
        acc.synchronize()
