"""ragged_all_to_all: slices of unequal lengths from each replica to each other.

Receives rows and where the slices lie, gives rows. Next on the walk: `fnx/nn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.lax.parallel import all_to_all, joined_count
from fnx.numpy.counting import where
from fnx.numpy.creation import arange
from fnx.numpy.operands import as_array
from fnx.numpy.shaping import reshape


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
) -> Array:
    """The rows of `output`, written over by slices that other replicas send.

    The four last arguments are integers [K], as many for each replica along the axis:
    slice k of `operand`, of `send_sizes[k]` rows from `input_offsets[k]` on, goes to
    replica `k // (K / replicas)`, where it is written from row `output_offsets[k]` on;
    `recv_sizes` says how many rows come. Slices that are received must not overlap.

    Each slice travels in as many rows as `operand` or `output` have, the smaller
    number: lengths are known only while the program runs.

    Raises `ShapeError` for arguments that do not fit together, `DTypeError` for offsets
    or sizes that are no integers.

    >>> import fnx, fnx.numpy as fnp
    >>> def turn(x, sizes):
    ...     zeros, where = fnp.zeros(3), fnp.array([0, 1])
    ...     came = fnx.lax.all_to_all(sizes, "i", 0, 0)
    ...     return ragged_all_to_all(x, zeros, where, sizes, where * 0 + 2 *
    ...         fnx.lax.axis_index("i"), came, axis_name="i")
    >>> x = fnp.array([[1.0, 2, 3], [4, 5, 6]])
    >>> fnx.vmap(turn, axis_name="i")(x, fnp.array([[1, 2], [1, 1]])).tolist()
    [[1.0, 0.0, 4.0], [2.0, 3.0, 5.0]]
    """
    rows, out = (as_array("ragged_all_to_all", x) for x in (operand, output))
    named = {
        "input_offsets": input_offsets,
        "send_sizes": send_sizes,
        "output_offsets": output_offsets,
        "recv_sizes": recv_sizes,
    }
    numbers = [_numbers(name, value) for name, value in named.items()]
    where_from, _, where_to, came = numbers
    count = joined_count("ragged_all_to_all", axis_name, axis_index_groups)
    _check(rows, out, numbers, count)
    width = min(rows.shape[0], out.shape[0])
    if width == 0:
        return out

    def exchanged(x: Array) -> Array:
        parts = reshape(x, (count, -1, *x.shape[1:]))
        found = all_to_all(parts, axis_name, 0, 0, axis_index_groups=axis_index_groups)
        return reshape(found, x.shape)

    row: Any = arange(width, dtype=dtypes.int32)
    source: Any = where_from
    sent = rows.at[source[:, None] + row].get(mode="clip")  # type: ignore[attr-defined]
    place: Any = exchanged(where_to)
    here: Any = came
    # rows that are not part of a slice fall out at the end
    target = where(row < here[:, None], place[:, None] + row, out.shape[0])
    found: Array = out.at[target].set(exchanged(sent), mode="drop")  # type: ignore[attr-defined]
    return found


def _numbers(name: str, value: Any) -> Array:
    array = as_array("ragged_all_to_all", value)
    if not dtypes.is_integer(array.dtype):
        raise errors.DTypeError(
            f"ragged_all_to_all: {name} are {array.type}; they must be integers"
        )
    return array


def _check(rows: Array, out: Array, numbers: Sequence[Array], count: int) -> None:
    shapes = {x.shape for x in numbers}
    lengths = {shape for shape in shapes if len(shape) == 1 and shape[0] % count == 0}
    fitting = rows.ndim and out.ndim and rows.shape[1:] == out.shape[1:]
    if len(shapes) != 1 or shapes != lengths or not fitting or rows.dtype != out.dtype:
        shown = ", ".join([str(x.type) for x in (rows, out, *numbers)])
        raise errors.ShapeError(
            errors.explain(
                f"ragged_all_to_all({shown})",
                "operand and output must be rows of one kind, offsets and sizes "
                f"vectors of one length, a multiple of the {count} replicas",
            )
        )
