"""Settings: what is understood, and that each bad value says what is allowed."""

import pytest

from anyaccel.errors import ConfigError
from anyaccel.sim import config


@pytest.mark.parametrize("value", [None, "", " ", "0", "00"])
def test_off(value):
    assert config.from_environment({} if value is None else {"ANYACCEL_SIM": value}) is None


@pytest.mark.parametrize(("value", "devices"), [("1", 1), ("4", 4), (" 64 ", 64), ("127", 127)])
def test_devices(value, devices):
    assert config.from_environment({"ANYACCEL_SIM": value}) == config.Config(devices=devices)


@pytest.mark.parametrize("value", ["abc", "-1", "1000", "128", "1.5", "4 devices", "٤", "0x4", "1_0", "true"])
def test_bad_devices(value):
    with pytest.raises(ConfigError, match=r"ANYACCEL_SIM=.* whole number from 0 to 127") as raised:
        config.from_environment({"ANYACCEL_SIM": value})
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize("value", [0, -1, 128, 1.5, True, "four", [4]])
def test_bad_devices_argument(value):
    with pytest.raises(ConfigError, match=r"devices=.* whole number from 1 to 127"):
        config.make(devices=value, environ={})


@pytest.mark.parametrize(
    ("value", "memory_bytes"),
    [
        ("8GiB", 8 << 30),
        ("512MiB", 512 << 20),
        ("512 mib", 512 << 20),
        ("4096KiB", 4 << 20),
        ("0.5GiB", 512 << 20),
        ("1TiB", 1 << 40),
        ("3MB", 3_000_000),
        ("2gb", 2_000_000_000),
        ("1e9", 1_000_000_000),
        ("1.5e9B", 1_500_000_000),
        ("8589934592", 8 << 30),
        (8 << 30, 8 << 30),
    ],
)
def test_memory(value, memory_bytes):
    assert config.make(memory=value, environ={}).memory_bytes == memory_bytes
    assert config.make(environ={"ANYACCEL_SIM_MEMORY": str(value)}).memory_bytes == memory_bytes


@pytest.mark.parametrize("value", ["much", "8G", "8 GiB each", "-8GiB", "nan", "inf", "1e99", "0x10", "8iB"])
def test_what_is_no_memory(value):
    with pytest.raises(ConfigError, match=r"ANYACCEL_SIM_MEMORY=.*for example 8GiB"):
        config.from_environment({"ANYACCEL_SIM": "2", "ANYACCEL_SIM_MEMORY": value})


@pytest.mark.parametrize("value", [0, -1, 1 << 20, "1MiB", "65TiB", 1 << 60, 1.5, True, "1.3B"])
def test_memory_that_no_device_can_have(value):
    with pytest.raises(ConfigError, match=r"memory=.*for example 8GiB"):
        config.make(memory=value, environ={})


def test_memory_of_all_devices_together():
    with pytest.raises(ConfigError, match=r"64TiB.*fewer devices or for less memory"):
        config.make(devices=127, memory="1TiB", environ={})


@pytest.mark.parametrize("value", ["threads", "serial"])
def test_schedule(value):
    assert config.make(schedule=value, environ={}).schedule == value
    assert config.make(environ={"ANYACCEL_SIM_SCHEDULE": value}).schedule == value


@pytest.mark.parametrize("value", ["fast", "Threads", "random"])
def test_unknown_schedule_lists_those_there_are(value):
    with pytest.raises(ConfigError, match=r"ANYACCEL_SIM_SCHEDULE=.*threads, serial"):
        config.from_environment({"ANYACCEL_SIM": "1", "ANYACCEL_SIM_SCHEDULE": value})
    with pytest.raises(ConfigError, match=r"schedule=.*threads, serial"):
        config.make(schedule=value, environ={})


def test_workers_and_beside():
    made = config.make(environ={"ANYACCEL_SIM_WORKERS": "3", "ANYACCEL_SIM_BESIDE": "1"})
    assert (made.workers, made.beside) == (3, True)
    with pytest.raises(ConfigError, match=r"ANYACCEL_SIM_WORKERS='many'"):
        config.make(environ={"ANYACCEL_SIM_WORKERS": "many"})
    with pytest.raises(ConfigError, match=r"ANYACCEL_SIM_BESIDE='yes'"):
        config.make(environ={"ANYACCEL_SIM_BESIDE": "yes"})


def test_arguments_win_over_the_environment():
    environ = {"ANYACCEL_SIM": "4", "ANYACCEL_SIM_MEMORY": "1GiB", "ANYACCEL_SIM_SCHEDULE": "serial", "ANYACCEL_SIM_BESIDE": "1"}
    assert config.make(2, "2GiB", "threads", False, environ) == config.Config(2, 2 << 30, "threads", 0, False)
    assert config.make(environ=environ) == config.Config(4, 1 << 30, "serial", 0, True)


def test_enabling_in_code_overrides_a_zero():
    assert config.make(environ={"ANYACCEL_SIM": "0"}).devices == 1


def test_a_value_that_is_not_used_is_not_judged():
    assert config.from_environment({"ANYACCEL_SIM": "0", "ANYACCEL_SIM_MEMORY": "much"}) is None
