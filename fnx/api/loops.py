"""scan, while_loop, fori_loop, map: functions that are applied again and again.

Receives functions over trees and what they begin with; has each function traced, the
body until what it returns agrees with what it is given (`steady.py`), and applies the
primitives of `fnx/control/scan.py` and `fnx/control/while_loop.py`. Next on the walk:
`prefixes.py`.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from fnx import dtypes, errors, tree
from fnx.api.arguments import as_array, kind_of, name_of, parameter_names
from fnx.api.disabling import jit_is_disabled
from fnx.api.held import (
    Held,
    Operand,
    argument_names,
    cast_to,
    hold,
    mismatch,
    tuple_tree,
)
from fnx.api.progress import Progress, progress_of, reporting
from fnx.api.remat import checkpoint as checkpointed
from fnx.api.rounds import Body, Pace, run, segment, unrolling
from fnx.api.steady import steady
from fnx.api.threaded import WRITING_TEST, loop_with_refs, scan_with_refs
from fnx.api.vmap import vmap
from fnx.control.recording import Rounds
from fnx.control.while_loop import while_loop as while_loop_
from fnx.core.array import Array
from fnx.core.frames import discovering, entered, read, write_all
from fnx.core.trace import Tracer
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import broadcast_in_dim, iota, reshape

# ---------------------------------------------------------------- scan


@errors.api_boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    checkpoint: int | str | None = None,
    *,
    progress: bool | str = False,
) -> tuple[Any, Any]:
    """Applies `carry, y = f(carry, x)` to row after row: the last carry, all the y.

    `init` is the first carry, any tree of arrays. `xs` is a tree of arrays whose
    leading axes have one length, or `None`; then `length` says how many rounds there
    are, and `x` is `None`. The carry that `f` returns has the structure, shapes and
    dtypes of the one that it is given (a Python number in `init` takes the dtype that
    it becomes). The leaves of the `y` are stacked along a new leading axis. With
    `reverse` it begins with the last row; the y stand where their x stood. `unroll`
    rounds are written out in each round of the loop, all of them if it is `True`.

    Reverse mode keeps what every round computes. With `checkpoint=k` it keeps the carry
    of every k-th round alone, and computes k rounds again when it comes to them: less
    memory for one more forward pass. `"sqrt"` is the k near the square root of the
    length, which takes the least memory if a round computes about as much as its carry.

    With `progress`, a bar shows how many rounds are done, on standard error: tqdm's if
    that is installed, else a line of text at every tenth of the way. A string is what
    stands beside it, instead of the name of `f`. Of a derivative it shows the rounds
    that compute the value, and of a mapped loop the rounds of all members together.

    Raises `TreeError` and `ShapeError` where the carry changes or lengths differ,
    `ArgumentError` where `f` returns no pair or nothing tells the length, and for
    `unroll` and `checkpoint` that are none of these.

    >>> import fnx, numpy as np
    >>> fnx.lax.scan(lambda total, x: (total + x, total), 0.0, np.arange(4.0))
    (Array(6., dtype=float64), Array([0., 0., 1., 3.], dtype=float64))
    """
    rows = Operand.of("scan", "xs", xs)
    count = _length("scan", rows, length)
    pace = Pace(
        count,
        bool(reverse),
        unrolling("scan", unroll, count),
        segment("scan", checkpoint, count),
    )
    bar = progress_of(name_of(f), progress, count)
    return _scan("scan", f, init, rows, pace, bar)


def _scan(
    asker: str,
    f: Callable[[Any, Any], Any],
    init: Any,
    rows: Operand,
    pace: Pace,
    bar: Progress | None = None,
    roots: Sequence[str] | None = None,
) -> tuple[Any, Any]:
    """A scan whose options are checked; `roots` are the user's names of carry and x."""
    if jit_is_disabled() and pace.length:  # no round would say what the y are
        return _plain_scan(f, init, rows, pace, bar)
    name = "init_val" if asker == "fori_loop" else "init"
    start = Operand.of(asker, name, init)
    with discovering() as frame:
        inside = entered(f, frame)
        step = steady(asker, inside, start, rows=rows, pairs=True, roots=roots)
    if frame.written:
        cells = list(frame.written)
        body_ = scan_with_refs(f, cells)
        pair = (init, [read(cell) for cell in cells])
        (carry, ends), ys = _scan(asker, body_, pair, rows, pace, bar, roots)
        write_all(cells, ends)
        return carry, ys
    body = Body(step.held.program, step.held.captured)
    leaves = rows.leaves
    if bar is not None:
        body = reporting(body, bar, pace.reverse)
        leaves = (*leaves, iota(shape=(pace.length,), dtype=dtypes.int32, axis=0))
    results = run(body, step.start, leaves, pace)
    many = len(step.start)
    carry = step.carry_tree.unflatten(results[:many])
    return carry, step.rows_tree.unflatten(results[many:])


