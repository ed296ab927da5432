"""visualize_sharding, visualize_array_sharding: which device has which part.

Receives an array, or a shape and how that is cut; prints a drawing of it, a cell for
each part with the numbers of the devices that have it. Next on the walk: `checking.py`.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from fnx import errors
from fnx.api.arguments import as_array
from fnx.core.trace import Tracer
from fnx.runtime.sharding import Sharding


@errors.api_boundary
def visualize_array_sharding(arr: Any) -> None:
    """Prints which device has which part of an array of one or two axes.

    Where inside of a jitted function an array is, the compiler decides; so this is for
    arguments and results. Raises `ArgumentError` for a traced array, `ShapeError` for
    one of no axis, or of more than two.

    >>> import fnx, numpy as np
    >>> fnx.debug.visualize_array_sharding(fnx.device_put(np.ones(3)))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    array: Any = as_array(arr, "visualize_array_sharding", "arr")
    if isinstance(array, Tracer):
        raise errors.ArgumentError(
            errors.explain(
                f"visualize_array_sharding: arr is a traced array of type {array.type}",
                "where it will be is decided when the program is compiled",
                "return it, and look at the result; fnx.lax.with_sharding_constraint "
                "says where it should be",
            )
        )
    visualize_sharding(array.shape, array.sharding)


@errors.api_boundary
def visualize_sharding(shape: Sequence[int], sharding: Sharding) -> None:
    """Prints which device has which part of an array of that shape, which is cut so.

    The rows of the drawing are parts along axis 0; a vector is one row. A part that
    several devices have says all of them. Raises `ShapeError` for no axis, for more
    than two, and for one that cannot be cut in equal parts.

    >>> import fnx
    >>> from fnx.sharding import NamedSharding, P
    >>> mesh = fnx.make_mesh((1,), ("data",), devices=fnx.devices("cpu")[:1])
    >>> fnx.debug.visualize_sharding((4, 2), NamedSharding(mesh, P("data")))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    sizes = tuple(shape)
    if len(sizes) not in (1, 2):
        raise errors.ShapeError(
            f"visualize_sharding: a drawing has one or two axes, the shape is {sizes}"
        )
    parts: dict[tuple[int, ...], list[Any]] = {}
    for device, index in sharding.devices_indices_map(sizes).items():
        begin = tuple(
            [part.indices(n)[0] for part, n in zip(index, sizes, strict=True)]
        )
        parts.setdefault(begin if len(begin) == 2 else (0, *begin), []).append(device)
    rows, columns = [sorted(set(places)) for places in zip(*parts, strict=True)]
    names = [[_name(parts[row, column]) for column in columns] for row in rows]
    builtins.print(_drawing(names))


def _name(devices: Sequence[Any]) -> str:
    """The devices that have a part: their kind, and their numbers."""
    numbers = ",".join([str(n) for n in sorted([device.id for device in devices])])
    return f"{devices[0].platform.upper()} {numbers}"


def _drawing(cells: Sequence[Sequence[str]]) -> str:
    """A table with lines around its cells, which are as wide as the widest one."""
    wide = max([len(cell) for row in cells for cell in row])
    many = len(cells[0])

    def line(left: str, middle: str, right: str) -> str:
        return left + middle.join(["─" * (wide + 2)] * many) + right

    rows = ["│".join(["", *[f" {cell:^{wide}} " for cell in row], ""]) for row in cells]
    between = f"\n{line('├', '┼', '┤')}\n"
    return "\n".join([line("┌", "┬", "┐"), between.join(rows), line("└", "┴", "┘")])
