"""Every rule of every primitive against every case of `cases_*.py`.

A primitive without cases fails here; a new one gets all of this from its first case:
infer = reference; jvp against differences, a complex step and JAX; second derivatives;
the adjoint identity of `transpose`, and of the transposed `jvp`; batch against a loop;
weak types; the errors of the bad cases.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx.control
import fnx.ops
import fnx.runtime.eager
from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.core.primitive import LinearInput, MappedAxis, primitives
from fnx.core.primitive import primitive as named
from fnx.core.types import ArrayType
from fnx.kernel import special as kernel_special
from fnx.ops import special
from fnx.runtime.array import from_numpy
from fnx.testing.rules import own_primitives
from tests.cases import BAD_CASES, CASES, BadCase, Case
from tests.rules import (
    ORDERS,
    arguments,
    assert_close,
    call,
    complex_like,
    double,
    epsilon,
    finfo,
    is_inexact,
    is_scalar,
    jvp,
    jvp_program,
    many,
    moved,
    operands,
    precise,
    pull_back,
    push_forward,
    random_like,
    rng_of,
    tangents_at,
    value,
    zero_like,
)

_names = [
    module.name
    for package in (fnx.ops, fnx.control)
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]
_names += [f"tests.{p.stem}" for p in sorted(Path(__file__).parent.glob("cases_*.py"))]
# A module that cannot be imported fails one test, and leaves the others running.
BROKEN: dict[str, Exception] = {}
for _name in _names:
    try:
        importlib.import_module(_name)
    except Exception as error:
        BROKEN[_name] = error

# Not derivatives where the argument leaves the real line, so no complex step.
NOT_HOLOMORPHIC = {"sign", "abs"}
# Nor is what is conjugated in them.
NOT_HOLOMORPHIC |= {"cholesky", "qr", "geqrf", "householder_product", "ormqr"}
NOT_HOLOMORPHIC |= {"eigh", "eig", "svd", "schur", "triangular_solve"}


def each(cases: Sequence[Any]) -> Callable[[Callable[[Any], None]], Any]:
    """Runs a test for each primitive, over all its cases; an error names the case."""
    groups: dict[str, list[Any]] = {}
    for case in cases:
        groups.setdefault(case.primitive, []).append(case)

    def decorate(test: Callable[[Any], None]) -> Any:
        @functools.wraps(test)
        def run(name: str) -> None:
            for case in groups[name]:
                try:
                    test(case)
                except Exception as error:
                    error.add_note(f"This is the case {case.id}.")
                    raise

        del run.__wrapped__  # type: ignore[attr-defined]  # its argument is a name
        return pytest.mark.parametrize("name", groups)(run)

    return decorate


@pytest.fixture(scope="module", autouse=True)
def _routines_run_once() -> Iterator[None]:
    """For each element: in NumPy they take hundreds of rounds."""
    known: dict[Any, float] = {}

    def evaluate(row: str, *args: Any) -> Any:
        arrays = np.broadcast_arrays(*[np.asarray(x, np.float64) for x in args])
        table = np.stack([x.ravel() for x in arrays], axis=1)
        keys = [(row, x.tobytes()) for x in table]
        new = [i for i, key in enumerate(keys) if key not in known]
        found = kernel_special.evaluate(row, *table[new].T)
        known.update(zip([keys[i] for i in new], found, strict=True))
        return np.array([known[key] for key in keys]).reshape(arrays[0].shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(special, "evaluate", evaluate)
        yield


def subsets(items: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Each item alone, then all of them."""
    yield from ((item,) for item in items)
    if len(items) > 1:
        yield tuple(items)


# ---------------------------------------------------------------- the registry


def test_every_module_can_be_imported() -> None:
    assert not BROKEN


def test_every_primitive_has_cases() -> None:
    # Callbacks, checks and kernels of the user's are no functions of their arrays, and
    # have their own tests.
    modules = ("callback", "check", "foreign")
    apart = [f"fnx.control.{name}" for name in modules]
    known = {p.name for p in own_primitives() if type(p).__module__ not in apart}
    assert sorted(known - {case.primitive for case in CASES}) == []


def test_cases_have_distinct_names_and_known_primitives() -> None:
    cases = [*CASES, *BAD_CASES]
    for group in (CASES, BAD_CASES):
        names = [case.id for case in group]
        assert len(names) == len(set(names))
    assert {case.primitive for case in cases} <= {p.name for p in primitives()}


@each(BAD_CASES)
def test_invalid_calls_raise(case: BadCase) -> None:
    args = [x if is_scalar(x) else from_numpy(x) for x in case.args(rng_of(case))]
    with pytest.raises(case.error, match=case.match):
        named(case.primitive)(*args, **case.params)


# ---------------------------------------------------------------- values and types


