"""What is published works by itself: a wheel from this tree, installed outside it, runs the demo."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    # A copy: setuptools would leave build/ in the tree, and put what it finds there into the next wheel.
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # Isolated, the build would install setuptools from a package index.
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("anyaccel-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that has the wheel, and what it depends on from the present environment."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = subprocess.run([found, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([found, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True, timeout=300)
    # Folders that a .pth file names are not searched for .pth files: the editable install stays out.
    dependencies = Path(importlib.metadata.distribution("torch").locate_file(""))
    (Path(place) / "dependencies.pth").write_text(f"{dependencies}\n")
    return found


def test_the_wheel_has_everything_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*.*")
        if path.suffix in (".py", ".h", ".cpp", ".typed") and ".egg-info" not in str(path)
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_installed_package_is_the_wheels(run: Run, python: Path) -> None:
    done = run(str(python), "-c", "import anyaccel, anyaccel_autoload; print(anyaccel.__file__, anyaccel_autoload.__file__)")
    assert done.returncode == 0, done.stderr
    assert all(path.startswith(str(python.parent.parent)) for path in done.stdout.split())


def test_the_demo_runs_from_the_wheel(run: Run, python: Path) -> None:
    demo = ROOT / "examples" / "digits.py"
    done = run(str(python.with_name("anyaccel")), "run", "--sim", "2", str(demo), "--epochs", "4", timeout_s=600, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert "peak memory on sim:1" in done.stdout
