"""jet: Taylor mode, the higher derivatives of a function along a curve.

Receives a function, a point and the derivatives of a curve through it; traces the
function there, and runs the program that `fnx.transforms.jet` makes of it.
Next on the walk: `jacobian.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import (
    as_array,
    check_callable,
    leaf_names,
    parameter_names,
    trace_tree,
)
from fnx.api.tangents import filled, moves, read
from fnx.control.call import series_results
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import mul
from fnx.ops.elementwise import div
from fnx.transforms.jet import jet_program


@errors.api_boundary
def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Any],
    factorial_scaled: bool = True,
) -> tuple[Any, Any]:
    """The value of a function and its derivatives along a curve (Taylor mode).

    `primals` are the arguments, the point where the curve begins; `series` has for each
    of them the derivatives of the curve there, of order 1, 2, …, equally many for all,
    each of the structure, shapes and dtypes of the argument (`float0` for integers).
    Gives `(output, series_out)`: the output's tree, and that tree with a list of the
    derivatives of order 1, 2, … at each leaf. With `factorial_scaled=False` both series
    are Taylor coefficients: derivatives divided by the factorial of their order.

    Raises `ArgumentError` for series of different lengths, and `TreeError`,
    `ShapeError` or `DTypeError` naming the derivative that does not fit.

    >>> import fnx
    >>> y, ys = fnx.jet(lambda t: t**3, (2.0,), ([1.0, 0.0, 0.0],))
    >>> [d.item() for d in ys]
    [12.0, 12.0, 6.0]
    """
    check_callable("jet", fun)
    order = _order(primals, series)
    leaves, in_tree = tree.flatten(tuple(primals))
    names = leaf_names(parameter_names(fun, len(primals)), primals)
    arrays = [as_array(x, "jet", name) for x, name in zip(leaves, names, strict=True)]
    types = tuple([x.type for x in arrays])
    what = [f"derivative {k + 1} in the series" for k in range(order)]
    steps = [
        read("jet", what[k], tuple(row), in_tree, types, "the primals")
        for k, row in enumerate(zip(*series, strict=True))
    ]
    if not factorial_scaled:
        steps = [
            [mul(t, float(math.factorial(k))) for t in step]
            for k, step in enumerate(steps, 1)
        ]
    traced = trace_tree(
        lambda leaves: fun(*in_tree.unflatten(leaves)),
        types,
        asker="jet",
        names=names,
        known=arrays,
    )
    fixed = (False,) * len(traced.captured)
    program, moving = jet_program(traced.program, order, fixed + moves(types))
    given = [t for terms in zip(*steps, strict=True) for t in terms]
    values = evaluate(program, [*traced.captured, *arrays, *given])
    outputs, found = series_results(values, moving, order)
    ends = [
        _terms(x.type, terms, order, factorial_scaled)
        for x, terms in zip(outputs, found, strict=True)
    ]
    return traced.out_tree.unflatten(outputs), traced.out_tree.unflatten(ends)


def _terms(
    type: ArrayType, terms: Sequence[Any] | None, order: int, scaled: bool
) -> list[Any]:
    """What one output has in the resulting series, zeros if it does not move."""
    ends = filled(terms or [None] * order, [type] * order)
    if scaled or terms is None:
        return ends
    return [div(t, float(math.factorial(k))) for k, t in enumerate(ends, 1)]


def _order(primals: Any, series: Any) -> int:
    """How many derivatives each argument has."""
    for name, value in (("primals", primals), ("series", series)):
        if not isinstance(value, tuple | list):
            raise errors.ArgumentError(
                errors.explain(
                    f"jet: {name} must be a tuple or list, one entry for each argument",
                    f"got {type(value).__name__}",
                    f"write ({name},)",
                )
            )
    if not all(isinstance(terms, tuple | list) for terms in series):
        reason = "each entry is a list of the derivatives of order 1, 2, …"
        raise errors.ArgumentError(
            errors.explain(
                "jet: an entry of series is no list", reason, "write ([first, second],)"
            )
        )
    lengths = [len(terms) for terms in series]
    if len(primals) != len(series) or len(set(lengths)) != 1 or not lengths[0]:
        raise errors.ArgumentError(
            errors.explain(
                f"jet: {len(primals)} primals, and series of the lengths {lengths}",
                "each argument has one series, all of one length of at least 1",
                "pad the shorter ones with zeros",
            )
        )
    return lengths[0]


__all__ = ["jet"]
