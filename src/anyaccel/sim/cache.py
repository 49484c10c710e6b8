"""Where compiled libraries are kept: a folder of this user, entries that are whole or absent, and one lock."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyaccel.errors import BuildError

_SEAL = "seal.json"
_BUILDING = "building-"
_UNUSED_S = 30 * 24 * 3600
_REMEDY = "Set ANYACCEL_CACHE to a folder of your own that can be written."


@dataclass(frozen=True)
class Entry:
    """One finished library and its seal: its size and hash, and when it was made."""

    folder: Path
    library: Path
    seal: dict[str, Any]


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """Name the folder that keeps the compiled sim: below ANYACCEL_CACHE, or in the user's cache. Makes nothing.

    Blocks the host: no.
    Ordered on: nothing.
    """
    chosen = (os.environ if environ is None else environ).get("ANYACCEL_CACHE", "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute() / "sim"
    import platformdirs

    return Path(platformdirs.user_cache_dir("anyaccel", appauthor=False)) / "sim"


def check_private(root: Path) -> None:
    """Check that nobody else can put a library where this process loads one from.

    Raises:
        BuildError: the folder belongs to another user, or is no folder.
    """
    try:
        status = root.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BuildError(f"The cache folder {root} cannot be used: {error}. {_REMEDY}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise BuildError(f"The cache folder {root} is not a folder. {_REMEDY}")
    if status.st_uid != os.geteuid():
        raise BuildError(
            f"The cache folder {root} belongs to user {status.st_uid}, and you (user {os.geteuid()}) would run what is in it. {_REMEDY}"
        )
    if status.st_mode & 0o077:
        try:
            root.chmod(0o700)
        except OSError as error:
            raise BuildError(f"The cache folder {root} is open to other users and cannot be closed: {error}. {_REMEDY}") from error


def find(root: Path, key: str, library_name: str) -> tuple[Entry | None, str]:
    """Look an entry up and check it whole, so that a truncated library is never mapped (that would be a SIGBUS).

    Returns:
        The entry and "", or None and what is wrong with what is there ("" if nothing is there).
    """
    folder = root / key
    library = folder / library_name
    try:
        seal = json.loads((folder / _SEAL).read_bytes())
        content = library.read_bytes()
        whole = (seal["size"], seal["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    except OSError as error:
        return None, f"{error.strerror}: {error.filename}" if folder.is_dir() else ""
    except (ValueError, KeyError, TypeError):
        return None, "its seal cannot be read"
    if not whole:
        return None, "the library differs from its seal"
    return Entry(folder, library, seal), ""


def touch(entry: Entry) -> None:
    """Note that an entry is in use, which keeps it from being pruned. A cache that is read-only stays as it is."""
    seal = entry.folder / _SEAL
    with contextlib.suppress(OSError):
        if time.time() - seal.stat().st_mtime > _UNUSED_S / 30:
            os.utime(seal)


@contextlib.contextmanager
def locked(root: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the cache's lock, which the operating system releases when its holder dies.

    Args:
        root: the cache folder; made if it is missing.
        on_wait: called once if another process holds the lock.

    Blocks the host: until the lock is free.

    Raises:
        BuildError: the folder cannot be made, written or locked.
    """
    # Only a build needs it, and it takes longer to import than a warm start has.
    import filelock

    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(root)
        lock = filelock.FileLock(root / "lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            on_wait()
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        raise BuildError(f"The cache folder {root} cannot be written or locked: {error}. {_REMEDY}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def building_folder(root: Path) -> Iterator[Path]:
    """Give a fresh folder to build in, and remove it afterwards. To be called with the lock held.

    Raises:
        BuildError: the folder cannot be made.
    """
    # With the lock held nobody else builds: these were left behind by builders that were killed.
    for stale in root.glob(f"{_BUILDING}*"):
        shutil.rmtree(stale, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=root))
    except OSError as error:
        raise BuildError(f"The cache folder {root} cannot be written: {error}. {_REMEDY}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, root: Path, key: str, library_name: str, facts: dict[str, Any]) -> Entry:
    """Seal the library in `folder` and make it the entry `key`, in one step. To be called with the lock held.

    Args:
        folder: holds the library, on the same file system as `root`.
        root: the cache folder.
        key: the entry's name; a damaged entry of that name is replaced.
        library_name: the library's file name.
        facts: what else the seal is to say.
    """
    content = (folder / library_name).read_bytes()
    seal = facts | {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "made_ns": time.time_ns()}
    staged = folder / "entry"
    staged.mkdir(mode=0o700)
    (folder / library_name).replace(staged / library_name)
    (staged / _SEAL).write_text(json.dumps(seal, indent=2), encoding="utf-8")
    entry = root / key
    if entry.exists():
        # A folder can't be renamed onto a full one. What the old one holds may be in use: it's moved aside, never written to.
        entry.rename(folder / "replaced")
    staged.rename(entry)
    return Entry(entry, entry / library_name, seal)


def prune(root: Path) -> None:
    """Remove what was not used for 30 days. To be called with the lock held."""
    oldest = time.time() - _UNUSED_S
    for seal in root.glob(f"*/{_SEAL}"):
        if seal.stat().st_mtime < oldest:
            shutil.rmtree(seal.parent, ignore_errors=True)
    for kept in [*root.glob("objects/*.o"), *root.glob("*.log")]:
        if kept.stat().st_mtime < oldest:
            kept.unlink(missing_ok=True)