def _length(asker: str, rows: Operand, length: int | None = None) -> int:
    """How many rows there are."""
    for leaf, name in zip(rows.leaves, rows.names, strict=True):
        if not leaf.shape:
            raise errors.ShapeError(
                errors.explain(
                    f"{asker}: {name} is {leaf.type}",
                    "it has no leading axis to go along",
                    "close over it"
                    + (", or put it into the carry" if asker == "scan" else ""),
                )
            )
    sizes = {leaf.shape[0] for leaf in rows.leaves}
    if length is not None:
        try:
            sizes.add(operator.index(length))
        except TypeError:
            kind = type(length).__name__
            raise errors.ArgumentError(
                f"scan: length must be an integer, got {length!r} of type {kind}"
            ) from None
    if len(sizes) > 1:
        lines = [
            f"{name}: {leaf.type}"
            for leaf, name in zip(rows.leaves, rows.names, strict=True)
        ]
        lines += [] if length is None else [f"length: {length}"]
        raise mismatch(f"{asker}: the leading axes must have one length", lines)
    if not sizes:
        fix = "pass length=" if asker == "scan" else "pass arrays to go along"
        raise errors.ArgumentError(
            errors.explain(f"{asker}: xs has no arrays", "", fix)
        )
    (size,) = sizes
    if size < 0:
        raise errors.ArgumentError(f"scan: length must not be negative, got {size}")
    return size


def _plain_scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    rows: Operand,
    pace: Pace,
    bar: Progress | None,
) -> tuple[Any, Any]:
    """A Python loop, while jit is disabled."""
    carry, found, order = init, {}, range(pace.length)
    for i in reversed(order) if pace.reverse else order:
        x = rows.treedef.unflatten([leaf[i] for leaf in rows.leaves])
        carry, found[i] = f(carry, x)
        if bar is not None and bar.is_due(len(found)):
            bar.show(len(found))
    return carry, tree.map(_stack, *[found[i] for i in order])


def _stack(*leaves: Any) -> Any:
    arrays = [as_array(leaf, "scan", "y") for leaf in leaves]
    return concatenate(*[reshape(x, shape=(1, *x.shape)) for x in arrays], axis=0)


# ---------------------------------------------------------------- while_loop, fori_loop


@errors.api_boundary
def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    max_steps: int | None = None,
    *,
    checkpoint: int | str | None = None,
) -> Any:
    """Applies `value = body_fun(value)` as long as `cond_fun(value)` holds.

    `init_val` is any tree of arrays; what `body_fun` returns has the same structure,
    shapes and dtypes (a Python number in `init_val` takes the dtype that it becomes).
    `cond_fun` returns a bool scalar. Under `vmap` it runs until the last member has
    finished; the values of those that have finished rest.

    Derivatives in both modes: reverse mode keeps what every round computes, in memory
    that is reserved for at most `max_steps` rounds, and costs nothing until it is used.
    By default these are as many as fit into 4 GiB, but not more than about a million,
    and not fewer than 4096 (for less than 8 GiB). Loops in loops had better be given
    `max_steps`: each round of the outer one reserves what the inner one does.

    With `checkpoint=k` reverse mode keeps the value after every k rounds, and makes
    those rounds again: `n / k` values and what k rounds compute, for one more run of
    the body. "sqrt" is the k that keeps least for `max_steps` rounds, which must be
    given; `max_steps` is rounded up to a multiple of k.

    Raises `TreeError` or `ShapeError` where the value changes, `ShapeError` where the
    condition is no scalar, `StepLimitError` for more than `max_steps` rounds in reverse
    mode, `ArgumentError` for "sqrt" without `max_steps`.

    >>> import fnx
    >>> halve = lambda x: fnx.lax.while_loop(lambda y: y > 1, lambda y: y / 2, x)
    >>> halve(20.0).item(), fnx.grad(halve)(20.0).item()
    (0.625, 0.03125)
    """
    if jit_is_disabled():
        value = init_val
        while cond_fun(value):
            value = body_fun(value)
        return value
    return _in_rounds("while_loop", cond_fun, body_fun, init_val, max_steps, checkpoint)


