"""What must hold on every backend: plain functions that prove effects, for backend authors to run.

    for check in anyaccel.conformance.checks():
        check.run()

A check returns if the rule holds, raises AssertionError if not, and raises `Skip` where the backend lacks what it needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from .context import Context, Skip

__all__ = ["Check", "Context", "Skip", "check", "checks"]

_GROUPS = ("device", "stream", "event", "allocator")
_registered: list[Check] = []


@dataclass(frozen=True)
class Check:
    """One rule and the function that proves it.

    Attributes:
        group: the noun it is about.
        name: the rule in a few words.
        rule: what must hold, and where that comes from: a torch function, a CUDA rule, an issue.
        prove: the function, which takes a Context.
    """

    group: str
    name: str
    rule: str
    prove: Callable[[Context], None]

    @property
    def id(self) -> str:
        """`group/name`: what to select it by."""
        return f"{self.group}/{self.name}"

    def run(self) -> None:
        """Prove it on this process's accelerator, and leave device, streams and memory as they were.

        Blocks the host: yes. Ordered on: all streams of all devices.

        Raises:
            AssertionError: the rule does not hold.
            Skip: the backend lacks what the check needs.
        """
        with Context() as context:
            self.prove(context)


def check(prove: Callable[[Context], None]) -> Callable[[Context], None]:
    """Register a function as a check: its docstring is the rule, its module and name say the rest."""
    _registered.append(Check(prove.__module__.rpartition(".")[2], prove.__name__, str(prove.__doc__), prove))
    return prove


def checks() -> tuple[Check, ...]:
    """Return all checks, group by group.

    Blocks the host: no. Ordered on: nothing.
    """
    for group in _GROUPS:
        importlib.import_module(f"{__name__}.checks.{group}")
    return tuple(_registered)
