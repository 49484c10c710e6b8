"""Compiles the driver with its C++ tests, and no torch, and runs them: plain and under the sanitizers."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import ninja
import pytest
from filelock import FileLock

HERE = Path(__file__).parent
CSRC = HERE.parent.parent / "src" / "anyaccel" / "sim" / "csrc"
COMPILER = os.environ.get("CXX", "c++")
BUILDS = {
    "plain": "-O1",
    "thread": "-O1 -g1 -fsanitize=thread",
    "address-undefined": "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all",
}
RULES = """\
flags = -std=c++20 -Wall -Wextra -Wshadow -pthread -I{csrc} {flags}
rule compile
  command = {compiler} $flags $with -MMD -MF $out.d -c $in -o $out
  depfile = $out.d
rule precompile
  command = {compiler} $flags $with -MMD -MF $out.d -x c++-header $in -o $out
  depfile = $out.d
rule link
  command = {compiler} $flags $in -o $out
build tests.h.gch: precompile tests.h
  with = -I{here}
"""

pytestmark = [
    pytest.mark.skipif(shutil.which(shlex.split(COMPILER)[0]) is None, reason=f"no C++ compiler ({COMPILER}; CXX names another)"),
    pytest.mark.skipif(
        os.environ.get("ANYACCEL_SIM", "") not in ("", "0"), reason="knows nothing of torch: the run without the sim does it"
    ),
]


def ninja_file(flags: str) -> str:
    lines = [RULES.format(compiler=COMPILER, flags=flags, csrc=CSRC, here=HERE)]
    with_tests_h = f"  with = -include tests.h -I{HERE}\n"
    objects = []
    for source in sorted((CSRC / "driver").glob("*.cpp")):
        objects.append(f"driver-{source.stem}.o")
        # Without the precompiled header at least once: the driver's own files must get by without it.
        lines.append(f"build {objects[-1]}: compile {source}" + (f" | tests.h.gch\n{with_tests_h}" if "sanitize" in flags else "\n"))
    for source in sorted(HERE.glob("*.cpp")):
        objects.append(f"test-{source.stem}.o")
        lines.append(f"build {objects[-1]}: compile {source} | tests.h.gch\n{with_tests_h}")
    lines.append(f"build tests: link {' '.join(objects)}\n")
    return "".join(lines)


def build_folder(flags: str) -> Path:
    """A folder of this user that outlives the run, so that only what has changed is compiled again."""
    key = hashlib.sha256(f"{HERE} {COMPILER} {flags}".encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"anyaccel-driver-tests-{os.getuid()}-{key}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        pytest.fail(f"{folder} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")
    return folder


def write_if_changed(path: Path, text: str) -> None:
    """Leaves the time of a file that is right already, so that nothing is compiled for it."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def compiles_with(flags: str, folder: Path) -> bool:
    source = folder / "trivial.cpp"
    source.write_text("int main() { return 0; }\n")
    command = [*shlex.split(COMPILER), *flags.split(), str(source), "-o", str(folder / "trivial")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0 and (
        subprocess.run([str(folder / "trivial")], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.parametrize("build", BUILDS)
def test_driver(build: str, tmp_path: Path, seed: int) -> None:
    flags = BUILDS[build]
    if not compiles_with(flags, tmp_path):
        assert build != "plain", f"{COMPILER} cannot compile a program of one line"
        pytest.skip(f"{COMPILER} cannot link or run a program with {flags}")
    folder = build_folder(flags)
    with FileLock(folder / "lock"):
        write_if_changed(folder / "tests.h", '#include "common.h"\n')
        write_if_changed(folder / "build.ninja", ninja_file(flags))
        made = subprocess.run([Path(ninja.BIN_DIR) / "ninja", "-j2"], cwd=folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        try:
            ran = subprocess.run(
                [folder / "tests"],
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
                env={**os.environ, "ANYACCEL_TEST_SEED": str(seed), "TSAN_OPTIONS": "halt_on_error=1"},
            )
        except subprocess.TimeoutExpired as hung:
            pytest.fail(f"hangs after\n{(hung.stdout or b'').decode()[-2000:]}")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-10000:]
    assert "tests passed" in ran.stdout
