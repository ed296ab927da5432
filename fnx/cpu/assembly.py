"""`Assembly`: writes LLVM IR with loops and branches, for code that is no kernel.

Receives calls, one for each instruction or block; gives the lines of a function's body.
Used by `lapack.py`, next on the walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

Index = str | int


class Assembly:
    """Lines of a function in order; every value is a register, or a constant as text.

    >>> a = Assembly()
    >>> with a.loop(0, 10) as i:
    ...     a.store("i64", i, "%p", i)
    >>> print(a.lines[2])
      %v1 = phi i64 [ 0, %entry ], [ %v2, %body0 ]
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self._numbers = 0
        self._labels = 0

    def write(self, line: str) -> None:
        """One instruction without a result."""
        self.lines.append(f"  {line}")

    def register(self) -> str:
        """A new register's name."""
        self._numbers += 1
        return f"%v{self._numbers}"

    def value(self, instruction: str) -> str:
        """The register that holds an instruction's result."""
        name = self.register()
        self.write(f"{name} = {instruction}")
        return name

    def begin(self, label: str) -> None:
        """A new block."""
        self.lines.append(f"{label}:")
        self.block = label

    def labels(self, *names: str) -> list[str]:
        """New labels."""
        number = self._labels
        self._labels += 1
        return [f"{name}{number}" for name in names]

    @contextmanager
    def loop(self, begin: Index, end: Index, step: int = 1) -> Iterator[str]:
        """A loop over an index, which is given."""
        head, body, done = self.labels("head", "body", "done")
        before = self.block
        self.write(f"br label %{head}")
        self.begin(head)
        index, following = self.register(), self.register()
        place = len(self.lines)
        more = self.value(f"icmp slt i64 {index}, {end}")
        self.write(f"br i1 {more}, label %{body}, label %{done}")
        self.begin(body)
        yield index
        last = f"[ {following}, %{self.block} ]"
        phi = f"  {index} = phi i64 [ {begin}, %{before} ], {last}"
        self.lines.insert(place, phi)
        self.write(f"{following} = add i64 {index}, {step}")
        self.write(f"br label %{head}")
        self.begin(done)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """What is done if a condition holds."""
        then, after = self.labels("then", "after")
        self.write(f"br i1 {condition}, label %{then}, label %{after}")
        self.begin(then)
        yield
        self.write(f"br label %{after}")
        self.begin(after)

    # -- numbers and memory

    def add(self, x: Index, y: Index) -> Index:
        """The sum of two indices."""
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        return self.value(f"add i64 {x}, {y}")

    def mul(self, x: Index, y: Index) -> Index:
        """The product of two indices."""
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        return self.value(f"mul i64 {x}, {y}")

    def at(self, pointer: str, nbytes: Index) -> str:
        """The address so many bytes further on."""
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

    def place(self, type_: str, pointer: str, index: Index) -> str:
        """The address of an element."""
        return self.value(f"getelementptr {type_}, ptr {pointer}, i64 {index}")

    def load(self, type_: str, pointer: str, index: Index = 0) -> str:
        """An element of an array."""
        place = self.place(type_, pointer, index)
        return self.value(f"load {type_}, ptr {place}{_alignment(type_)}")

    def store(self, type_: str, value: Index, pointer: str, index: Index = 0) -> None:
        """Writes an element of an array."""
        place = self.place(type_, pointer, index)
        self.write(f"store {type_} {value}, ptr {place}{_alignment(type_)}")

    def select(self, condition: str, type_: str, x: str, y: str) -> str:
        """One of two values."""
        return self.value(f"select i1 {condition}, {type_} {x}, {type_} {y}")


def _alignment(type_: str) -> str:
    return ", align 8" if type_.startswith("<") else ""
