"""What the sim is compiled with: the compiler, ninja, Python's and torch's headers, the flags."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import os
import posixpath
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from anyaccel.errors import BuildError

# No -g: debug information triples the time. AT_PER_OPERATOR_HEADERS: ATen's headers include the operators that they use and not
# all of them, which takes a third off. As torch's own extensions otherwise.
COMPILE_FLAGS = ("-O2", "-std=c++20", "-fPIC", "-pthread", "-DAT_PER_OPERATOR_HEADERS")
# What ANYACCEL_SIM_SANITIZE may ask for. vptr needs type information that torch's libraries don't export.
_SANITIZERS = {"address", "undefined", "thread"}
_SANITIZED = ("-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize=vptr", "-fno-sanitize-recover=undefined")
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """What to compile: all `*.cpp` below a folder, into one Python module.

    Attributes:
        name: the module's name.
        sources: the folder; it is also the root of its `#include`s.
    """

    name: str
    sources: Path

    @property
    def library_name(self) -> str:
        """The file name of the library that is made."""
        return f"{self.name}.so"

    @cached_property
    def files(self) -> dict[str, bytes]:
        """All sources and headers, by path below the folder, in order."""
        paths = sorted(path for path in self.sources.rglob("*") if path.suffix in {".cpp", ".h"})
        if not any(path.suffix == ".cpp" for path in paths):
            raise BuildError(f"There is nothing to compile in {self.sources}: this installation is incomplete. Install anyaccel again.")
        return {path.relative_to(self.sources).as_posix(): path.read_bytes() for path in paths}

    @property
    def units(self) -> list[str]:
        """The files to compile, by path below the folder."""
        return [name for name in self.files if name.endswith(".cpp")]

    def digest(self, unit: str | None = None) -> str:
        """Hash all files, or one unit and what of them it includes, directly or not."""
        names = set(self.files) if unit is None else self._closure(unit)
        state = hashlib.sha256()
        for name in sorted(names):
            state.update(f"{name}\0{len(self.files[name])}\0".encode() + self.files[name])
        return state.hexdigest()

    def _closure(self, unit: str) -> set[str]:
        seen, todo = set[str](), [unit]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for found in _INCLUDE.findall(self.files[name]):
                target = found.decode(errors="replace")
                beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
                todo += [candidate for candidate in {target, beside} if candidate in self.files]
        return seen


@dataclass(frozen=True)
class Toolchain:
    """A compiler by command and identity.

    Attributes:
        command: the compiler as CXX has it, in words; empty if there is none.
    """

    command: tuple[str, ...]

    @classmethod
    def current(cls) -> Toolchain:
        """Find the compiler that CXX names, or else the first of c++, g++ and clang++."""
        chosen = os.environ.get("CXX", "").strip()
        for words in [shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]:
            if words and shutil.which(words[0]):
                return cls(tuple(words))
        return cls(())

    @property
    def identity(self) -> str:
        """Hash which binaries these are. Starting the compiler to ask for its version would cost a warm start too much."""
        state = hashlib.sha256()
        for word in self.command:
            path = shutil.which(word)
            state.update(word.encode())
            if path is not None:
                status = Path(path).stat()
                state.update(f"{Path(path).resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
        return state.hexdigest()

    def version(self) -> str:
        """Ask the compiler who it is.

        Raises:
            BuildError: there is none, or it doesn't start.
        """
        remedy = (
            "Install one (Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), "
            "or name one in the variable CXX."
        )
        if not self.command:
            chosen = os.environ.get("CXX", "").strip()
            which = f"no C++ compiler {chosen!r}, which CXX names" if chosen else "no C++ compiler"
            raise BuildError(f"The sim must be compiled once and there is {which}. {remedy}")
        try:
            asked = subprocess.run([*self.command, "--version"], capture_output=True, text=True, check=True, errors="replace").stdout
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            raise BuildError(f"The C++ compiler {shlex.join(self.command)} does not work: {said.strip()}. {remedy}") from error
        return asked.strip().splitlines()[0] if asked.strip() else shlex.join(self.command)


def sanitizers() -> list[str]:
    """Read which of the compiler's sanitizers ANYACCEL_SIM_SANITIZE asks for, such as "address,undefined"; `make sanitize` uses it.

    Raises:
        BuildError: it asks for one that there isn't.
    """
    text = os.environ.get("ANYACCEL_SIM_SANITIZE", "").strip()
    asked = sorted({word.strip() for word in text.split(",") if word.strip()})
    if not set(asked) <= _SANITIZERS:
        raise BuildError(f"ANYACCEL_SIM_SANITIZE={text!r} cannot be used. It must be some of {', '.join(sorted(_SANITIZERS))}, or empty.")
    return asked


def _sanitize_flags() -> list[str]:
    asked = sanitizers()
    return [*_SANITIZED, f"-fsanitize={','.join(asked)}"] if asked else []


def surroundings() -> str:
    """Hash what else a library depends on: torch, Python, the flags."""
    flags = (*COMPILE_FLAGS, *_sanitize_flags())
    facts = (torch.__version__, torch.version.git_version, importlib.machinery.EXTENSION_SUFFIXES[0], *flags)
    return hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()


def find_ninja() -> str:
    """Find ninja: that of this Python first, whose folder need not be on PATH.

    Raises:
        BuildError: there is none.
    """
    candidates = ["ninja", "ninja-build"]
    with contextlib.suppress(ImportError):
        import ninja

        candidates.insert(0, f"{ninja.BIN_DIR}/ninja")
    for candidate in candidates:
        if found := shutil.which(candidate):
            return found
    raise BuildError("The sim must be compiled once and ninja is missing, which does that. Install it: pip install ninja.")


def compile_command(toolchain: Toolchain, module: str, sources: str) -> list[str]:
    """The command that compiles one unit, up to `-c unit -o object`.

    Args:
        toolchain: the compiler.
        module: the name of the Python module.
        sources: the root of our own `#include`s.

    Raises:
        BuildError: Python's headers are missing.
    """
    # It imports setuptools: too slow for a warm start.
    from torch.utils import cpp_extension

    python_headers = sysconfig.get_path("include", scheme="posix_prefix")
    if not Path(python_headers, "Python.h").exists():
        version = sysconfig.get_python_version()
        raise BuildError(
            f"The sim must be compiled once and Python's headers are missing: there is no {python_headers}/Python.h. "
            f"Install them (Debian and Ubuntu: apt install python{version}-dev; Fedora: dnf install python3-devel; "
            "macOS: brew install python, or the installer from python.org)."
        )
    system = [word for folder in [*cpp_extension.include_paths(), python_headers] for word in ("-isystem", folder)]
    own = ["-I", sources, f"-DTORCH_EXTENSION_NAME={module}"]
    return [*toolchain.command, *COMPILE_FLAGS, *_sanitize_flags(), *own, *system]


def link_flags() -> list[str]:
    """What the linker is told after the objects. No rpath: torch's libraries are loaded before ours."""
    from torch.utils import cpp_extension

    shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    folders = [f"-L{folder}" for folder in cpp_extension.library_paths()]
    return [*shared, *_sanitize_flags(), "-pthread", *folders, "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
