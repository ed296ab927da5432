"""jvp, vjp, linearize, linear_transpose: the derivative of a function as a linear map.

Receives a function and arguments, traces it there with known values (so that Python may
look at them), and applies the program transformations: jvp; jvp, then split
(`linearize`); then transpose (`vjp`). `LinearMap` is what `grad` and the Jacobians
build upon. Next on the walk: `grad.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    TracedTree,
    as_array,
    check_callable,
    leaf_names,
    parameter_names,
    trace_tree,
    type_of,
)
from fnx.api.tangents import filled, moves, read
from fnx.control.call import spread
from fnx.core.program import Eqn, Program, Var, sub_programs
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, alone
from fnx.transforms.split import linearize_program
from fnx.transforms.transpose import transpose_program
from fnx.tree import Partial, PyTreeDef

PRODUCT = "it multiplies what depends on them"


@record
class LinearMap:
    """The derivative of a function at a point: a linear program over residuals.

    `program` takes the residuals, then a tangent for each input that `moving` marks,
    and gives those of the outputs that `reached` marks; the others are zero.
    """

    asker: str
    program: Program
    in_tree: PyTreeDef
    in_types: tuple[ArrayType, ...]
    moving: Mask
    out_tree: PyTreeDef
    out_types: tuple[ArrayType, ...]
    reached: Mask

    def push(self, residuals: Sequence[Any], tangents: Any) -> Any:
        """Tangents of the inputs, as their tree, to those of the outputs."""
        what = ("the tangents", tangents, self.in_tree, self.in_types, "the primals")
        given = read(self.asker, *what)
        results = evaluate(self.program, [*residuals, *given])
        return self.out_tree.unflatten(
            filled(spread(results, self.reached), self.out_types)
        )

    def push_all(self, residuals: Sequence[Any], *tangents: Any) -> Any:
        """`push` of the tangents as separate arguments."""
        return self.push(residuals, tangents)

    def pull(self, residuals: Sequence[Any], cotangents: Any) -> Any:
        """Cotangents of the outputs, as their tree, to those of the inputs."""
        what = (
            "the cotangent",
            cotangents,
            self.out_tree,
            self.out_types,
            "the output",
        )
        return self.in_tree.unflatten(
            self.pull_flat(residuals, read(self.asker, *what))
        )

    def pull_flat(self, residuals: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        """Cotangents of the inexact outputs to those of all inputs, flat."""
        turned, reached = self.transposed()
        inexact = zip(cotangents, self._outputs_reached(), strict=True)
        given = [ct for ct, is_reached in inexact if is_reached]
        results = spread(evaluate(turned, [*residuals, *given]), reached)
        return filled(spread(results, self.moving), self.in_types)

    def transposed(self) -> tuple[Program, Mask]:
        """From residuals and cotangents to cotangents, and which moving inputs get one.

        Its cotangents are those of the outputs that `reached` marks.
        """
        count = sum(self.moving)
        linear = (False,) * (len(self.program.inputs) - count) + (True,) * count
        return transpose_program(self.program, linear, (True,) * sum(self.reached))

    def _outputs_reached(self) -> list[bool]:
        """Which of the inexact outputs are reached."""
        rows = zip(self.reached, moves(self.out_types), strict=True)
        return [is_reached for is_reached, inexact in rows if inexact]


@record
class Point:
    """A function evaluated at a point, and its derivative there."""

    outputs: list[Any]
    out_tree: PyTreeDef
    map: LinearMap
    residuals: list[Any]
    aux: Any

    def result(self) -> Any:
        """The function's result as a tree."""
        return self.out_tree.unflatten(self.outputs)


def linearized(
    asker: str,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    roots: Sequence[str],
    has_aux: bool = False,
) -> Point:
    """Evaluates `call(*args)` and linearizes it; `roots` name the arguments."""
    leaves, in_tree = tree.flatten(args)
    names = leaf_names(roots, args)
    arrays = [as_array(x, asker, name) for x, name in zip(leaves, names, strict=True)]
    types = tuple([x.type for x in arrays])
    traced = trace_tree(
        lambda leaves: call(*in_tree.unflatten(leaves)),
        types,
        asker=asker,
        names=names,
        known=arrays,
        has_aux=has_aux,
        refs=True,
    )
    moving = moves(types)
    count = traced.out_tree.num_leaves
    fixed = (False,) * len(traced.captured)
    parts = linearize_program(traced.program, fixed + moving, count)
    values = evaluate(parts.primal, [*traced.captured, *arrays])
    kept = len(values) - len(parts.residuals)
    linear = LinearMap(
        asker,
        parts.linear,
        in_tree,
        types,
        moving,
        traced.out_tree,
        tuple([x.type for x in values[:count]]),
        parts.moving_outputs[:count],
    )
    beside = traced.without_refs(values[count:kept])
    aux = traced.aux.rebuild(beside) if traced.aux else None
    return Point(values[:count], traced.out_tree, linear, values[kept:], aux)


