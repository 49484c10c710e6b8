"""Compiles the sim at its first use, once per torch, Python, compiler, flags and sources, and loads what was compiled.

A finished library sits in the user's cache, whole or not at all; the lock is the operating system's, so that a builder that was
killed leaves none behind (torch's own does: pytorch issue 189245). Objects are kept too, by the hash of what they were made
from: after a change only what it touches is compiled again.
"""

from __future__ import annotations

import collections
import ctypes
import hashlib
import importlib.machinery
import importlib.util
import os
import posixpath
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import torch

from anyaccel.errors import BuildError
from anyaccel.sim import cache, progress, toolchain
from anyaccel.sim.toolchain import Recipe, Toolchain

SIM = Recipe("_anyaccel_sim", Path(__file__).with_name("csrc"))

_LOG_LINES = 25
_SOURCES = "sources"
# A folder's header of this name is compiled once for all units there; that takes as long as it saves with about four of them.
_PRECOMPILED = "precompiled.h"
_PRECOMPILED_PAYS = 5
_loaded: dict[str, ModuleType] = {}


def build(*, verbose: bool = False, force: bool = False, recipe: Recipe = SIM) -> Path:
    """Compile the sim, or find it in the cache.

    Args:
        verbose: print the commands and what they say.
        force: compile also where the cache has it.
        recipe: what to compile.

    Returns:
        The path of the library.

    Blocks the host: for about a minute if it has to compile, or while another process does.
    Ordered on: nothing.

    Raises:
        BuildError: something is missing, the compiler failed, or the cache can't be used; the text says what to do.
    """
    root, key, found = _look_up(recipe)
    if found is not None and not force:
        return found.library
    return _build(root, key, recipe, verbose=verbose, unless=None if force else "").library


