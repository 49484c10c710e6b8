"""Errors say what was asked, what is the case and what to do; code can read the parts."""

from __future__ import annotations

import copy
import pickle

import pytest

import anyaccel as acc


def test_unsupported_carries_its_parts() -> None:
    error = acc.Unsupported("default_stream", "xpu", "keep the first one")
    assert (error.feature, error.backend, error.instead) == ("default_stream", "xpu", "keep the first one")
    assert str(error) == "default_stream is not supported on 'xpu'. Instead: keep the first one."
    assert str(acc.Unsupported("a", "b")) == "a is not supported on 'b'."


def test_no_accelerator_tells_how_to_get_one() -> None:
    text = str(acc.NoAccelerator("synchronize"))
    assert text.startswith("synchronize needs an accelerator")
    for way in ("ANYACCEL_SIM=2", "anyaccel.sim.enable(devices=2)", "anyaccel.allow_cpu()", "ANYACCEL_ALLOW_CPU=1"):
        assert way in text


@pytest.mark.parametrize("error", [acc.Unsupported("a", "b", "c"), acc.NoAccelerator("x"), acc.BuildError("y")])
def test_errors_pickle_and_copy(error: acc.AnyaccelError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_the_tree() -> None:
    for made, also in (
        (acc.Unsupported, NotImplementedError),
        (acc.NoAccelerator, RuntimeError),
        (acc.ConfigError, ValueError),
        (acc.SimError, RuntimeError),
        (acc.BuildError, acc.SimError),
    ):
        assert issubclass(made, also)
        assert issubclass(made, acc.AnyaccelError)


def test_no_accelerator_names_autoload_where_that_is_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_SIM", "2")
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in str(acc.NoAccelerator("synchronize"))
