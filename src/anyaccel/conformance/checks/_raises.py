"""What is due to be raised, for checks that run without pytest."""

from __future__ import annotations

import re
from types import TracebackType

__all__ = ["raises"]


class raises:
    """Assert that the block raises `kind`, with a text in which `match` is found."""

    def __init__(self, kind: type[BaseException] | tuple[type[BaseException], ...], *, match: str = "") -> None:
        self._kind, self._match = kind, match

    def __enter__(self) -> None:
        """Do nothing: the end of the block decides."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> bool:
        assert kind is not None, f"nothing was raised where {self._kind} was due"
        if not issubclass(kind, self._kind):
            return False
        assert re.search(self._match, str(error)), f"{error!r} does not say {self._match!r}"
        return True
