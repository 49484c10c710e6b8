"""What several test files need."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping


def clean_environment(env: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """This process's environment without anyaccel's settings (but with its cache), then `env` on top; None removes."""
    merged: dict[str, str | None] = {
        name: value for name, value in os.environ.items() if not name.startswith("ANYACCEL_") or name == "ANYACCEL_CACHE"
    }
    merged |= env or {}
    return {name: value for name, value in merged.items() if value is not None}


def start_python(code: str, env: Mapping[str, str | None] | None = None, *, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a Python of its own on `code`, with its output in pipes."""
    command = [sys.executable, "-X", "faulthandler", *options, "-c", textwrap.dedent(code)]
    return subprocess.Popen(command, env=clean_environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_python(
    code: str,
    env: Mapping[str, str | None] | None = None,
    *,
    check: bool = True,
    timeout_s: float = 300,
    options: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python of its own.

    Args:
        code: the program; indented as it may be.
        env: on top of this process's environment, which loses anyaccel's settings; None removes a variable.
        check: fail, showing what the program said, unless it ends well.
        timeout_s: how long a hang may last.
        options: of the interpreter, such as ("-W", "error").
    """
    with start_python(code, env, options=options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    assert not check or process.returncode == 0, f"exit status {process.returncode}\n{stdout}\n{stderr}"
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
