"""README says what is: its Python runs on the sim, and its commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
ANYACCEL = str(Path(sys.executable).with_name("anyaccel"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Each command of the console blocks and of the text, as words, without comments and settings."""
    lines = "".join(blocks("console")).splitlines() + re.findall(r"`((?:make|anyaccel) [^`\n]+)`", README)
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: str(README[: README.index(code)].count("\n")))
def test_python_runs_on_the_sim(run: Run, code: str) -> None:
    done = run(sys.executable, "-c", code, ANYACCEL_SIM="4")
    assert done.returncode == 0, done.stderr


def test_there_is_python_to_run() -> None:
    assert len(blocks("python")) == 6


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_the_command_exists(run: Run, command: list[str]) -> None:
    if command[0] == "make":
        done = subprocess.run(["make", "--dry-run", *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        name, *rest = command
        assert name == "anyaccel"
        group = rest[:2] if rest[0] == "sim" else rest[:1]
        help_text = run(ANYACCEL, *group, "--help")
        assert help_text.returncode == 0, help_text.stderr
        options = [word for word in rest[: next((i for i, word in enumerate(rest) if word.endswith(".py")), None)] if word.startswith("--")]
        assert all(option in help_text.stdout for option in options)


@pytest.mark.parametrize("path", re.findall(r"\]\(([A-Za-z][^):]*)\)", README))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_settings_are_the_ones_that_are_read() -> None:
    said = set(re.findall(r"^\| `(ANYACCEL_\w+)`", README, re.MULTILINE))
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert said == set(re.findall(r"[\"'](ANYACCEL_[A-Z_]*[A-Z])[\"']", source))
