"""Compiling and caching, on toy sources that take a second; one test is about the real ones."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from tests.helpers import clean_environment, start_python

from anyaccel.errors import BuildError
from anyaccel.sim import build, cache, progress
from anyaccel.sim.toolchain import Recipe

_MODULE = """
#include <Python.h>
#include "parts/value.h"
#define NAME(prefix, name) NAME_(prefix, name)
#define NAME_(prefix, name) prefix##name
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "toy", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC NAME(PyInit_, TORCH_EXTENSION_NAME)() {
  PyObject* module = PyModule_Create(&definition);
  PyModule_AddIntConstant(module, "value", value());
  return module;
}
"""
_names = itertools.count()


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Toy sources and an empty cache. A library stays loaded, so every test has a module of its own."""
    monkeypatch.setenv("ANYACCEL_CACHE", str(tmp_path / "cache"))
    sources = tmp_path / "toy sources"
    (sources / "parts").mkdir(parents=True)
    (sources / "module.cpp").write_text(_MODULE)
    (sources / "parts" / "value.h").write_text("int value();\n")
    (sources / "parts" / "value.cpp").write_text('#include "value.h"\nint value() { return 7; }\n')
    (sources / "parts" / "other.cpp").write_text("int other() { return 1; }\n")
    return Recipe(f"toy_{os.getpid()}_{next(_names)}", sources)


def fresh(recipe: Recipe) -> Recipe:
    """The same recipe, with the sources read again."""
    return Recipe(recipe.name, recipe.sources)


def root() -> Path:
    return cache.cache_root()


def leftovers() -> list[Path]:
    return [path for path in root().glob("*") if path.name not in ("lock", "objects") and not (path / "seal.json").exists()]


def compiler(folder: Path, script: str) -> str:
    """A compiler that first does something else; its path."""
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec c++ --version;; esac\n{script}\nexec c++ "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_compiles_once_and_loads(recipe, capfd):
    module = build.load(recipe)
    assert module.value == 7
    assert module.__file__ == str(build.build(recipe=recipe))
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("anyaccel: compiling the sim for torch ")
    assert "(once; about a minute) ... done in " in said
    assert build.load(fresh(recipe)) is module
    assert capfd.readouterr().err == ""
    assert stat.S_IMODE(root().stat().st_mode) == 0o700
    assert not leftovers()


def test_a_change_makes_a_new_library_and_compiles_only_what_it_touches(recipe):
    first = build.build(recipe=recipe)
    before = {path: path.stat().st_ino for path in (root() / "objects").iterdir()}
    assert len(before) == 3
    (recipe.sources / "parts" / "value.h").write_text("int value();  // changed\n")
    second = build.build(recipe=fresh(recipe))
    assert first != second
    assert first.exists()
    after = {path: path.stat().st_ino for path in (root() / "objects").iterdir()}
    assert len(after) == 5, "other.cpp includes nothing that changed"
    assert before.items() <= after.items()
    (recipe.sources / "parts" / "value.h").write_text("int value();\n")
    assert build.build(recipe=fresh(recipe)) == first


def test_a_precompiled_header_where_it_pays(recipe, capfd):
    for index in range(5):
        (recipe.sources / "parts" / f"more{index}.cpp").write_text(f"std::size_t more{index}() {{ return sizeof(std::string); }}\n")
    (recipe.sources / "parts" / "precompiled.h").write_text("#include <string>\n")
    # They include nothing themselves: they compile because the header is fed to them.
    build.build(recipe=fresh(recipe), verbose=True)
    assert capfd.readouterr().err.count("c++-header") == 1
    (recipe.sources / "parts" / "other.cpp").write_text("int other() { return 2; }\n")
    build.build(recipe=fresh(recipe), verbose=True)
    assert "c++-header" not in capfd.readouterr().err


def test_the_compiler_is_part_of_the_key(recipe, tmp_path, monkeypatch):
    first = build.build(recipe=recipe)
    monkeypatch.setenv("CXX", compiler(tmp_path, ""))
    assert build.build(recipe=recipe) != first


def test_sanitizers_are_asked_for_by_the_environment_and_part_of_the_key(recipe, monkeypatch, capfd):
    first = build.build(recipe=recipe, verbose=True)
    assert "-fsanitize" not in capfd.readouterr().err
    monkeypatch.setenv("ANYACCEL_SIM_SANITIZE", "undefined")
    assert build.build(recipe=recipe, verbose=True) != first
    assert capfd.readouterr().err.count("-fsanitize=undefined") == 4, "three units and the link"
    monkeypatch.setenv("ANYACCEL_SIM_SANITIZE", "undefined,addres")
    with pytest.raises(BuildError, match=r"ANYACCEL_SIM_SANITIZE='undefined,addres' cannot be used.*address, thread, undefined"):
        build.build(recipe=recipe)