def load(recipe: Recipe = SIM) -> ModuleType:
    """Load the compiled sim, compiling it first if the cache doesn't have it.

    A library in the cache that is damaged, or that the loader refuses, is compiled again, once.

    Args:
        recipe: what to load.

    Returns:
        The extension module; the same one at every call.

    Blocks the host: as `build`.
    Ordered on: nothing.

    Raises:
        BuildError: as `build`, or what was compiled can't be loaded.
    """
    if recipe.name in _loaded:
        return _loaded[recipe.name]
    root, key, found = _look_up(recipe)
    entry = found or _build(root, key, recipe, unless="")
    refusal = _refusal(entry)
    if refusal and found is not None:
        progress.say(f"anyaccel: the compiled sim in {entry.folder} cannot be loaded ({refusal}): compiling it again")
        entry = _build(root, key, recipe, unless=str(entry.seal["made_ns"]))
        refusal = _refusal(entry)
    if refusal:
        raise BuildError(
            f"The sim was compiled, but {entry.library} cannot be loaded: {refusal}. Libraries must be loadable from that folder (if not, "
            "set ANYACCEL_CACHE to another one), and this Python must not run with an older standard library of C++ than the compiler's."
        )
    cache.touch(entry)
    loader = importlib.machinery.ExtensionFileLoader(recipe.name, str(entry.library))
    spec = importlib.util.spec_from_file_location(recipe.name, entry.library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    _loaded[recipe.name] = sys.modules[recipe.name] = module
    return module


def _look_up(recipe: Recipe) -> tuple[Path, str, cache.Entry | None]:
    root = cache.cache_root()
    cache.check_private(root)
    compiler = Toolchain.current()
    prefix = hashlib.sha256((toolchain.surroundings() + recipe.digest()).encode()).hexdigest()[:16]
    key = f"{recipe.name}-{prefix}-{compiler.identity[:8]}"
    entry, damage = cache.find(root, key, recipe.library_name)
    if damage:
        progress.say(f"anyaccel: the compiled sim in {root / key} is damaged ({damage}): compiling it again")
    if entry is None and not compiler.command:
        # The compiler may have been removed after it had done its work, as container images do.
        others = (cache.find(root, folder.name, recipe.library_name)[0] for folder in sorted(root.glob(f"{recipe.name}-{prefix}-*")))
        entry = next((other for other in others if other is not None), None)
    return root, key, entry


def _build(root: Path, key: str, recipe: Recipe, *, unless: str | None, verbose: bool = False) -> cache.Entry:
    """Compile under the lock.

    Args:
        root: the cache folder.
        key: the entry's name.
        recipe: what to compile.
        unless: take what another process has put there meanwhile, but not the entry made at this time; None: compile anyway.
        verbose: print the commands and what they say.
    """

    def on_wait() -> None:
        progress.say("anyaccel: waiting for another process, which is compiling the sim ...")

    with cache.locked(root, on_wait):
        entry, _ = cache.find(root, key, recipe.library_name)
        if entry is not None and unless is not None and str(entry.seal["made_ns"]) != unless:
            return entry
        compiler = Toolchain.current()
        version = compiler.version()
        title = f"anyaccel: compiling the sim for torch {torch.__version__} (once; about a minute)"
        log = root / f"{key}.log"
        with cache.building_folder(root) as folder:
            try:
                objects = _write_ninja_file(folder, root / "objects", recipe, compiler)
                ninja = toolchain.find_ninja()
                try:
                    with progress.shown(title) as step:
                        _run_ninja(ninja, folder, log, step, version, verbose=verbose)
                except BuildError:
                    if all(path.exists() for path in objects):
                        # It was the link that failed: one of them may be damaged, and must not be met again.
                        for path in objects:
                            path.unlink(missing_ok=True)
                    raise
                facts = {"torch": torch.__version__, "compiler": version, "made": time.strftime("%Y-%m-%d %H:%M:%S %z")}
                entry = cache.publish(folder, root, key, recipe.library_name, facts)
            except OSError as error:
                raise BuildError(f"The sim could not be compiled in {root}: {error}. Make room there, or set ANYACCEL_CACHE.") from error
        log.unlink(missing_ok=True)
        cache.prune(root)
        return entry


def _write_ninja_file(folder: Path, kept: Path, recipe: Recipe, compiler: Toolchain) -> list[Path]:
    """Write the sources as they were hashed, and the commands for what is not kept already; give the paths of all objects.

    All is relative to the folder: messages and objects don't depend on its name, and whoever edits the sources meanwhile spoils
    nothing. An object is moved to where it's kept once it's whole: a builder that is killed leaves what it has done to the next.
    """
    kept.mkdir(mode=0o700, exist_ok=True)
    basis = toolchain.surroundings() + compiler.identity
    compile_words = toolchain.compile_command(compiler, recipe.name, _SOURCES)
    for name, content in recipe.files.items():
        (folder / _SOURCES / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / _SOURCES / name).write_bytes(content)
    lines = [
        "ninja_required_version = 1.3",
        f"rule compile\n  command = {_shell(compile_words)} $extra -c $in -o $made && mv $made $out",
        f"rule precompile\n  command = {_shell(compile_words)} -x c++-header $in -o $out",
        f"rule link\n  command = {_shell(compiler.command)} $in {_shell(toolchain.link_flags())} -o $out",
    ]
    objects = {
        unit: kept / (hashlib.sha256((basis + unit + recipe.digest(unit)).encode()).hexdigest()[:32] + ".o") for unit in recipe.units
    }
    missing = [unit for unit, path in objects.items() if not path.exists()]
    header_of = _write_precompiled_headers(folder, recipe, missing, lines)
    # The largest first, so that the cores end together.
    for unit in sorted(missing, key=lambda unit: -len(recipe.files[unit])):
        header = header_of.get(unit)
        depends = f" | {header}.gch\n  extra = -include {header}" if header else ""
        lines.append(f"build {_path(objects[unit])}: compile {_path(f'{_SOURCES}/{unit}')}{depends}")
        lines.append(f"  made = {objects[unit].name}\n  description = {unit}")
    lines.append(f"build {recipe.library_name}: link {' '.join(map(_path, objects.values()))}\n  description = linking")
    for path in set(objects.values()) - {objects[unit] for unit in missing}:
        os.utime(path)
    (folder / "build.ninja").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return list(objects.values())


def _write_precompiled_headers(folder: Path, recipe: Recipe, missing: list[str], lines: list[str]) -> dict[str, str]:
    """Write the commands for the precompiled headers that pay, and tell which unit takes which."""
    header_of: dict[str, str] = {}
    for name in (name for name in recipe.files if posixpath.basename(name) == _PRECOMPILED):
        users = [unit for unit in missing if posixpath.dirname(unit) == posixpath.dirname(name)]
        if len(users) < _PRECOMPILED_PAYS:
            continue
        header = name.replace("/", "-")
        (folder / header).write_text(f'#include "{name}"\n', encoding="utf-8")
        lines.append(f"build {header}.gch: precompile {header}\n  description = {name}")
        # The compiler takes the header with .gch (gcc; clang too) if it can, or else the text.
        header_of |= dict.fromkeys(users, header)
    return header_of


def _shell(words: Iterable[str]) -> str:
    return shlex.join(words).replace("$", "$$")


def _path(path: Path | str) -> str:
    return re.sub(r"([$ :])", r"$\1", str(path))


def _run_ninja(program: str, folder: Path, log: Path, step: progress.Step, version: str, *, verbose: bool) -> None:
    # The compiler's children must not start a sim of their own: some wrappers of compilers are Python programs.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ANYACCEL_SIM")}
    environ["NINJA_STATUS"] = "[%f/%t] "
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    command = [program, "-j", os.environ.get("MAX_JOBS", "").strip() or str(cores), *(["-v"] if verbose else [])]
    tail: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)
    with log.open("w", encoding="utf-8", buffering=1) as written:
        written.write(f"{version}\n{shlex.join(command)}\n")
        with subprocess.Popen(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as ninja:
            assert ninja.stdout is not None
            try:
                for line in ninja.stdout:
                    written.write(line)
                    tail.append(line)
                    if verbose:
                        progress.say(line, end="")
                    if status := re.match(r"\[(\d+)/(\d+)\] (.*)", line):
                        step(status[3], int(status[1]), int(status[2]))
            except BaseException:
                # ninja passes SIGTERM on to the compilers that it has started.
                ninja.terminate()
                raise
    if ninja.returncode == 0:
        return
    full = any("No space left on device" in line for line in tail)
    hint = f"There is no space left in {folder.parent}: make room, or set ANYACCEL_CACHE to a folder elsewhere. " if full else ""
    raise BuildError(
        f"The sim could not be compiled with {version}. {hint}It needs C++20: g++ 11, clang 14 or newer. "
        f"The whole log is in {log}; it ends with\n{''.join(tail).rstrip()}"
    )


def _refusal(entry: cache.Entry) -> str:
    """Why the system's loader does not take a library; "" if it does. What it takes may run code and can't be loaded again."""
    try:
        ctypes.CDLL(str(entry.library))
    except OSError as error:
        return str(error)
    return ""