@each(CASES)
def test_infer_is_the_type_of_reference(case: Case) -> None:
    primitive = named(case.primitive)
    args = operands(case, arguments(case))
    types = many(primitive, primitive.infer(*[x.type for x in args], **case.params))
    for output, type in zip(call(case, args), types, strict=True):
        assert output.type is type
    with np.errstate(all="ignore"):
        values = primitive.reference(*[value(x) for x in args], **case.params)
    for found, type in zip(many(primitive, values), types, strict=True):
        assert (np.shape(found), found.dtype) == (type.shape, type.dtype)


@each(CASES)
def test_weakness(case: Case) -> None:
    primitive = named(case.primitive)
    types = [x.type for x in operands(case, arguments(case))]
    if not types or "dtype" in case.params:
        return
    # What holds programs gives their types: those who trace them see to weak ones.
    if primitive.multiple and primitive.sees_axes:
        return
    strong = primitive.infer(*[t.strong() for t in types], **case.params)
    assert not any(t.weak for t in many(primitive, strong))
    if any(is_inexact(t) for t in types):
        weak = [ArrayType(t.shape, t.dtype, t.dtype.kind != "b") for t in types]
        for t in many(primitive, primitive.infer(*weak, **case.params)):
            assert t.weak or not is_inexact(t)


# ---------------------------------------------------------------- derivatives


def difference(
    function: Callable[[list[Any]], Sequence[Any]],
    args: Sequence[Any],
    tangents: Sequence[Any],
    step: float,
) -> list[Any]:
    """Central differences of a function's outputs along the tangents."""
    ends = [
        function([moved(x, t, h) for x, t in zip(args, tangents, strict=True)])
        for h in (step, -step)
    ]
    pairs = zip(*ends, strict=True)
    return [(double(above) - double(below)) / (2 * step) for above, below in pairs]


def assert_derivative(
    function: Callable[[list[Any]], Sequence[Any]],
    args: Sequence[Any],
    tangents: Sequence[Any],
    got: Sequence[Any],
) -> None:
    """Compares tangents of the inexact outputs with central differences."""
    eps = epsilon(*args, *function(list(args)))
    want = difference(function, args, tangents, np.cbrt(eps))
    for x, y in zip(got, want, strict=True):
        if is_inexact(x):
            assert_close(x, y, 1000 * eps ** (2 / 3))


@each(CASES)
def test_tangents_have_the_types_of_the_outputs(case: Case) -> None:
    args = operands(case, arguments(case))
    places = [
        i for i, x in enumerate(args) if isinstance(x, Array) and is_inexact(value(x))
    ]
    primitive = named(case.primitive)
    expected = call(case, args)
    for subset in subsets(places):
        tangents = tangents_at(case, args, subset)
        if ORDERS.get(case.primitive) == 0:
            known = r"no rule is known|has none of this order"
            with pytest.raises(errors.ArgumentError, match=known):
                primitive.jvp(args, tangents, **case.params)
            continue
        pair = primitive.jvp(args, tangents, **case.params)
        for x, output, t in zip(
            expected, *[many(primitive, part) for part in pair], strict=True
        ):
            assert output.type is x.type
            if named(
                case.primitive
            ).compiled:  # with the tangents it is another program
                assert_ulps(value(output), value(x), case.ulp, case.id)
            else:
                np.testing.assert_array_equal(double(output), double(x))
            assert t is None or (t.shape, t.dtype) == (x.shape, x.dtype)
            assert t is None or is_inexact(value(x))


@each([case for case in CASES if case.smooth])
def test_jvp_is_the_difference(case: Case) -> None:
    args = precise(case)
    for places in subsets(case.smooth):
        tangents = tangents_at(case, args, places)
        got = jvp(case, args, tangents)
        assert_derivative(lambda xs: call(case, xs), args, tangents, got)


@each([case for case in CASES if case.smooth])
def test_jvp_is_the_complex_step(case: Case) -> None:
    """f(x + iht) = f(x) + ih f'(x) t to rounding, where f is analytic."""
    args = precise(case)
    types = [x.type for x in args]
    real = [t for t in types if t.dtype == np.float64]
    if case.primitive in NOT_HOLOMORPHIC or not real or len(real) < len(types):
        return
    step = 1e-20
    tangents = tangents_at(case, args, case.smooth)
    pairs = zip(args, tangents, strict=True)
    moved_args = [moved(complex_like(x), t, 1j * step) for x, t in pairs]
    try:
        outputs = call(case, moved_args)
    except errors.FnxError:  # the primitive takes no complex numbers
        return
    for x, y in zip(jvp(case, args, tangents), outputs, strict=True):
        if dtypes.is_complex(y.dtype):
            assert_close(x, value(y).imag / step, 1e-12)


