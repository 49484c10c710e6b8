"""`ANYACCEL_SIM=N python …`, through the entry point of the installed package."""

import pytest
from tests.helpers import run_python

_SHOW = "import torch; print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())"


@pytest.mark.parametrize(("value", "shown"), [("4", "sim 4"), ("64", "sim 64"), ("0", "None 0"), ("", "None 0"), (None, "None 0")])
def test_the_variable_decides(value, shown):
    ended = run_python(_SHOW, {"ANYACCEL_SIM": value}, options=("-W", "error"))
    assert ended.stdout.strip() == shown


def test_all_settings():
    run_python(
        """
        import torch
        properties = torch.sim.get_device_properties(1)
        assert properties.total_memory == 64 << 20 and properties.schedule == "serial", properties
        """,
        {"ANYACCEL_SIM": "2", "ANYACCEL_SIM_MEMORY": "64MiB", "ANYACCEL_SIM_SCHEDULE": "serial"},
    )


@pytest.mark.parametrize("first", ["import anyaccel", "import anyaccel.sim", "from anyaccel.sim import enable", "import anyaccel.errors"])
def test_anyaccel_may_be_imported_before_torch(first):
    ended = run_python(f"{first}\n{_SHOW}\nimport anyaccel; assert anyaccel.sim.is_enabled()", {"ANYACCEL_SIM": "2"})
    assert ended.stdout.strip() == "sim 2"


def test_enable_in_code_that_agrees_or_not():
    ended = run_python(
        """
        import anyaccel.sim as sim
        sim.enable()
        sim.enable(devices=2)
        try:
            sim.enable(devices=3)
        except Exception as error:
            print(type(error).__name__)
        """,
        {"ANYACCEL_SIM": "2"},
    )
    assert ended.stdout.strip() == "ConfigError"


def test_off_costs_nothing():
    run_python(
        """
        import sys, torch
        assert not [name for name in sys.modules if name == "anyaccel" or name.startswith("anyaccel.")]
        """,
        {"ANYACCEL_SIM": "0"},
    )


def test_on_imports_only_what_it_needs():
    run_python(
        """
        import sys, torch
        heavy = {"torch._dynamo", "torch._inductor", "torch.utils.cpp_extension", "setuptools", "rich", "filelock", "typer"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        assert not torch.sim.is_initialized()
        """,
        {"ANYACCEL_SIM": "2"},
    )


def test_children_inherit_it():
    ended = run_python(
        f"import subprocess, sys; print(subprocess.run([sys.executable, '-c', {_SHOW!r}], capture_output=True, text=True).stdout)",
        {"ANYACCEL_SIM": "3"},
    )
    assert ended.stdout.strip() == "sim 3"


def test_torch_can_switch_it_off():
    assert run_python(_SHOW, {"ANYACCEL_SIM": "4", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout.strip() == "None 0"


def test_an_error_reaches_the_user():
    ended = run_python(_SHOW, {"ANYACCEL_SIM": "abc"}, check=False)
    assert ended.returncode == 1
    assert "anyaccel.errors.ConfigError: ANYACCEL_SIM='abc' cannot be used. It must be a whole number from 0 to 127" in ended.stderr
    assert "Failed to load the backend extension: anyaccel." in ended.stderr


def test_a_warm_start_is_quick():
    """Least of several, so that a busy machine does not fail it: at most 0.5 s on top of `import torch`."""
    code = """
    import os, time, torch
    os.environ["ANYACCEL_SIM"] = "4"
    import anyaccel_autoload
    started = time.perf_counter()
    anyaccel_autoload.autoload()
    print(time.perf_counter() - started)
    """
    run_python(code)
    taken = min(float(run_python(code).stdout) for _ in range(5))
    assert taken < 0.5
