"""custom_linear_solve and custom_root: solutions whose derivative is that of equations.

Receives functions and a solver of the user's; outside of a trace a call runs the
solver, inside it records one equation of `fnx/control/solve.py`, which knows what has
been solved. Next on the walk: `implicit.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.arguments import as_array, check_callable, kind_of, leaf_names, name_of
from fnx.api.derivatives import check_linear, linearize, not_linear
from fnx.api.held import (
    Held,
    Operand,
    argument_names,
    cast_to,
    check_same_tree,
    common_type,
    hold,
    mismatch,
    tuple_tree,
    with_captured,
)
from fnx.control.held import with_cotangents
from fnx.control.solve import linear_solve
from fnx.control.solve import root as root_
from fnx.core.array import Array
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.core.trace import evaluate, tracing
from fnx.core.types import ArrayType

Types = tuple[ArrayType, ...]
Function = Callable[..., Any]


@errors.api_boundary
def custom_linear_solve(
    matvec: Function,
    b: Any,
    solve: Function,
    transpose_solve: Function | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """The solution x of `matvec(x) = b`, by a solver that is not differentiated.

    `b` is any tree of real or complex arrays; `matvec` is a linear function of such
    trees, and may close over what the matrix is made of. `solve(matvec, b)` gives x; it
    may use anything, loops too. The derivative of x by `b`, and by what `matvec` closes
    over, comes from the equation: forward mode calls `solve` once more, reverse mode
    calls `transpose_solve(vecmat, b)`, where `vecmat` is the transpose of `matvec`.
    With `symmetric`, the two are one, and so are the solvers. With `has_aux` both
    solvers give a pair `(x, aux)`, and so does the call; `aux` has no derivative.

    Raises `TreeError` or `ShapeError` where `matvec(b)` or the solution differ from
    `b`, `DTypeError` where `b` has an integer leaf, `ArgumentError` where `matvec` is
    not linear, and in reverse mode if there is nothing that solves the transposed
    system. Outside of every trace only the value is asked for: then `solve` is
    believed, and nothing looks at `matvec`.

    >>> import fnx, numpy as np
    >>> def solution(d, b):
    ...     divide = lambda matvec, y: y / matvec(np.ones(2))
    ...     return fnx.lax.custom_linear_solve(lambda x: d * x, b, divide, divide)
    >>> d, b = np.array([2.0, 4.0]), np.array([1.0, 3.0])
    >>> solution(d, b), fnx.grad(lambda d: solution(d, b).sum())(d)
    (Array([0.5 , 0.75], dtype=float64), Array([-0.25  , -0.1875], dtype=float64))
    """
    asker = "custom_linear_solve"
    _check_callables(asker, matvec=matvec, solve=solve)
    if transpose_solve is not None:
        check_callable(f"{asker}: transpose_solve", transpose_solve)
    right = _inexact(asker, "b", b)
    if not tracing():
        return _plain(asker, solve, matvec, right, has_aux)
    system = _same_typed(asker, matvec, right, "b")
    types, fixed = system.types, len(system.captured)
    check_linear(f"{asker}: {system.name}", system.program, fixed)
    held = [system, _solver(asker, solve, matvec, right, types, has_aux)]
    if symmetric:
        held += [system, _without_aux(held[1], len(types))]
    elif transpose_solve is not None:
        vecmat = _transposed(asker, system)
        apply = functools.partial(_applied, asker, vecmat, right)
        turned = _solver(asker, transpose_solve, apply, right, types, has_aux)
        held += [vecmat, _without_aux(turned, len(types))]
    captured, programs = with_captured(held)
    names = ("matvec", "solve", "vecmat", "transpose_solve")
    nothing = [None] * (len(names) - len(programs))
    leaves = [cast_to(x, type) for x, type in zip(right.leaves, types, strict=True)]
    results = linear_solve(
        *captured, *leaves, **dict(zip(names, [*programs, *nothing], strict=True))
    )
    return held[1].result(results)


@errors.api_boundary
def custom_root(
    f: Function,
    initial_guess: Any,
    solve: Function,
    tangent_solve: Function,
    has_aux: bool = False,
) -> Any:
    """A root of `f`, by a solver that is not differentiated.

    `initial_guess` is any tree of real or complex arrays; `f` takes such trees and
    gives them, and may close over parameters. `solve(f, initial_guess)` gives x with
    f(x) = 0. The derivative of x by what `f` closes over is that of the implicit
    function: `tangent_solve(g, y)` gives t with g(t) = y, where g is `f` linearized at
    x; it must be linear in y, such as `custom_linear_solve` is. With `has_aux`, `solve`
    gives a pair `(x, aux)`, and so does the call; `aux` has no derivative.

    The values of arrays are known to `solve` where they are known outside: under `grad`
    of concrete arrays it may be a function of NumPy's or SciPy's.

    Raises `TreeError` or `ShapeError` where `f(initial_guess)` or the solution differ
    from the guess, `DTypeError` where the guess has an integer leaf.

    >>> import fnx
    >>> def newton(f, x):
    ...     for _ in range(20):
    ...         x = x - f(x) / fnx.grad(f)(x)
    ...     return x
    >>> def root_of(a):
    ...     divide = lambda g, y: y / g(1.0)
    ...     return fnx.lax.custom_root(lambda x: x * x - a, 1.0, newton, divide)
    >>> root_of(9.0).item(), round(fnx.grad(root_of)(9.0).item(), 6)
    (3.0, 0.166667)
    """
    asker = "custom_root"
    _check_callables(asker, f=f, solve=solve, tangent_solve=tangent_solve)
    guess = {"initial_guess": initial_guess}
    return root_from(asker, guess, f, solve, tangent_solve, has_aux)


def root_from(
    asker: str,
    named: dict[str, Any],
    f: Function,
    solve: Function,
    tangent_solve: Function,
    has_aux: bool,
) -> Any:
    """`custom_root` from the one guess in `named`, for messages of who asks for it."""
    ((name, initial_guess),) = named.items()
    guess = _inexact(asker, name, initial_guess)
    if not tracing():
        return _plain(asker, solve, f, guess, has_aux)
    function = _same_typed(asker, f, guess, name)
    types = function.types
    leaves = [cast_to(x, type) for x, type in zip(guess.leaves, types, strict=True)]
    solver = _solver(asker, solve, f, guess, types, has_aux, leaves)

    @functools.wraps(tangent_solve)
    def tangent(x: Any, y: Any) -> Any:
        found = tangent_solve(linearize(f, x)[1], y)
        return _solution(asker, found, guess, types, False, tangent_solve)

    in_tree = tuple_tree([guess.treedef, guess.treedef])
    names = leaf_names(["the root", "the tangent"], [guess.treedef] * 2)
    moved = hold(asker, tangent, [*types, *types], in_tree, names)
    captured, programs = with_captured([function, solver, moved])
    keys = ("function", "solve", "tangent")
    results = root_(*captured, *leaves, **dict(zip(keys, programs, strict=True)))
    return solver.result(results)


# ---------------------------------------------------------------- checks


def _check_callables(asker: str, **functions: Any) -> None:
    for name, function in functions.items():
        check_callable(f"{asker}: {name}", function)


def _inexact(asker: str, name: str, value: Any) -> Operand:
    """An operand all of whose leaves are real or complex."""
    operand = Operand.of(asker, name, value)
    for leaf, path in zip(operand.leaves, operand.names, strict=True):
        if not dtypes.is_inexact(leaf.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"{asker}: {path} is {leaf.type}",
                    "the solution would have this dtype, and it has to be real or "
                    "complex",
                    "pass a float",
                )
            )
    return operand


def _same_typed(asker: str, function: Function, given: Operand, name: str) -> Held:
    """A function from trees like `given` to such trees; weak types give way."""
    types = given.types
    names = argument_names(function, [given])
    while True:
        held = hold(asker, function, types, tuple_tree([given.treedef]), names)
        what = f"the result of {held.name}"
        check_same_tree(asker, given.treedef, held.out_tree, name, what)
        joint = _joint(asker, given, types, held.types, what)
        if joint == types:
            return held.converted(types)
        types = joint


def _joint(
    asker: str, given: Operand, types: Types, found: Types, what: str
) -> tuple[ArrayType, ...]:
    """The types of `given`, where they are weak and others are found: those."""
    joint, lines = [], []
    for path, one, two in zip(given.names, types, found, strict=True):
        common = common_type(one, two)
        if common is None or (common != one and not one.weak):
            lines.append(f"{path} is {one}, in {what} there is {two}")
        joint.append(common or one)
    if lines:
        fix = "convert it to that shape and dtype"
        raise mismatch(
            f"{asker}: {what} must be of the type of {given.name}", lines, fix
        )
    return tuple(joint)


# ---------------------------------------------------------------- solvers


def _solver(
    asker: str,
    solve: Function,
    function: Function,
    given: Operand,
    types: Types,
    has_aux: bool,
    known: Sequence[Array] | None = None,
) -> Held:
    """A solver of the equation that `function` makes, as a function of its operand."""

    @functools.wraps(solve)
    def run(x: Any) -> Any:
        return _solution(asker, solve(function, x), given, types, has_aux, solve)

    in_tree = tuple_tree([given.treedef])
    names = leaf_names([given.name], [given.treedef])
    return hold(asker, run, types, in_tree, names, known)


def _plain(
    asker: str, solve: Function, function: Function, given: Operand, has_aux: bool
) -> Any:
    """The solution where nothing is traced: what the solver makes of it."""
    x = given.treedef.unflatten(given.leaves)
    return _solution(asker, solve(function, x), given, given.types, has_aux, solve)


def _solution(
    asker: str,
    result: Any,
    like: Operand,
    types: Types,
    has_aux: bool,
    solve: Function,
) -> Any:
    """What a solver has returned, after a check: a tree like that of the operand."""
    name = name_of(solve)
    if has_aux:
        check_pair(asker, name, result)
    solution = result[0] if has_aux else result
    leaves, treedef = tree.flatten(solution)
    what = f"the solution that {name} returned"
    check_same_tree(asker, like.treedef, treedef, like.name, what)
    arrays, lines = [], []
    for x, type_, path in zip(leaves, types, like.names, strict=True):
        array = as_array(x, asker, f"{what}, at {path},")
        common = common_type(type_, array.type)
        if common is None or (common.dtype != type_.dtype and not type_.weak):
            lines.append(f"{path} is {type_}, the solution there is {array.type}")
        elif common.dtype == type_.dtype:
            array = cast_to(array, type_)
        arrays.append(array)
    if lines:
        raise mismatch(f"{asker}: {what} must be of the type of {like.name}", lines)
    checked = treedef.unflatten(arrays)
    return (checked, result[1]) if has_aux else checked


def check_pair(asker: str, solver: str, result: Any) -> None:
    """Raises unless a solver that gives more than the solution has returned a pair."""
    if not (isinstance(result, tuple | list) and len(result) == 2):
        raise errors.ArgumentError(
            errors.explain(
                f"{asker} with has_aux=True: {solver} must return a pair "
                "(solution, aux)",
                f"it returned {kind_of(result)}",
            )
        )


def _without_aux(solver: Held, count: int) -> Held:
    """A solver that gives the solution alone."""
    program = solver.program
    slim = simplify(Program(program.inputs, program.eqns, program.outputs[:count]))
    return Held(solver.name, slim, solver.captured, solver.out_tree)


def _applied(asker: str, vecmat: Held, like: Operand, x: Any) -> Any:
    """The transposed function of a tree, which must be like the right side."""
    what = "what vecmat is given"
    given = Operand.of(asker, what, x)
    check_same_tree(asker, like.treedef, given.treedef, like.name, what)
    joint = _joint(asker, given, given.types, vecmat.types, like.name)
    leaves = [cast_to(x, type) for x, type in zip(given.leaves, joint, strict=True)]
    return vecmat.result(evaluate(vecmat.program, [*vecmat.captured, *leaves]))


def _transposed(asker: str, system: Held) -> Held:
    """The transpose of a linear function."""
    program, count = system.program, len(system.types)
    linear = (False,) * len(system.captured) + (True,) * count
    every = (True,) * count
    try:
        turned = with_cotangents(program, linear, every, every)
    except (errors.ArgumentError, AttributeError) as error:
        what = f"{asker}: {system.name}"
        raise not_linear(what, "it multiplies what depends on them") from error
    name = f"the transpose of {system.name}"
    return Held(name, turned, system.captured, system.out_tree)