@each([case for case in CASES if case.smooth])
def test_second_derivative_is_the_difference(case: Case) -> None:
    args = precise(case)
    tangents = tangents_at(case, args, case.smooth)
    program, inputs = jvp_program(case, args, tangents)
    moving = {id(args[i]) for i in case.smooth}
    rng = np.random.default_rng(2)
    directions = [random_like(rng, x.type) if id(x) in moving else None for x in inputs]
    still: list[Any] = [None] * len(inputs)

    def first(values: list[Any]) -> Sequence[Any]:
        return push_forward(program, values, still)[0]

    try:
        pushed = push_forward(program, inputs, directions)
    except errors.ArgumentError as error:
        assert ORDERS.get(case.primitive, 2) < 2 and "none of this order" in str(error)
        return
    pairs = zip(*pushed, strict=True)
    got = [zero_like(x) if t is None else t for x, t in pairs]
    assert_derivative(first, inputs, directions, got)


# ---------------------------------------------------------------- the oracle

WITH_ORACLE = sorted({case.primitive for case in CASES if case.oracle is not None})


@pytest.mark.oracle
@pytest.mark.parametrize("name", WITH_ORACLE)
def test_values_and_tangents_are_those_of_jax(name: str, jax: Any) -> None:
    """All cases of a primitive at once, for JAX takes its time to compile."""
    cases = [c for c in CASES if c.primitive == name and c.oracle is not None]
    # Differences check them all; JAX is asked about the derivatives of some.
    moved_cases = [case for case in cases if case.smooth][:12]
    plain = [operands(case, arguments(case)) for case in cases]
    exact = [precise(case) for case in moved_cases]
    tangents = [
        tangents_at(case, args, case.smooth)
        for case, args in zip(moved_cases, exact, strict=True)
    ]

    def everything(plain: Any, exact: Any, tangents: Any) -> Any:
        values = [c.oracle(*xs, **c.params) for c, xs in zip(cases, plain, strict=True)]
        rows = zip(moved_cases, exact, tangents, strict=True)
        return values, [jax_jvp(jax, *row) for row in rows]

    given = [jax.tree.map(value, group) for group in (plain, exact, tangents)]
    values, wanted = jax.jit(everything)(*given)
    for case, args, want in zip(cases, plain, values, strict=True):
        for x, y in zip(call(case, args), many(named(name), want), strict=True):
            got, expected = value(x), np.asarray(y)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), case.id
            assert_ulps(got, expected, case.ulp, case.id)
    for case, args, ts, want in zip(moved_cases, exact, tangents, wanted, strict=True):
        for x, y in zip(jvp(case, args, ts), many(named(name), want), strict=True):
            if is_inexact(x):
                assert_close(x, np.asarray(y), 100 * epsilon(*args, x))


def jax_jvp(jax: Any, case: Case, args: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """JAX's tangent of the oracle at these arguments, those without one fixed."""

    def function(*moving: Any) -> Any:
        values = list(args)
        for place, x in zip(case.smooth, moving, strict=True):
            values[place] = x
        return case.oracle(*values, **case.params)  # type: ignore[misc]

    primals = [args[i] for i in case.smooth]
    directions = [tangents[i] for i in case.smooth]
    return jax.jvp(function, primals, directions)[1]


def assert_ulps(got: Any, want: Any, ulp: float, label: str) -> None:
    """Equal within units in the last place; exactly, where the dtype is exact."""
    if dtypes.is_complex(got.dtype):
        # A complex function is accurate relative to the modulus of its value.
        finite = np.isfinite(got) & np.isfinite(want)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want), label)
        error = np.abs(got[finite] - want[finite])
        assert (error <= ulp * finfo(got).eps * np.abs(want[finite])).all(), label
        return
    if not is_inexact(got):
        np.testing.assert_array_equal(got, want, label)
        return
    info, got, want = finfo(got), double(got), double(want)
    number = np.isfinite(want)
    np.testing.assert_array_equal(got[~number], want[~number], label)
    same_sign = np.signbit(got) == np.signbit(want)
    assert same_sign[number].all(), label
    # XLA flushes subnormal numbers to zero on the CPU.
    floor = float(info.smallest_normal)
    error = np.abs(got[number] - want[number])
    allowed = ulp * float(info.eps) * np.abs(want[number]) + floor
    assert (error <= allowed).all(), label


# ---------------------------------------------------------------- transposes


def inner(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """The real part of the bilinear product, which is what JAX's convention keeps."""
    pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None]
    return float(sum(np.sum(double(x) * double(y)).real for x, y in pairs))


