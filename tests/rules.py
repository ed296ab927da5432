"""Applies the rules of primitives to cases: calls, jvp, and whole derivative passes.

Receives a `Case` (see `cases.py`), gives operands, outputs and tangents; `push_forward`
and `pull_back` differentiate a small program with nothing but the primitives' own
rules, so that these are tested without the transformations.
Next on the walk: `test_primitives.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.core.primitive import LinearInput, Primitive
from fnx.core.primitive import primitive as named
from fnx.core.program import Literal, Program
from fnx.core.trace import trace
from fnx.core.types import ArrayType
from fnx.runtime.array import from_numpy
from tests.cases import Arrays, BadCase, Case

# How often a function is derived in all its arguments, where that has an end: of more
# no formula is known, and they raise.
ORDERS = {
    **{"hessenberg": 0, "tridiagonal": 0, "complex_digamma": 0},
    **{"igamma_grad_a": 1, "random_gamma_grad": 1, "hyp1f1": 1, "hyp2f1": 1},
    **{"betainc_derivative": 1, "zeta_derivative": 1},
    **{"igamma": 2, "igammac": 2, "betainc": 2, "poisson_entropy": 2, "zeta": 2},
}

# ---------------------------------------------------------------- calling a case


def arguments(case: Case) -> Arrays:
    """The arguments of a case, made once."""
    found = _made.get(case.id)
    if found is None:
        found = _made[case.id] = case.args(rng_of(case))
    return found


_made: dict[str, Arrays] = {}


def rng_of(case: Case | BadCase) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.id.encode()))


def is_inexact(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    return dtype is not None and dtypes.is_inexact(dtype)


def operands(case: Case, args: Sequence[Any]) -> list[Any]:
    """The arguments as rules receive them: arrays, and literals for the scalars."""
    arrays = [x if is_scalar(x) else from_numpy(np.asarray(x)) for x in args]
    if not any(is_scalar(x) for x in args):
        return arrays
    # What the call makes of a Python scalar is in the equation that it records.
    traced = trace(lambda: [named(case.primitive)(*arrays, **case.params)], ())
    (eqn,) = traced.program.eqns
    atoms = zip(eqn.inputs, arrays, strict=True)
    return [atom if isinstance(atom, Literal) else x for atom, x in atoms]


def is_scalar(x: Any) -> bool:
    return isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic)


def call(case: Case, args: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of the primitive, always as a tuple."""
    return many(named(case.primitive), named(case.primitive)(*args, **case.params))


def many(primitive: Primitive, result: Any) -> tuple[Any, ...]:
    """The result of a primitive, or of one of its rules, as a tuple."""
    return tuple(result) if primitive.multiple else (result,)


def value(x: Any) -> np.ndarray[Any, Any]:
    """The operand in NumPy."""
    return np.asarray(x.value if isinstance(x, Literal) else x)


def wide(x: Any) -> Any:
    """The argument in double precision."""
    if not is_inexact(x):
        return x
    return x.astype(np.complex128 if dtypes.is_complex(x.dtype) else np.float64)


def precise(case: Case) -> list[Any]:
    """Operands in double precision where the params allow it."""
    args = arguments(case)
    try:
        found = operands(case, [wide(x) for x in args])
        named(case.primitive).infer(*[x.type for x in found], **case.params)
    except errors.FnxError:
        return operands(case, args)
    return found


def epsilon(*arrays: Any) -> float:
    """The coarsest precision among inexact arrays."""
    found = [float(finfo(value(x)).eps) for x in arrays if is_inexact(value(x))]
    return max(found, default=2.0**-52)


def finfo(x: Any) -> Any:
    return ml_dtypes.finfo(dtypes.real_dtype(x.dtype))


def random_like(rng: np.random.Generator, type: ArrayType) -> Array:
    """A tangent or cotangent of that type."""
    x = rng.standard_normal(type.shape)
    if dtypes.is_complex(type.dtype):
        x = x + 1j * rng.standard_normal(type.shape)
    return from_numpy(np.asarray(x, type.dtype))


def assert_close(got: Any, want: Any, tolerance: float) -> None:
    """Equal within a tolerance relative to the largest element and 1, or exactly."""
    got, want = double(got), double(want)
    assert got.shape == want.shape
    if not is_inexact(want):
        np.testing.assert_array_equal(got, want)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    size = 1 + min(np.abs(want[finite]).max(initial=0), 1e300)
    np.testing.assert_allclose(got[finite], want[finite], 0, tolerance * size)


def double(x: Any) -> np.ndarray[Any, Any]:
    x = value(x)
    return wide(x) if is_inexact(x) else x


# ---------------------------------------------------------------- derivatives


