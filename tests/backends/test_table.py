"""The table is what the backends do, and supports() is the table."""

from __future__ import annotations

import pytest
import torch
from tests.backends.fakes import CLASSES, Install
from tests.backends.uses import USES

import anyaccel as acc
from anyaccel.backends import registry, table


def column_of(device_type: str) -> str:
    return device_type if device_type in table.COLUMNS else "other"


def test_the_grid_is_complete() -> None:
    for feature in table.features():
        for column in table.COLUMNS:
            cell = table.since(feature, column)
            assert cell in ("-", table.ASK) or tuple(map(int, cell.split("."))) >= (2, 6), (feature, column)
    assert set(table.VERIFIED) == set(table.COLUMNS)


def test_every_feature_is_public() -> None:
    for feature in table.features():
        assert feature.partition(".")[0] in acc.__all__, feature


def test_every_public_function_that_needs_a_backend_is_in_the_table() -> None:
    answered_without = {"DeviceProperties", "__version__", "allow_cpu", "supports", "memory", "sim"}
    deprecated = {"current_device_idx", "set_device_idx"}
    errors = {name for name in acc.__all__ if isinstance(getattr(acc, name, None), type) and issubclass(getattr(acc, name), Exception)}
    assert set(acc.__all__) - answered_without - deprecated - errors == {name.partition(".")[0] for name in table.features()}


@pytest.mark.parametrize("device_type", CLASSES)
@pytest.mark.parametrize("feature", table.features())
def test_unsupported_is_raised_where_the_table_says_so_and_nowhere_else(install: Install, device_type: str, feature: str) -> None:
    install(device_type)
    use = USES.get(feature, getattr(acc, feature, None))
    if use is None:
        return
    cell = table.since(feature, column_of(device_type))
    try:
        use()
        raised = None
    except acc.Unsupported as error:
        raised = error
    if cell == table.ASK:
        assert (raised is None) == acc.supports(feature)
    else:
        assert (raised is None) == (cell != "-")
        assert acc.supports(feature) == (cell != "-")
    if raised is not None:
        assert raised.feature == feature
        assert raised.backend == device_type


@pytest.mark.parametrize("feature", table.features())
def test_the_stand_in_is_in_the_table_too(feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use = USES.get(feature, getattr(acc, feature, None))
    if feature == "set_device_index":
        use = lambda: acc.set_device_index(0)  # noqa: E731 (there is one CPU)
    if use is None:
        return
    monkeypatch.setattr(registry, "active", None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    with acc.allow_cpu():
        assert acc.supports(feature) == (table.since(feature, "cpu") != "-")
        if acc.supports(feature):
            use()
        else:
            with pytest.raises(acc.Unsupported):
                use()


def test_supports_compares_versions_as_numbers(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("cuda")
    assert acc.supports("get_device_capability")  # since 2.10
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    assert not acc.supports("get_device_capability")
    assert acc.supports("synchronize")


def test_supports_refuses_what_does_not_exist(install: Install) -> None:
    install("cuda")
    with pytest.raises(ValueError, match=r"did you mean .*default_stream"):
        acc.supports("default_steam")


def test_supports_is_false_with_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "active", None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert not acc.supports("synchronize")
