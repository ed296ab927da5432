"""Work memory: places for what one kernel or routine keeps while it runs.

Every kernel and routine has the whole of it for itself, since they run one after the
other. Next on the walk: `lower.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fnx.runtime.plan import Place

ALIGNMENT = 256


class Work:
    """Places one behind the other; `size` is how many bytes they take together."""

    def __init__(self) -> None:
        self.size = 0
        self._used = 0

    def place(self, nbytes: int) -> Place:
        """A place for so many bytes."""
        place = Place("work", self._used)
        self._used += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.size = max(self.size, self._used)
        return place

    @contextmanager
    def part(self) -> Iterator[None]:
        """Places made inside are of no use any more behind it."""
        used = self._used
        yield
        self._used = used
