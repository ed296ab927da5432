"""The local buffers of a kernel while it is scheduled: their names and their room.

Gives buffers to whoever has values to keep: rows (`keep.py`) and sums of blocks
(`columns.py`). They lie on the stack of the thread that calls the kernel, so that all
of them together must be small.
"""

from __future__ import annotations

from dataclasses import dataclass

from fnx.dtypes import DType
from fnx.kernel.expr import Buffer
from fnx.sizes import surely_at_most

ROOM = 65_536
"""The bytes that the kept rows of one kernel may take."""

PARTIALS = 1 << 17
"""The bytes that the sums of blocks may take: what a second-level cache holds."""


@dataclass(slots=True)
class Locals:
    """What is left for rows and for sums, and how many buffers there are.

    `role` is that of rows.
    """

    room: int = ROOM
    partials: int = PARTIALS
    count: int = 0
    role: str = "local"

    def row(self, dtype: DType, size: int) -> Buffer | None:
        """A buffer for a row; None where there is no room."""
        nbytes = size * dtype.itemsize
        if not surely_at_most(nbytes, self.room):
            return None
        self.room -= nbytes
        return self._buffer("row", dtype, size, self.role)

    def sums(self, dtype: DType, size: int) -> Buffer:
        """A buffer for sums of blocks."""
        self.partials -= size * dtype.itemsize
        return self._buffer("sums", dtype, size, "local")

    def _buffer(self, kind: str, dtype: DType, size: int, role: str) -> Buffer:
        self.count += 1
        return Buffer(f"{kind}{self.count - 1}", dtype, size, role)
