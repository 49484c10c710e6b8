"""What a person can get wrong about the sim: each error says what was asked, what is the case and what to do.

Bad values of variables are in test_config, compilers and caches in test_build; here is what needs a process of its own.
"""

import pytest
from tests.helpers import run_python


def refusal(code, env=None):
    """What enabling says, which must be an error, in a process that goes on afterwards as it was before."""
    return run_python(
        f"""
import torch, anyaccel as acc
accelerator = torch.accelerator.current_accelerator()
{code}
try:
    acc.sim.enable(2)
except acc.SimError as error:
    print(error)
assert not acc.sim.is_enabled()
import sys
assert "_anyaccel_sim" not in sys.modules, "refused, but loaded"
""",
        env,
    ).stdout.strip()


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("ANYACCEL_SIM", "abc", "a whole number from 0 to 127"),
        ("ANYACCEL_SIM", "-1", "a whole number from 0 to 127"),
        ("ANYACCEL_SIM", "1000", "a whole number from 0 to 127"),
        ("ANYACCEL_SIM_MEMORY", "lots", "for example 8GiB"),
        ("ANYACCEL_SIM_SCHEDULE", "chaotic", "threads, serial"),
        ("ANYACCEL_SIM_WORKERS", "-2", "a whole number from 0 to 1024"),
    ],
)
def test_a_bad_variable_stops_the_program_with_a_reason(variable, value, allowed):
    ended = run_python("import torch", {"ANYACCEL_SIM": "2", variable: value}, check=False)
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("anyaccel.errors.ConfigError: ")]
    assert f"{variable}={value!r}" in line
    assert allowed in line


def test_torch_too_old():
    for version in ("2.6.0", "2.11.1+cu128"):
        said = refusal(f"torch.__version__ = {version!r}")
        assert "needs torch 2.12 or newer" in said
        assert f"this is torch {version}" in said
        assert "pip install 'torch>=2.12'" in said


def test_another_platform():
    said = refusal("import sys; sys.platform = 'win32'")
    assert "Linux and macOS, and this is win32" in said


def test_the_slot_is_taken_by_a_name():
    said = refusal("torch.utils.rename_privateuse1_backend('npu')")
    assert "PrivateUse1 slot, and 'npu' has it" in said
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in said


def test_the_slot_is_taken_by_kernels():
    said = refusal(
        "library = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('empty.memory_format', lambda *args, **kwargs: None, 'PrivateUse1', allow_override=True)"
    )
    assert "'privateuseone' has it" in said


_OTHER = """
import types
torch.accelerator.current_accelerator = lambda *args: torch.device("xpu")
torch.xpu.device_count = lambda: {count}
"""


def test_another_accelerator_is_available():
    said = refusal(_OTHER.format(count=2))
    assert "There is another accelerator, 'xpu'" in said
    assert "enable(beside=True), or ANYACCEL_SIM_BESIDE=1" in said


@pytest.mark.parametrize(("count", "env", "argument"), [(0, {}, ""), (2, {"ANYACCEL_SIM_BESIDE": "1"}, ""), (2, {}, "beside=True")])
def test_another_accelerator_that_is_not_there_or_is_accepted(count, env, argument):
    run_python(
        f"""
import torch, anyaccel as acc
{_OTHER.format(count=count)}
acc.sim.enable({argument})
assert torch.ones(2, device="sim").tolist() == [1.0, 1.0]
""",
        env,
    )


def test_devices_that_do_not_exist():
    said = run_python(
        """
        import torch
        accelerator = torch.accelerator
        for call in (accelerator.set_device_index, accelerator.synchronize, accelerator.current_stream, torch.sim.set_device):
            try:
                call(2)
                raise AssertionError(call)
            except ValueError as error:
                print(error)
        try:
            torch.ones(1, device="sim:2")
            raise AssertionError
        except (ValueError, RuntimeError) as error:
            print(error)
        """,
        {"ANYACCEL_SIM": "2"},
    ).stdout.splitlines()
    assert len(said) == 5
    assert all("2" in line and "0 to 1" in line for line in said), said