def _in_rounds(
    asker: str,
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    max_steps: int | None,
    checkpoint: int | str | None,
    roots: Sequence[str] | None = None,
) -> Any:
    """A loop, in segments where there are checkpoints."""
    most = None if max_steps is None else _steps(asker, max_steps)
    size = _segment(asker, checkpoint, most)
    if size:
        body_fun = _in_segments(asker, cond_fun, body_fun, size)
        most = most if most is None else -(-most // size)
    each = max(size, 1)
    return _while_loop(asker, cond_fun, body_fun, init_val, most, each, roots)


def _segment(asker: str, checkpoint: int | str | None, most: int | None) -> int:
    """After how many rounds a loop keeps its value; 0 if it keeps everything."""
    if checkpoint == "sqrt" and most is None:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: checkpoint='sqrt'",
                "nobody knows how many rounds there will be",
                "pass max_steps=, or a number of rounds as checkpoint=",
            )
        )
    return segment(asker, checkpoint, sys.maxsize if most is None else most)


def _in_segments(
    asker: str,
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    size: int,
) -> Callable[[Any], Any]:
    """So many rounds of a loop, or what is left, made again for the backward pass."""

    @functools.wraps(body_fun)
    def rounds(value: Any) -> Any:
        @functools.wraps(cond_fun)
        def test(state: tuple[Any, Any]) -> Any:
            return (state[0] < size) & cond_fun(state[1])

        @functools.wraps(body_fun)
        def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
            return state[0] + 1, body_fun(state[1])

        start, names = (0, value), ["round", *parameter_names(body_fun, 1)]
        return _while_loop(asker, test, body, start, size, 1, names)[1]

    return cast(Callable[[Any], Any], checkpointed(rounds))


def _while_loop(
    asker: str,
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    most: int | None,
    each: int,
    roots: Sequence[str] | None = None,
) -> Any:
    """A loop whose options are checked; one round of it is `each` of the user's.

    `roots` are the user's names of the index and the value, where `init_val` has both.
    """
    parts = () if roots is None else ("lower", "init_val")
    init = Operand.of(asker, "init_val", init_val, parts)
    with discovering() as frame:
        step = steady(asker, entered(body_fun, frame), init, roots=roots)
    if frame.written:
        cells = list(frame.written)
        test_, body_ = loop_with_refs(cond_fun, body_fun, cells)
        pair = (init_val, [read(cell) for cell in cells])
        value, ends = _while_loop(asker, test_, body_, pair, most, each)
        write_all(cells, ends)
        return value
    types = [x.type for x in step.start]
    names = argument_names(cond_fun, [init])
    in_tree = tuple_tree([init.treedef])
    with discovering() as frame:
        inside = entered(cond_fun, frame)
        test = hold(asker, inside, types, in_tree, names)
    if frame.written:
        raise errors.ArgumentError(WRITING_TEST)
    _check_test(test)
    counts = len(test.captured), len(step.held.captured)
    shape = Rounds(*counts, max_steps=most, each=each)
    results = while_loop_(
        *test.captured,
        *step.held.captured,
        *step.start,
        test=test.program,
        body=step.held.program,
        shape=shape,
    )
    return step.carry_tree.unflatten(results)


def _steps(asker: str, max_steps: int) -> int:
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 0:
        raise errors.ArgumentError(
            f"{asker}: max_steps must be an integer of at least 0, got {max_steps!r}"
        )
    return max_steps


def _check_test(test: Held) -> None:
    """Raises unless a condition returns one bool scalar."""
    asked = f"while_loop: {test.name} must return a bool scalar"
    if not (test.out_tree.num_leaves == 1 and tree.structure(0) == test.out_tree):
        shown = kind_of(test.out_tree.unflatten(test.types))
        raise errors.TreeError(errors.explain(asked, f"it returned {shown}"))
    (type,) = test.types
    if type.shape:
        fix = "reduce it with all() or any(), or map the loop with fnx.vmap"
        raise errors.ShapeError(errors.explain(asked, f"it returned {type}", fix))
    if not dtypes.is_bool(type.dtype):
        fix = "return a comparison, such as value > 0"
        raise errors.DTypeError(errors.explain(asked, f"it returned {type}", fix))


