"""Arrays that are longer than what they hold: what the `padded` rules take and give.

A program that serves many sizes runs at the largest of them. An axis that varies is a
prefix: the elements from its true size on are padding, and may be anything. Rules
receive `Padded` arrays and `Pads`, which knows sizes and params now and at the largest
size, and tells those of now as scalars of the program.
Next on the walk: `fnx.transforms.padded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fnx.core.program import Program

Ints = tuple[int, ...]


class Extent(NamedTuple):
    """An integer of a program: as it is now, at another size, and at the largest."""

    now: int
    other: int
    largest: int

    @property
    def varies(self) -> bool:
        """Whether it depends on the size."""
        return self.other != self.largest

    def plus(self, more: Extent) -> Extent:
        """The sum."""
        return Extent(*[a + b for a, b in zip(self, more, strict=True)])

    def minus(self, less: Extent) -> Extent:
        """The difference."""
        return Extent(*[a - b for a, b in zip(self, less, strict=True)])

    def times(self, factor: Extent) -> Extent:
        """The product."""
        return Extent(*[a * b for a, b in zip(self, factor, strict=True)])


class Padded(NamedTuple):
    """An array, or a literal, at the largest size, and the sizes of its axes."""

    array: Any
    sizes: tuple[Extent, ...]

    @property
    def varying(self) -> Ints:
        """The axes that vary."""
        return tuple([axis for axis, size in enumerate(self.sizes) if size.varies])

    def with_array(self, array: Any) -> Padded:
        """Another array of the same sizes."""
        return Padded(array, self.sizes)


class Pads(Protocol):
    """What a `padded` rule may ask about its equation."""

    @property
    def now(self) -> Mapping[str, Any]:
        """The params now; the rule is given those at the largest size."""

    @property
    def sizes(self) -> tuple[tuple[Extent, ...], ...]:
        """The sizes of the axes of each output."""

    def extents(self, read: Callable[[Mapping[str, Any]], Ints]) -> tuple[Extent, ...]:
        """Integers that are read from the params."""

    def number(self, extent: Extent) -> Any:
        """An integer as it is now, as a traced int32 scalar."""

    def array(self, value: Any) -> Any:
        """An array that the equation holds now, as an input of the program."""

    def held(
        self, name: str, position: int | None = None
    ) -> tuple[Program, Sequence[Any]]:
        """The padded program that a param holds, and what it needs besides its inputs.

        Those are its first inputs. `position` is a place in a tuple of programs.
        """

    def cannot(self, reason: str) -> Exception:
        """The error of an equation that cannot be padded."""
