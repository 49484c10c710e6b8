"""The command line, in processes of its own: what the user sees, and what the script sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ANYACCEL = str(Path(sys.executable).with_name("anyaccel"))
DEVICES = "import torch; print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())"


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Writes a script into a folder below the one that commands run in; returns its relative path."""

    def write(source: str, name: str = "folder/script.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
        return name

    return write


@pytest.fixture
def start(run: Run) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`anyaccel run` that needs no sim: 0 starts none."""
    return lambda *args, **env: run(ANYACCEL, "run", "--sim", "0", *args, **env)


def test_help_lists_every_command(run: Run) -> None:
    done = run(ANYACCEL, "--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("run", "info", "sim"))


def test_the_script_sees_its_own_arguments(start: Run, script: Callable[[str], str]) -> None:
    name = script("import sys; print(sys.argv)")
    done = start(name, "--sim", "9", "-m", "--", "-x", "--help")
    assert done.stdout.strip() == str([name, "--sim", "9", "-m", "--", "-x", "--help"])


def test_the_script_runs_as_python_runs_it(run: Run, start: Run, script: Callable[[str], str]) -> None:
    name = script(
        "import sys, pickle\n"
        "class Own: pass\n"
        "print(__name__, __file__, __package__, __spec__, sys.path[0], sys.modules['__main__'].__dict__ is globals())\n"
        "print(type(pickle.loads(pickle.dumps(Own()))) is Own, sys.argv, sorted(set(globals()) - {'__annotations__'}))\n"
        "import atexit; atexit.register(lambda: print(pickle.dumps(Own())))\n"
    )
    assert start(name).stdout == run(sys.executable, name).stdout


def test_a_module_runs_as_python_runs_it(run: Run, start: Run, script: Callable[[str, str], str]) -> None:
    script("", "package/__init__.py")
    script("from . import __name__ as n; import sys; print(n, __name__, __spec__.name, sys.argv, sys.path[0])", "package/tool.py")
    done = start("-m", "package.tool", "--flag", "-m")
    assert done.stdout == run(sys.executable, "-m", "package.tool", "--flag", "-m").stdout
    assert "--flag" in done.stdout


@pytest.mark.parametrize(
    ("source", "status"), [("", 0), ("raise SystemExit(7)", 7), ("import sys; sys.exit()", 0), ("import os; os._exit(5)", 5), ("1 / 0", 1)]
)
def test_the_exit_status_is_the_scripts(start: Run, script: Callable[[str], str], source: str, status: int) -> None:
    assert start(script(source)).returncode == status


def test_sys_exit_with_a_message_prints_it(start: Run, script: Callable[[str], str]) -> None:
    done = start(script("import sys; sys.exit('that was that')"))
    assert (done.returncode, done.stderr.strip()) == (1, "that was that")


@pytest.mark.parametrize("source", ["def f():\n    1 / 0\nf()\n", "def f(:\n", "raise KeyError('a') from ValueError('b')"])
def test_a_traceback_is_the_one_that_python_prints(run: Run, start: Run, script: Callable[[str], str], source: str) -> None:
    name = script(source)
    ours, theirs = start(name), run(sys.executable, name)
    assert "Error" in ours.stderr
    assert ours.stderr == theirs.stderr


def test_the_scripts_own_excepthook_is_called(start: Run, script: Callable[[str], str]) -> None:
    done = start(script("import sys\nsys.excepthook = lambda kind, value, trace: print('mine', kind.__name__)\n1 / 0"))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (1, "mine ZeroDivisionError", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_it_as_it_ends_python(start: Run, script: Callable[[str], str], number: signal.Signals) -> None:
    assert start(script(f"import os, signal; os.kill(os.getpid(), {int(number)}); import time; time.sleep(60)")).returncode == -number


def test_a_keyboard_interrupt_can_be_caught(start: Run, script: Callable[[str], str]) -> None:
    source = (
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('caught')"
    )
    done = start(script(source))
    assert (done.returncode, done.stdout.strip()) == (0, "caught")


def test_a_missing_script_is_an_error_of_use(run: Run) -> None:
    done = run(ANYACCEL, "run", "no_such_script.py")
    assert done.returncode == 2
    assert "no_such_script.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_module_is_an_error_of_use(start: Run) -> None:
    done = start("-m", "no_such_module_anywhere")
    assert done.returncode == 2
    assert "no_such_module_anywhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--sim", "-1"), "-1"),
        (("--sim", "two"), "--sim"),
        (("--sim", "1000"), "1000"),
        (("--sim", "1", "--memory", "plenty"), "plenty"),
        (("--sim", "1", "--schedule", "sometimes"), "sometimes"),
    ],
)
def test_bad_options_are_told_without_a_traceback(run: Run, script: Callable[[str], str], options: tuple[str, ...], told: str) -> None:
    done = run(ANYACCEL, "run", *options, script("print('ran')"))
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "ran" not in done.stdout


def test_run_starts_the_devices_that_it_is_asked_for(run: Run, script: Callable[[str], str]) -> None:
    source = f"{DEVICES}; print(torch.accelerator.get_memory_info(2)[1], torch.ones(2, device='sim:2').sum().item())"
    done = run(ANYACCEL, "run", "--sim", "3", "--memory", "64MiB", "--schedule", "serial", script(source))
    assert done.stdout.split() == ["sim", "3", str(64 << 20), "2.0"]
    assert done.stderr == ""


def test_without_an_accelerator_run_starts_the_sim_and_says_so(run: Run, script: Callable[[str], str]) -> None:
    done = run(ANYACCEL, "run", script(DEVICES))
    assert done.stdout.split() == ["sim", "1"]
    assert "started the sim" in done.stderr


def test_the_environment_is_enough(run: Run, script: Callable[[str], str]) -> None:
    done = run(ANYACCEL, "run", script(DEVICES), ANYACCEL_SIM="2")
    assert (done.stdout.split(), done.stderr) == (["sim", "2"], "")


def test_an_option_beats_the_environment(run: Run, script: Callable[[str], str]) -> None:
    name = script(DEVICES + "; import sys; print(sys.argv[1])")
    assert run(ANYACCEL, "run", "--sim", "3", name, "a b", ANYACCEL_SIM="2").stdout.split("\n")[:2] == ["sim 3", "a b"]
    assert run(ANYACCEL, "run", "--sim", "0", name, "a b", ANYACCEL_SIM="2").stdout.split("\n")[:2] == ["None 0", "a b"]


def test_children_of_the_script_get_the_same_sim(run: Run, script: Callable[[str], str]) -> None:
    done = run(ANYACCEL, "run", "--sim", "3", script(f'import subprocess, sys; subprocess.run([sys.executable, "-c", "{DEVICES}"])'))
    assert done.stdout.split() == ["sim", "3"]


def test_run_says_that_autoload_is_off(run: Run, script: Callable[[str], str]) -> None:
    done = run(ANYACCEL, "run", "--sim", "1", script(DEVICES), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout.split() == ["sim", "1"]
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr


def test_info_without_an_accelerator(run: Run) -> None:
    found = json.loads(run(ANYACCEL, "info", "--json").stdout)
    assert (found["accelerator"], found["devices"], found["supports"]) == (None, [], {})
    assert found["autoload"] == {"on": True, "entry_points": found["autoload"]["entry_points"]}
    assert "anyaccel" in found["autoload"]["entry_points"]
    assert "ANYACCEL_SIM=2" in run(ANYACCEL, "info").stdout


def test_info_on_the_sim(run: Run) -> None:
    env = {"ANYACCEL_SIM": "2", "ANYACCEL_SIM_MEMORY": "1GiB"}
    found = json.loads(run(ANYACCEL, "info", "--json", **env).stdout)
    assert found["accelerator"] == "sim"
    assert [(one["index"], one["total_bytes"], one["free_bytes"]) for one in found["devices"]] == [
        (0, 1 << 30, 1 << 30),
        (1, 1 << 30, 1 << 30),
    ]
    assert found["supports"]["Event.enable_timing"] is True
    assert found["supports"]["Event.interprocess"] is False
    assert env.items() <= found["environment"].items()
    shown = run(ANYACCEL, "info", **env).stdout
    assert "sim:1" in shown
    assert "1.0 GiB" in shown


def test_info_says_that_autoload_is_off(run: Run) -> None:
    done = run(ANYACCEL, "info", ANYACCEL_SIM="2", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD is not 1" in done.stdout


def test_sim_build_prints_where_the_library_is(run: Run) -> None:
    done = run(ANYACCEL, "sim", "build")
    assert done.returncode == 0
    assert os.path.getsize(done.stdout.strip()) > 0  # noqa: PTH202


def test_where_the_cpu_may_stand_in_run_starts_no_sim(run: Run, script: Callable[[str], str]) -> None:
    done = run(ANYACCEL, "run", script(DEVICES), ANYACCEL_ALLOW_CPU="1")
    assert (done.stdout.split(), done.stderr) == (["None", "0"], "")


def test_a_script_may_come_through_a_pipe(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"echo 'print(5)' > '{pipe}'"]):
        assert run(ANYACCEL, "run", "--sim", "0", str(pipe)).stdout == "5\n"


def test_the_version(run: Run) -> None:
    import anyaccel

    assert run(ANYACCEL, "--version").stdout == f"{anyaccel.__version__}\n"
