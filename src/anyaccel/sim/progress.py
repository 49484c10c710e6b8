"""What a person sees while the sim is compiled: a bar on a terminal, one plain line elsewhere. All on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

# Called with what was finished, the count of finished steps, and the count of all.
Step = Callable[[str, int, int], None]


def say(text: str, end: str = "\n") -> None:
    """Write to stderr, if there is one."""
    if sys.stderr is not None:
        print(text, end=end, file=sys.stderr, flush=True)


@contextlib.contextmanager
def shown(title: str) -> Iterator[Step]:
    """Show that something long is going on, and how long it took.

    Args:
        title: what is going on.

    Returns:
        A function to be called after each step.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        with _bar(title) as step:
            yield step
        return
    started = time.monotonic()
    say(f"{title} ...", end="")
    try:
        yield lambda name, done, total: None
    except BaseException:
        say(" failed")
        raise
    say(f" done in {time.monotonic() - started:.0f} s")


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Step]:
    # A warm start never comes here, and should not pay for the import.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[step]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None, step="")

        def step(name: str, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, step=name)

        yield step
        progress.update(task, step="done")