def assert_adjoint(
    tangents: Sequence[Any],
    outputs: Sequence[Any],
    cotangents: Sequence[Any],
    results: Sequence[Any],
) -> None:
    """<J t, ct> = <t, Jᵀ ct>."""
    forward, backward = inner(outputs, cotangents), inner(tangents, results)
    size = sum(np.abs(double(x)).sum() for x in [*tangents, *outputs])
    assert abs(forward - backward) <= 200 * epsilon(*tangents, *outputs) * (1 + size)


@each([case for case in CASES if case.linear])
def test_transpose_is_the_adjoint(case: Case) -> None:
    primitive = named(case.primitive)
    assert primitive.linear
    args = precise(case)
    for group in case.linear:
        inputs = tangents_at(case, args, group)
        outputs = linear_part(case, args, inputs)
        given = [LinearInput(x.type) if i in group else x for i, x in enumerate(args)]
        for cotangents in cotangents_of(outputs):
            ct = cotangents if primitive.multiple else cotangents[0]
            results = primitive.transpose(ct, *given, **case.params)
            assert all(x is None or i in group for i, x in enumerate(results))
            owed = [results[i] for i in group]
            for i, x in zip(group, owed, strict=True):
                assert x is None or x.type.strong() is args[i].type.strong()
            assert_adjoint([inputs[i] for i in group], outputs, cotangents, owed)


def linear_part(case: Case, args: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """f(t) - f(0) in the arguments that have a tangent; the others may shift it."""
    pairs = list(zip(args, inputs, strict=True))
    at_t = call(case, [x if t is None else t for x, t in pairs])
    at_zero = call(case, [x if t is None else zero_like(t) for x, t in pairs])
    differences = [value(x) - value(y) for x, y in zip(at_t, at_zero, strict=True)]
    return [from_numpy(np.asarray(x)) for x in differences]


def cotangents_of(outputs: Sequence[Any]) -> Iterator[list[Any]]:
    """Random cotangents of all outputs; then of each output alone, if many."""
    rng = np.random.default_rng(3)
    full = [random_like(rng, x.type) if is_inexact(x) else None for x in outputs]
    yield full
    if len(full) > 1:
        for i in range(len(full)):
            if full[i] is not None:
                yield [ct if j == i else None for j, ct in enumerate(full)]


@each([case for case in CASES if case.linear])
def test_jvp_of_a_linear_operation_is_itself(case: Case) -> None:
    args = precise(case)
    for group in case.linear:
        tangents = tangents_at(case, args, group)
        wanted = linear_part(case, args, tangents)
        for got, want in zip(jvp(case, args, tangents), wanted, strict=True):
            assert_close(got, want, 10 * epsilon(got, want))


@each([case for case in CASES if case.smooth])
def test_transposed_jvp_is_the_adjoint(case: Case) -> None:
    args = precise(case)
    tangents = tangents_at(case, args, case.smooth)
    program, inputs = jvp_program(case, args, tangents)
    outputs, _ = push_forward(program, inputs, [None] * len(inputs))
    moving = [t for t in tangents if t is not None]
    primals = inputs[: -len(moving)]
    for cotangents in cotangents_of(outputs):
        results = pull_back(program, primals, cotangents)
        assert_adjoint(moving, outputs, cotangents, results)


# ---------------------------------------------------------------- batching


@each(CASES)
def test_batch_is_a_loop(case: Case) -> None:
    rng = rng_of(case)
    samples = [operands(case, case.args(rng)) for _ in range(3)]
    places = [i for i, x in enumerate(samples[0]) if isinstance(x, Array)]
    for size in (1, 3):
        for mapped in mapped_subsets(places):
            check_batch(case, samples[:size], mapped)


def mapped_subsets(places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every subset that is not empty, or a few of them where there are many."""
    if len(places) > 3:
        yield from subsets(places)
        return
    for count in range(1, len(places) + 1):
        yield from itertools.combinations(places, count)


def check_batch(
    case: Case, samples: Sequence[Sequence[Any]], mapped: Sequence[int]
) -> None:
    primitive = named(case.primitive)
    size = len(samples)
    args = [
        from_numpy(np.stack([value(s[i]) for s in samples])) if i in mapped else x
        for i, x in enumerate(samples[0])
    ]
    flags = [i in mapped for i in range(len(args))]
    outputs, out_mapped = primitive.batch(
        MappedAxis("axis", size), args, flags, **case.params
    )
    for n, sample in enumerate(samples):
        one = [sample[i] if i in mapped else x for i, x in enumerate(samples[0])]
        rows = zip(
            many(primitive, outputs),
            many(primitive, out_mapped),
            call(case, one),
            strict=True,
        )
        for got, is_mapped, want in rows:
            assert got.dtype == want.dtype
            assert got.shape == ((size, *want.shape) if is_mapped else want.shape)
            row = value(got)[n] if is_mapped else value(got)
            assert_close(row, want, 20 * epsilon(want))