def jvp(case: Case, args: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of the outputs; zeros for those without one."""
    primitive = named(case.primitive)
    outputs, found = primitive.jvp(args, tangents, **case.params)
    pairs = zip(many(primitive, outputs), many(primitive, found), strict=True)
    return [zero_like(x) if t is None else t for x, t in pairs]


def zero_like(x: Any) -> Array:
    return from_numpy(np.zeros(x.shape, x.dtype))


def tangents_at(case: Case, args: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """Random tangents of some arguments; the others have none."""
    rng = np.random.default_rng(1)
    tangents: list[Any] = [None] * len(args)
    for i in places:
        tangents[i] = random_like(rng, args[i].type)
    return tangents


def moved(x: Any, t: Any, step: complex) -> Any:
    """The argument displaced along its tangent."""
    if t is None:
        return x
    return from_numpy(np.asarray(value(x) + step * value(t)))


def complex_like(x: Any) -> Any:
    """The operand as a complex one of double precision."""
    z = value(x).astype(np.complex128)
    if isinstance(x, Literal):
        return Literal(z, x.type.with_dtype(z.dtype))
    return from_numpy(z)


def jvp_program(
    case: Case, args: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Program, list[Any]]:
    """The jvp rule as a program, and its inputs: constants, arrays, then tangents.

    It gives the tangents of the outputs that have one.
    """
    arrays = [x for x in args if isinstance(x, Array)]
    moving = [t for t in tangents if t is not None]
    primitive = named(case.primitive)

    def function(*values: Any) -> list[Any]:
        rest = iter(values)
        xs = [next(rest) if isinstance(x, Array) else x for x in args]
        ts = [None if t is None else next(rest) for t in tangents]
        _, found = primitive.jvp(xs, ts, **case.params)
        return [t for t in many(primitive, found) if t is not None]

    traced = trace(function, [x.type for x in [*arrays, *moving]])
    return traced.program, [*traced.captured, *arrays, *moving]


def push_forward(
    program: Program, args: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Outputs and their tangents, by the jvp rule of each equation."""
    env = dict(zip(program.inputs, zip(args, tangents, strict=True), strict=True))

    def refer(atom: Any) -> tuple[Any, Any]:
        return (atom, None) if isinstance(atom, Literal) else env[atom]

    for eqn in program.eqns:
        xs, ts = zip(*map(refer, eqn.inputs), strict=True) if eqn.inputs else ((), ())
        if all(t is None for t in ts):
            outputs = many(eqn.primitive, eqn.primitive(*xs, **eqn.params))
            moved_by: Sequence[Any] = [None] * len(outputs)
        else:
            pair = eqn.primitive.jvp(xs, ts, **eqn.params)
            outputs, moved_by = [many(eqn.primitive, part) for part in pair]
        env.update(zip(eqn.outputs, zip(outputs, moved_by, strict=True), strict=True))
    found = [refer(atom) for atom in program.outputs]
    return [x for x, _ in found], [t for _, t in found]


def pull_back(
    program: Program, primals: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """Cotangents of the trailing inputs, in which the program is linear."""
    env: dict[Any, Any] = dict(zip(program.inputs, primals, strict=False))
    linear = set(program.inputs[len(primals) :])
    tape = []
    for eqn in program.eqns:
        if linear.isdisjoint(eqn.inputs):
            xs = [a if isinstance(a, Literal) else env[a] for a in eqn.inputs]
            result = many(eqn.primitive, eqn.primitive(*xs, **eqn.params))
            env.update(zip(eqn.outputs, result, strict=True))
        else:
            linear.update(eqn.outputs)
            tape.append(eqn)
    sums: dict[Any, Any] = {}
    accumulate(sums, program.outputs, cotangents)
    for eqn in reversed(tape):
        cts = tuple([sums.get(var) for var in eqn.outputs])
        if all(ct is None for ct in cts):
            continue
        given = [
            LinearInput(a.type) if a in linear else env.get(a, a) for a in eqn.inputs
        ]
        assert eqn.primitive.linear, f"{eqn.primitive} is no linear primitive"
        ct = cts if eqn.primitive.multiple else cts[0]
        results = eqn.primitive.transpose(ct, *given, **eqn.params)
        accumulate(sums, eqn.inputs, results)
    return [sums.get(var) for var in program.inputs[len(primals) :]]


def accumulate(sums: dict[Any, Any], atoms: Sequence[Any], cts: Sequence[Any]) -> None:
    """Adds cotangents to those that the atoms have."""
    for atom, ct in zip(atoms, cts, strict=True):
        if ct is not None and not isinstance(atom, Literal):
            sums[atom] = named("add")(sums[atom], ct) if atom in sums else ct