def test_a_compiler_that_was_removed_afterwards_is_not_missed(recipe, monkeypatch):
    made = build.build(recipe=recipe)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.build(recipe=recipe) == made


def test_force_compiles_again(recipe):
    first = build.build(recipe=recipe).stat().st_ino
    assert build.build(recipe=recipe).stat().st_ino == first
    assert build.build(recipe=recipe, force=True).stat().st_ino != first


def test_verbose_shows_the_commands(recipe, capfd):
    build.build(recipe=recipe, verbose=True)
    assert "-std=c++20" in capfd.readouterr().err


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    with progress.shown("compiling") as step:
        step("a.cpp", 1, 2)
    said = capsys.readouterr().err
    assert "compiling" in said
    assert "done" in said


def test_no_stderr_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress.shown("compiling") as step:
        step("a.cpp", 1, 2)


@pytest.mark.parametrize("damage", ["truncated", "empty", "one bit", "missing", "seal"])
def test_a_damaged_library_is_made_again(recipe, capfd, damage):
    library = build.build(recipe=recipe)
    content = library.read_bytes()
    seal = library.with_name("seal.json")
    if damage == "truncated":
        os.truncate(library, len(content) // 2)
    elif damage == "empty":
        os.truncate(library, 0)
    elif damage == "one bit":
        library.write_bytes(content[:4000] + bytes([content[4000] ^ 1]) + content[4001:])
    elif damage == "missing":
        library.unlink()
    else:
        seal.write_text("{")
    capfd.readouterr()
    assert build.load(recipe).value == 7
    assert "is damaged" in capfd.readouterr().err
    assert library.stat().st_size == len(content)
    assert not leftovers()


def test_a_library_that_the_loader_refuses_is_made_again_once(recipe, tmp_path, capfd, monkeypatch):
    library = build.build(recipe=recipe)
    # As if torch had been replaced by another build of the same version: whole, but it can't be loaded.
    library.unlink()
    (tmp_path / recipe.library_name).write_text("not ELF")
    cache.publish(tmp_path, root(), library.parent.name, recipe.library_name, {})
    capfd.readouterr()
    assert build.load(recipe).value == 7
    assert "cannot be loaded" in capfd.readouterr().err

    calls = []
    monkeypatch.setattr(build, "_refusal", lambda entry: calls.append(entry) or "this test says no")
    with pytest.raises(BuildError, match=r"this test says no.*ANYACCEL_CACHE"):
        build.load(Recipe(f"{recipe.name}_again", recipe.sources))
    assert len(calls) == 1, "what was just compiled is not compiled again"


def test_an_error_of_the_compiler_shows_the_end_of_the_log_and_keeps_what_was_done(recipe):
    (recipe.sources / "parts" / "zz.cpp").write_text("int wrong() { return missing_name; }\n")
    with pytest.raises(BuildError, match="missing_name") as raised:
        build.build(recipe=recipe)
    (log,) = leftovers()
    assert str(log) in str(raised.value)
    assert "missing_name" in log.read_text()
    kept = {path.stat().st_ino for path in (root() / "objects").iterdir()}
    assert kept, "the units that compiled"
    (recipe.sources / "parts" / "zz.cpp").unlink()
    assert build.load(fresh(recipe)).value == 7
    assert kept <= {path.stat().st_ino for path in (root() / "objects").iterdir()}


def test_a_damaged_object_is_not_met_twice(recipe):
    build.build(recipe=recipe)
    for path in (root() / "objects").iterdir():
        os.truncate(path, 100)
    with pytest.raises(BuildError):
        build.build(recipe=recipe, force=True)
    build.build(recipe=recipe, force=True)


def test_a_full_disk(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", compiler(tmp_path, 'echo "fatal error: error writing to x.o: No space left on device" >&2; exit 1'))
    with pytest.raises(BuildError, match=r"no space left in .*make room, or set ANYACCEL_CACHE"):
        build.build(recipe=recipe)
    assert [path.suffix for path in leftovers()] == [".log"]


def test_a_disk_that_is_full_for_us(recipe, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "publish", full)
    with pytest.raises(BuildError, match=r"No space left on device.*ANYACCEL_CACHE"):
        build.build(recipe=recipe)
    assert [path.suffix for path in leftovers()] == [".log"]


def test_no_compiler(recipe, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"no C\+\+ compiler\..*apt install g\+\+.*dnf install gcc-c\+\+.*xcode-select --install.*CXX"):
        build.build(recipe=recipe)


def test_a_compiler_that_does_not_exist_or_work(recipe, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match=r"'no-such-compiler', which CXX names.*apt install g\+\+"):
        build.build(recipe=recipe)
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(BuildError, match=r"compiler false does not work.*apt install g\+\+"):
        build.build(recipe=recipe)


def test_no_python_headers(recipe, monkeypatch, tmp_path):
    found = sysconfig.get_path
    monkeypatch.setattr(sysconfig, "get_path", lambda name, **kw: str(tmp_path) if name == "include" else found(name, **kw))
    with pytest.raises(BuildError, match=rf"{tmp_path}/Python.h.*apt install python3\.\d+-dev.*dnf install python3-devel.*macOS"):
        build.build(recipe=recipe)


def test_no_ninja(recipe, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", compiler(tmp_path, ""))
    monkeypatch.setitem(sys.modules, "ninja", None)
    (tmp_path / "bin").mkdir()
    for needed in ("sh", "c++"):
        (tmp_path / "bin" / needed).symlink_to(f"/usr/bin/{needed}" if Path(f"/usr/bin/{needed}").exists() else f"/bin/{needed}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(BuildError, match="pip install ninja"):
        build.build(recipe=recipe)


def test_no_sources(tmp_path):
    with pytest.raises(BuildError, match=r"nothing to compile.*Install anyaccel again"):
        build.build(recipe=Recipe("toy", tmp_path))


def test_a_cache_that_cannot_be_written(recipe, monkeypatch):
    monkeypatch.setenv("ANYACCEL_CACHE", "/dev/null/cache")
    with pytest.raises(BuildError, match=r"/dev/null/cache/sim.*Set ANYACCEL_CACHE to a folder of your own"):
        build.build(recipe=recipe)


def test_a_cache_without_permission(recipe, tmp_path):
    assert recipe.files  # read while we may
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o500)
    user = os.geteuid()
    if user == 0:  # to root, nothing is forbidden
        os.seteuid(65534)
    try:
        with pytest.raises(BuildError, match=r"Permission denied.*Set ANYACCEL_CACHE to a folder of your own"):
            build.build(recipe=recipe)
    finally:
        os.seteuid(user)


def test_a_file_where_the_cache_should_be(recipe, tmp_path):
    (tmp_path / "cache").mkdir()
    root().write_text("")
    with pytest.raises(BuildError, match="is not a folder"):
        build.build(recipe=recipe)


def test_a_cache_of_another_user(recipe, monkeypatch):
    build.build(recipe=recipe)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    for call in (build.build, build.load):
        with pytest.raises(BuildError, match=rf"belongs to user {user}, and you \(user {user + 1}\).*Set ANYACCEL_CACHE"):
            call(recipe=recipe)


def test_a_cache_that_was_open_to_others_is_closed(recipe):
    root().mkdir(parents=True)
    root().chmod(0o777)
    build.build(recipe=recipe)
    assert stat.S_IMODE(root().stat().st_mode) == 0o700


def test_the_compiler_does_not_see_the_sim(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("ANYACCEL_SIM", "4")
    monkeypatch.setenv("ANYACCEL_SIM_MEMORY", "8GiB")
    monkeypatch.setenv("CXX", compiler(tmp_path, f"env > {tmp_path}/seen"))
    build.build(recipe=recipe)
    seen = (tmp_path / "seen").read_text()
    assert "PATH=" in seen
    assert "ANYACCEL_SIM" not in seen


def test_what_was_not_used_for_long_is_removed(recipe):
    first = build.build(recipe=recipe)
    long_ago = time.time() - 31 * 24 * 3600
    os.utime(first.with_name("seal.json"), (long_ago, long_ago))
    build.load(recipe)  # a use
    (recipe.sources / "module.cpp").write_text(_MODULE + "// 2")
    second = build.build(recipe=fresh(recipe))
    assert first.exists()
    os.utime(first.with_name("seal.json"), (long_ago, long_ago))
    (recipe.sources / "module.cpp").write_text(_MODULE + "// 3")
    build.build(recipe=fresh(recipe))
    assert not first.exists()
    assert second.exists()


_BUILD = """
from pathlib import Path
from anyaccel.sim import build
from anyaccel.sim.toolchain import Recipe
print("value", build.load(Recipe({name!r}, Path({sources!r}))).value)
"""


class Gate:
    """A compiler that stops until it is let through: tests of what happens in the middle need no clock."""

    def __init__(self, folder: Path) -> None:
        self._arrived, self._go, self._closed = folder / "arrived", folder / "go", folder / "closed"
        os.mkfifo(self._arrived)
        os.mkfifo(self._go)
        self._closed.touch()
        # The one unit that stops is enough, and two would both write to the pipe.
        stop = f'case "$*" in *module.cpp*) echo > "{self._arrived}"; cat "{self._go}" > /dev/null;; esac'
        script = f'if [ -e "{self._closed}" ]; then {stop}; fi'
        self.env = {"CXX": compiler(folder, script), "MAX_JOBS": "1", "ANYACCEL_CACHE": str(folder / "cache")}

    def wait_for_arrival(self) -> None:
        """Block until the compiler stands at the gate."""
        self._arrived.read_text()

    def open(self) -> None:
        """Let through who stands there, and all who come."""
        self._closed.unlink()
        self._go.write_text("go")


def program(recipe: Recipe) -> str:
    return _BUILD.format(name=recipe.name, sources=str(recipe.sources))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def children(pid: int) -> list[int]:
    direct = [process for process, (parent, _) in processes().items() if parent == pid]
    return direct + [below for child in direct for below in children(child)]


def processes() -> dict[int, tuple[int, str]]:
    """Parent and state of all processes."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(pid): (int(parent), state) for pid, parent, state in map(str.split, listed.splitlines())}


def test_killed_in_the_middle(recipe, gate):
    with start_python(program(recipe), gate.env) as builder:
        gate.wait_for_arrival()
        left_behind = children(builder.pid)
        builder.kill()
    assert any(path.name.startswith("building-") for path in root().iterdir())
    gate.open()  # the orphans go on, in a folder that nobody will look at
    with start_python(program(recipe), gate.env) as second:
        stdout, stderr = second.communicate(timeout=120)
    assert stdout == "value 7\n", stderr
    assert "waiting" not in stderr
    assert not leftovers()
    for pid in left_behind:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_interrupted_in_the_middle(recipe, gate):
    with start_python(program(recipe), gate.env) as builder:
        gate.wait_for_arrival()
        started = children(builder.pid)
        builder.send_signal(signal.SIGINT)
        _, stderr = builder.communicate(timeout=120)
    assert builder.returncode in (1, -signal.SIGINT, 128 + signal.SIGINT)
    assert "KeyboardInterrupt" in stderr
    assert [path.suffix for path in leftovers()] == [".log"]
    assert started
    # A zombie, which nobody may reap in a container, does not run.
    assert not [pid for pid in started if pid in processes() and not processes()[pid][1].startswith("Z")]


def test_sources_that_change_in_the_middle(recipe, gate):
    with start_python(program(recipe), gate.env) as builder:
        gate.wait_for_arrival()
        (recipe.sources / "module.cpp").write_text(_MODULE.replace("value());", "value() + 1);"))
        (recipe.sources / "parts" / "value.h").write_text("this is not C++")
        gate.open()
        stdout, stderr = builder.communicate(timeout=120)
    assert stdout == "value 7\n", f"what was hashed is what is compiled\n{stderr}"
    (recipe.sources / "parts" / "value.h").write_text("int value();\n")
    with start_python(program(recipe), gate.env) as second:
        assert second.communicate(timeout=120)[0] == "value 8\n"


def test_four_processes_at_once(recipe, gate):
    with contextlib.ExitStack() as stack:
        builder = stack.enter_context(start_python(program(recipe), gate.env))
        gate.wait_for_arrival()
        others = [stack.enter_context(start_python(program(recipe), gate.env)) for _ in range(3)]
        for other in others:
            assert other.stderr is not None
            assert "waiting for another process, which is compiling the sim" in other.stderr.readline()
        gate.open()
        for process in (builder, *others):
            stdout, stderr = process.communicate(timeout=120)
            assert stdout == "value 7\n", stderr
            assert ("compiling the sim for torch" in stderr) == (process is builder)
    assert not leftovers()


def test_the_real_sources_are_in_the_shared_cache(monkeypatch):
    monkeypatch.setattr(os, "environ", clean_environment())
    library = build.build()
    assert library.name == "_anyaccel_sim.so"
    assert build.build() == library
