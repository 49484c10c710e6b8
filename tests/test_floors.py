"""DESIGN's floors: a file imports only from floors below its own, and the driver knows nothing of torch."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
PACKAGE = SRC / "anyaccel"
DRIVER = PACKAGE / "sim" / "csrc" / "driver"
NOUNS = ("devices", "events", "streams", "memory", "random", "graphs", "profiler")
COMMON = {"torch", "anyaccel.errors", "anyaccel.backends.base", "anyaccel.backends.table"}
API = {"anyaccel", "anyaccel.sim", *(f"anyaccel.{noun}" for noun in NOUNS)}

# What a module may import beside the standard library; "x.*" allows x and all below it. The first pattern that fits decides.
RULES: tuple[tuple[str, set[str]], ...] = (
    (r"anyaccel_autoload", {"anyaccel.*"}),
    (r"anyaccel\.errors", set()),
    (r"anyaccel\.backends\.table", set()),
    (r"anyaccel\.backends\.base", {"torch", "anyaccel.errors", "anyaccel.backends.table"}),
    (r"anyaccel\.backends\.registry", {*COMMON, "anyaccel.backends.*"}),
    (r"anyaccel\.backends\.sim", {*COMMON, "anyaccel.backends.torchlike", "anyaccel.sim.*"}),
    (r"anyaccel\.backends\.torchlike", COMMON),
    (r"anyaccel\.backends(\..*)?", {*COMMON, "anyaccel.backends.torchlike"}),
    (
        r"anyaccel\.sim(\..*)?",
        {*COMMON, "anyaccel.sim.*", "torch.*", "filelock", "ninja", "packaging.*", "platformdirs", "rich.*", "_anyaccel_sim"},
    ),
    *(
        (rf"anyaccel\.{noun}", {*COMMON, "anyaccel.backends.registry", *(f"anyaccel.{earlier}" for earlier in NOUNS[:position])})
        for position, noun in enumerate(NOUNS)
    ),
    (r"anyaccel\.migrate\.redirect", {*API, "anyaccel.errors", "anyaccel.migrate.*", "torch.*"}),
    (r"anyaccel\.migrate(\..*)?", {"anyaccel.errors", "anyaccel.migrate.*", "libcst.*"}),
    *(
        (rf"anyaccel\.{package}(\..*)?", {*API, "anyaccel.errors", f"anyaccel.{package}.*", "torch.*", "pytest.*", "rich.*"})
        for package in ("sanitizer", "testing", "conformance")
    ),
    (r"anyaccel\.cli", {"anyaccel.*", "torch", "typer", "rich.*"}),
    (r"anyaccel", {"torch", "anyaccel.errors", "anyaccel.backends.*", *API}),
)


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: set[str], source: str | None = None) -> Iterator[str]:
    """The modules that a file imports, wherever in it; `from a import b` is a.b where that is one of ours, else a."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source or path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield f"{module}.{alias.name}" if f"{module}.{alias.name}" in known else module


def allowed(target: str, may: set[str]) -> bool:
    if target.split(".")[0] in sys.stdlib_module_names:
        return True
    return any(target == one or (one.endswith(".*") and (target + ".").startswith(one[:-1])) for one in may)


def breaches(name: str, path: Path, known: set[str], source: str | None = None) -> list[str]:
    may = next(may for pattern, may in RULES if re.fullmatch(pattern, name))
    return [target for target in imports(name, path, known, source) if target != name and not allowed(target, may)]


MODULES = modules()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_from_floors_below(name: str) -> None:
    assert breaches(name, MODULES[name], set(MODULES)) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("anyaccel.devices", "from anyaccel import streams"),
        ("anyaccel.events", "from .streams import Stream"),
        ("anyaccel.backends.cuda", "from . import xpu"),
        ("anyaccel.backends.base", "def f():\n    import anyaccel.sim"),
        ("anyaccel.sim.config", "from ..devices import device_count"),
        ("anyaccel.errors", "import torch"),
        ("anyaccel.memory", "from anyaccel.backends.sim import Sim"),
    ],
)
def test_a_breach_is_seen(name: str, source: str) -> None:
    path = PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py")
    known = {*MODULES, "anyaccel.streams", "anyaccel.backends.xpu", "anyaccel.backends.sim", "anyaccel.devices", "anyaccel.sim"}
    assert breaches(name, path, known, source)


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def is_foreign(header: str) -> bool:
    """A header that is neither the driver's own nor the standard library's nor the operating system's."""
    return "/" in header and header.split("/")[0] not in ("driver", "sys", "linux", "mach")


@pytest.mark.parametrize("path", sorted(DRIVER.rglob("*.*")), ids=lambda path: path.name)
def test_the_driver_includes_no_torch(path: Path) -> None:
    assert [header for header in includes(path) if is_foreign(header)] == []


@pytest.mark.parametrize("header", ["ATen/ATen.h", "c10/core/Device.h", "torch/runtime.h", "torch/library.h", "pybind11/pybind11.h"])
def test_a_foreign_header_is_seen(header: str) -> None:
    assert is_foreign(header)


def test_the_expensive_header_is_nowhere() -> None:
    """torch/extension.h alone takes 36 s to compile."""
    files = [path for path in PACKAGE.rglob("*.*") if path.suffix in (".h", ".cpp")]
    assert files
    assert [path for path in files if "torch/extension.h" in includes(path)] == []


def test_pybind_is_in_one_file() -> None:
    files = [path for path in PACKAGE.rglob("*.*") if path.suffix in (".h", ".cpp")]
    using = [path.name for path in files if any("pybind" in header for header in includes(path))]
    assert using == ["module.cpp"]
