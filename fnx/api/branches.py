"""cond, switch, platform_dependent: one of several functions, chosen at run time.

Receives an index or predicate, functions and operands; traces every function, has their
results agree, and applies the primitive of `fnx/control/cond.py`.
Next on the walk: `loops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.arguments import as_array
from fnx.api.disabling import jit_is_disabled
from fnx.api.held import (
    Held,
    Operand,
    argument_names,
    check_same_tree,
    common_type,
    hold,
    mismatch,
    with_captured,
)
from fnx.api.threaded import branch_with_refs
from fnx.control.cond import cond as cond_
from fnx.core.frames import Cell, discovering, entered, read, write_all
from fnx.core.trace import tracing
from fnx.ops.elementwise import clamp, convert, ne
from fnx.ops.families import literal
from fnx.ops.platform import place_of, platform_index
from fnx.runtime.backend import device_platforms
from fnx.runtime.device import devices_of, where

_NOTHING: Any = object()


@errors.api_boundary
def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _NOTHING,
) -> Any:
    """The result of `true_fun(*operands)` where `pred` holds, else of `false_fun`.

    `pred` is a scalar, traced or not; a number holds unless it is 0. Only the function
    that is chosen runs, but both are traced: their results must be trees of the same
    structure, with leaves of the same shapes and dtypes (a Python number takes the
    dtype of the other one). Under `vmap` with a predicate that differs along the batch,
    each function runs for the members that chose it, and only if there are any.
    `operand` is another way to pass one operand.

    Raises `ShapeError` for a `pred` that is no scalar and for results of different
    types, `TreeError` for results of different structure.

    >>> import fnx
    >>> fnx.lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5.0).item()
    6.0
    """
    index = _predicate("cond", pred)
    functions = (false_fun, true_fun)
    return _choose("cond", index, functions, _operands(operands, operand))


@errors.api_boundary
def switch(
    index: Any,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    operand: Any = _NOTHING,
) -> Any:
    """The result of `branches[index](*operands)`.

    `index` is an integer scalar, traced or not; one that is out of range is moved to
    the next branch. As for `cond`, all branches are traced, and one runs.

    Raises `ArgumentError` without a branch, `DTypeError` for an index that is no
    integer, and what `cond` raises.

    >>> import fnx
    >>> fnx.lax.switch(2, [lambda x: x, lambda x: -x, lambda x: x * x], 3.0).item()
    9.0
    """
    functions = tuple(branches)
    if not functions:
        raise errors.ArgumentError("switch: branches is empty")
    number = as_array(index, "switch", "index")
    if number.shape:
        raise errors.ShapeError(f"switch: index must be a scalar, got {number.type}")
    if not dtypes.is_integer(number.dtype):
        raise errors.DTypeError(f"switch: index must be an integer, got {number.type}")
    # Moved inside before it is made narrower, which would wrap.
    number = clamp(number, 0, len(functions) - 1)
    number = convert(number, dtype=dtypes.int32)
    return _choose("switch", number, functions, _operands(operands, operand))


@errors.api_boundary
def platform_dependent(
    *args: Any,
    default: Callable[..., Any] | None = None,
    **per_platform: Callable[..., Any],
) -> Any:
    """The result of the function for the platform that the program runs on.

    Platforms are named as keywords (`cpu=`; `cuda=` or `gpu=`); `default` serves all
    others. Outside of transformed functions that is where the arguments are, and only
    the function that is chosen is called. Inside, all of them are traced if there are
    other devices than CPUs, and their results must agree as those of `switch`.
    Raises `ArgumentError` where no function serves.

    >>> import fnx
    >>> fnx.lax.platform_dependent(2.0, cpu=lambda x: x + 1, default=lambda x: x)
    3.0
    """
    functions = [*per_platform.values(), *([] if default is None else [default])]
    names, has_default = tuple(per_platform), default is not None
    if not tracing():
        placement = where(tree.leaves(args))
        backend = "cpu" if placement is None else placement.device.backend
        return functions[place_of(backend, names, has_default)](*args)
    if not any(map(devices_of, device_platforms())):
        return functions[place_of("cpu", names, has_default)](*args)
    index = platform_index(platforms=names, default=has_default)
    return _choose("platform_dependent", index, tuple(functions), args)


def _operands(operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    if operand is _NOTHING:
        return operands
    if operands:
        raise errors.ArgumentError("pass operands by position, or operand=, not both")
    return (operand,)


def _predicate(asker: str, pred: Any) -> Any:
    """A predicate as 0 or 1."""
    array = as_array(pred, asker, "pred")
    if array.shape:
        raise errors.ShapeError(
            errors.explain(
                f"{asker}: pred must be a scalar",
                f"it is {array.type}",
                "reduce it with all() or any(), choose element by element with "
                "fnx.numpy.where, or map the function with fnx.vmap",
            )
        )
    if not dtypes.is_bool(array.dtype):
        array = ne(array, literal(0, array.dtype))
    return convert(array, dtype=dtypes.int32)


def _choose(
    asker: str,
    index: Any,
    functions: tuple[Callable[..., Any], ...],
    values: tuple[Any, ...],
) -> Any:
    """Applies the function of that number; both are traced unless jit is disabled."""
    if jit_is_disabled():
        return functions[int(index)](*values)
    operands = [Operand.of(asker, f"operand {n}", x) for n, x in enumerate(values)]
    leaves = [leaf for operand in operands for leaf in operand.leaves]
    in_tree = tree.structure(values)
    types = [leaf.type for leaf in leaves]
    held: list[Held] = []
    cells: dict[Cell, None] = {}
    for function in functions:
        names = argument_names(function, operands)
        with discovering() as frame:
            inside = entered(function, frame)
            held.append(hold(asker, inside, types, in_tree, names))
        cells |= frame.written
    if cells:
        pairs = tuple([branch_with_refs(f, list(cells)) for f in functions])
        start = [read(cell) for cell in cells]
        result, ends = _choose(asker, index, pairs, (start, *values))
        write_all(list(cells), ends)
        return result
    agreed = _agreed(asker, held)
    captured, programs = with_captured(agreed)
    results = cond_(index, *captured, *leaves, branches=tuple(programs))
    return agreed[0].result(results)


def _agreed(asker: str, held: Sequence[Held]) -> list[Held]:
    """The functions, with results of the same types."""
    first = held[0]
    for number, other in enumerate(held[1:], start=1):
        ends = _label(first, 0), _label(other, number)
        check_same_tree(asker, first.out_tree, other.out_tree, *ends)
    types = list(first.types)
    for number, other in enumerate(held[1:], start=1):
        lines = []
        for n, (one, two) in enumerate(zip(types, other.types, strict=True)):
            common = common_type(one, two)
            if common is None:
                path = tree.keystr(tree.paths(first.out_tree)[n])
                lines.append(
                    f"at {path or 'the top'}: {_label(first, 0)} is {one}, "
                    f"{_label(other, number)} is {two}"
                )
            else:
                types[n] = common
        if lines:
            what = f"{asker}: all branches must give the same types"
            raise mismatch(what, lines, "convert the results to one dtype and shape")
    return [one.converted(types) for one in held]


def _label(held: Held, number: int) -> str:
    return f"the result of {held.name} (branch {number})"