# ---------------------------------------------------------------- public


@errors.api_boundary
def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """The value of a function and its derivative along tangents (forward mode).

    `primals` and `tangents` are tuples of equal structure, shapes and dtypes; the
    tangent of an integer argument has dtype `float0`. Gives `(output, tangent)`, and
    the auxiliary data with `has_aux`. Raises `TreeError`, `ShapeError` or `DTypeError`
    naming the tangent that does not fit.

    >>> import fnx
    >>> fnx.jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    check_callable("jvp", fun)
    primals, tangents = _sequences(primals, tangents)
    leaves, in_tree = tree.flatten(primals)
    names = leaf_names(parameter_names(fun, len(primals)), primals)
    arrays = [as_array(x, "jvp", name) for x, name in zip(leaves, names, strict=True)]
    types = tuple([x.type for x in arrays])
    given = read("jvp", "the tangents", tangents, in_tree, types, "the primals")
    traced = trace_tree(
        lambda leaves: fun(*in_tree.unflatten(leaves)),
        types,
        asker="jvp",
        names=names,
        known=arrays,
        has_aux=has_aux,
        refs=True,
    )
    fixed = (False,) * len(traced.captured)
    program, moving = jvp_program(traced.program, fixed + moves(types))
    values = evaluate(program, [*traced.captured, *arrays, *given])
    outputs = traced.without_refs(values[: len(moving)])
    return _with_tangents(outputs, values, moving, traced)


def _sequences(primals: Any, tangents: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple | list):
            raise errors.ArgumentError(
                errors.explain(
                    f"jvp: {name} must be a tuple or list, one entry for each argument",
                    f"got {type(value).__name__}",
                    f"write ({name},)",
                )
            )
    return tuple(primals), tuple(tangents)


def _with_tangents(
    primals: Sequence[Any], values: Sequence[Any], moving: Mask, traced: TracedTree
) -> tuple[Any, ...]:
    """The results of a program with tangents, as trees."""
    out_tree, aux = traced.out_tree, traced.aux
    count = out_tree.num_leaves
    outputs = primals[:count]
    out_tangents = spread(values[len(moving) :], moving)[:count]
    moved = filled(out_tangents, [x.type for x in outputs])
    results = out_tree.unflatten(outputs), out_tree.unflatten(moved)
    return results if aux is None else (*results, aux.rebuild(primals[count:]))


@errors.api_boundary
def linearize(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]:
    """The value of a function and its derivative there, as a function of tangents.

    The function is evaluated once; the linear map may be applied many times. Gives
    `(output, f_jvp)`, and the auxiliary data with `has_aux`; `f_jvp` takes a tangent
    for each argument, and raises as `jvp` does.

    >>> import fnx
    >>> y, f_jvp = fnx.linearize(lambda x: x * x, 3.0)
    >>> f_jvp(1.0).item(), f_jvp(10.0).item()
    (6.0, 60.0)
    """
    check_callable("linearize", fun)
    roots = parameter_names(fun, len(primals))
    point = linearized("linearize", fun, primals, roots, has_aux)
    push = Partial(point.map.push_all, point.residuals)
    return (point.result(), push, point.aux) if has_aux else (point.result(), push)


@errors.api_boundary
def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]:
    """The value of a function and its transposed derivative there (reverse mode).

    Gives `(output, f_vjp)`, and the auxiliary data with `has_aux`. `f_vjp` takes a
    cotangent of the output's structure, shapes and dtypes, and gives a tuple with a
    cotangent for each argument (`float0` for integers). It is a tree, so it may leave a
    `jit`. Raises `TreeError`, `ShapeError` or `DTypeError` for a cotangent that does
    not fit.

    >>> import fnx
    >>> y, f_vjp = fnx.vjp(lambda x, y: x * y, 3.0, 4.0)
    >>> [ct.item() for ct in f_vjp(1.0)]
    [4.0, 3.0]
    """
    check_callable("vjp", fun)
    roots = parameter_names(fun, len(primals))
    point = linearized("vjp", fun, primals, roots, has_aux)
    pull = Partial(point.map.pull, point.residuals)
    return (point.result(), pull, point.aux) if has_aux else (point.result(), pull)


@errors.api_boundary
def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """The transpose of a function that is linear in all of its arguments.

    `primals` give shapes and dtypes only (`ShapeDtypeStruct` will do). The result takes
    a cotangent of the output and gives a tuple, one for each argument. Raises
    `ArgumentError` if the function is not linear.

    >>> import fnx
    >>> fnx.linear_transpose(lambda x: 3.0 * x, 1.0)(2.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    check_callable("linear_transpose", fun)
    leaves, in_tree = tree.flatten(primals)
    names = leaf_names(parameter_names(fun, len(primals)), primals)
    rows = zip(leaves, names, strict=True)
    types = tuple([type_of(x, "linear_transpose", name) for x, name in rows])
    traced = trace_tree(
        lambda leaves: fun(*in_tree.unflatten(leaves)),
        types,
        asker="linear_transpose",
        names=names,
    )
    fixed = len(traced.captured)
    _check_inexact(names, types)
    _check_inexact(leaf_names(["the output"], [traced.out_tree]), traced.out_types)
    asker = "linear_transpose: the function"
    fix = "use vjp, which linearizes first"
    check_linear(asker, traced.program, fixed, fix)
    linear = LinearMap(
        "linear_transpose",
        traced.program,
        in_tree,
        types,
        (True,) * len(types),
        traced.out_tree,
        traced.out_types,
        (True,) * len(traced.out_types),
    )
    _check_multilinear(asker, linear, fix)
    return errors.api_boundary(functools.partial(linear.pull, traced.captured))


def _check_inexact(names: Sequence[str], types: Sequence[ArrayType]) -> None:
    for name, type in zip(names, types, strict=True):
        if not dtypes.is_inexact(type.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"linear_transpose: {name} is {type}",
                    "linear functions are those between real or complex numbers",
                    "close over integers instead of passing them",
                )
            )