@errors.api_boundary
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
    max_steps: int | None = None,
    checkpoint: int | str | None = None,
) -> Any:
    """Applies `value = body_fun(i, value)` for i in range(lower, upper).

    Where both bounds are known while tracing it is a `scan`, and `unroll` and
    `checkpoint` are those of `scan`; otherwise a `while_loop`, and `max_steps` and
    `checkpoint` are those of `while_loop`. Bounds are integer scalars; `i` has their
    type, that of a Python integer if both are: it takes the dtype of what it meets.

    Raises what `while_loop` raises, `DTypeError` for bounds that are no integers, and
    `ArgumentError` for `unroll` where a bound is traced.

    >>> import fnx
    >>> fnx.lax.fori_loop(0, 5, lambda i, total: total + i, 0).item()
    10
    """
    begin, end = _bounds(lower, upper)
    if jit_is_disabled():
        value = init_val
        for i in range(int(lower), int(upper)):
            value = body_fun(i, value)
        return value
    names = parameter_names(body_fun, 2) if callable(body_fun) else ["i", "value"]
    if not (isinstance(lower, Tracer) or isinstance(upper, Tracer)):
        count = max(int(upper) - int(lower), 0)
        offsets = iota(shape=(count,), dtype=begin.dtype, axis=0)
        offsets = cast_to(offsets, begin.type.with_shape((count,)))
        index = add(offsets, broadcast_in_dim(begin, shape=(count,), dims=()))
        rows = Operand.of("fori_loop", "i", index)
        pace = Pace(
            count,
            unroll=unrolling("fori_loop", 1 if unroll is None else unroll, count),
            segment=segment("fori_loop", checkpoint, count),
        )

        @functools.wraps(body_fun)
        def step(value: Any, i: Any) -> tuple[Any, None]:
            return body_fun(i, value), None

        return _scan("fori_loop", step, init_val, rows, pace, roots=names[::-1])[0]
    if unroll is not None:
        raise errors.ArgumentError(
            errors.explain(
                f"fori_loop: unroll={unroll!r}",
                "a bound is traced, so the number of rounds is not known",
                "leave unroll out, or make the bounds static",
            )
        )

    @functools.wraps(body_fun)
    def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
        return state[0] + 1, body_fun(*state)

    def test(state: tuple[Any, Any]) -> Any:
        return state[0] < end

    start = (begin, init_val)
    options = max_steps, checkpoint
    return _in_rounds("fori_loop", test, body, start, *options, roots=names)[1]


def _bounds(lower: Any, upper: Any) -> tuple[Array, Array]:
    """The bounds of a loop, as arrays of one integer dtype."""
    arrays = []
    for name, value in (("lower", lower), ("upper", upper)):
        array = as_array(value, "fori_loop", name)
        if array.shape:
            raise errors.ShapeError(
                f"fori_loop: {name} must be a scalar, got {array.type}"
            )
        if not dtypes.is_integer(array.dtype):
            raise errors.DTypeError(
                f"fori_loop: {name} must be an integer, got {array.type}"
            )
        arrays.append(array)
    dtype, weak = dtypes.promote(*[(x.type.dtype, x.type.weak) for x in arrays])
    begin, end = [cast_to(x, ArrayType((), dtype, weak)) for x in arrays]
    return begin, end


# ---------------------------------------------------------------- map


@errors.api_boundary
def map(f: Callable[..., Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """The results of f for one row of `xs` after the other, stacked.

    `xs` is a tree of arrays whose leading axes have one length. With `batch_size`, so
    many rows at a time go through `fnx.vmap(f)`: more memory, and fewer rounds.

    Raises `ShapeError` where lengths differ, `ArgumentError` for a `batch_size` that is
    no positive integer.

    >>> import fnx, numpy as np
    >>> fnx.lax.map(lambda x: x * x, np.arange(4.0))
    Array([0., 1., 4., 9.], dtype=float64)
    """
    rows = Operand.of("map", "xs", xs)
    count = _length("map", rows)
    if batch_size is None:
        return _mapped(f, rows, Pace(count))
    if (
        isinstance(batch_size, bool)
        or not isinstance(batch_size, int)
        or batch_size < 1
    ):
        raise errors.ArgumentError(
            f"map: batch_size must be a positive integer, got {batch_size!r}"
        )
    rounds, left = divmod(count, batch_size)
    whole = rounds * batch_size
    groups = [
        reshape(part_of(x, 0, 0, whole), shape=(rounds, batch_size, *x.shape[1:]))
        for x in rows.leaves
    ]
    grouped = Operand("xs", tuple(groups), rows.treedef)
    stacks = tree.map(
        lambda y: reshape(y, shape=(whole, *y.shape[2:])),
        _mapped(vmap(f), grouped, Pace(rounds)),
    )
    if not left:
        return stacks
    rest = rows.treedef.unflatten([part_of(x, 0, whole, count) for x in rows.leaves])
    return tree.map(lambda a, b: concatenate(a, b, axis=0), stacks, vmap(f)(rest))


def map_locally(f: Callable[..., Any], xs: Any) -> Any:
    """`map` of what makes more than it reads, and is best read where it is made."""
    rows = Operand.of("map", "xs", xs)
    return _mapped(f, rows, Pace(_length("map", rows), local=True))


def _mapped(f: Callable[..., Any], rows: Operand, pace: Pace) -> Any:
    @functools.wraps(f)
    def step(carry: None, x: Any) -> tuple[None, Any]:
        return None, f(x)

    roots = ["nothing", *(parameter_names(f, 1) if callable(f) else ["x"])]
    return _scan("map", step, None, rows, pace, roots=roots)[1]