def check_linear(what: str, program: Program, fixed: int, fix: str = "") -> None:
    """Raises where an equation is not linear in what depends on the arguments.

    They are the inputs but for the first `fixed`; `what` names the function.
    """
    touched: set[Var] = set(program.inputs[fixed:])
    for eqn in program.eqns:
        moving = [a in touched for a in eqn.inputs]
        if not any(moving):
            continue
        touched.update(eqn.outputs)
        if not any(dtypes.is_inexact(v.type.dtype) for v in eqn.outputs):
            continue
        place = f" at {eqn.source}" if eqn.source else ""
        if not eqn.primitive.linear:
            reason = f"it applies {eqn.primitive.name} to them{place}"
            raise not_linear(what, reason, fix)
        if _multiplies(eqn, moving):
            raise not_linear(what, PRODUCT + place, fix)


def _multiplies(eqn: Eqn, moving: Sequence[bool]) -> bool:
    """Whether an equation needs the value of what moves: its transpose rule says so."""
    if any(sub_programs(eqn)):
        return False  # a loop may be linear and have no transpose
    program = alone(eqn.primitive, eqn.inputs, eqn.params)
    rows = zip(eqn.inputs, moving, strict=True)
    linear = tuple([moves for atom, moves in rows if isinstance(atom, Var)])
    try:
        transpose_program(program, linear, (True,) * len(eqn.outputs))
    except errors.MissingRule:
        return False
    except (errors.ArgumentError, AttributeError):
        return True
    return False


def _check_multilinear(what: str, linear: LinearMap, fix: str) -> None:
    """Raises where two operands of a product depend on the arguments.

    A transpose rule then meets a linear input where it needs a value.
    """
    try:
        linear.transposed()
    except (errors.ArgumentError, AttributeError) as error:
        raise not_linear(what, PRODUCT, fix) from error


def not_linear(what: str, reason: str, fix: str = "") -> Exception:
    """The error for a function that should be linear in its arguments."""
    return errors.ArgumentError(
        errors.explain(f"{what} is not linear in its arguments", reason, fix)
    )


__all__ = [
    "LinearMap",
    "Point",
    "check_linear",
    "jvp",
    "linear_transpose",
    "linearize",
    "linearized",
    "not_linear",
    "vjp",
]
