"""Programs over padded arrays against the program of the true size.

Padding is made of NaN, True and large integers: whatever of it reaches a result shows.
Both the padded program by its reference rules and `jit(dynamic=...)`, compiled, are
compared, at several sizes of one range; then every primitive, over a varying number of
calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax, nn, random
from fnx.api.any_size import AnySizes
from fnx.core.array import Array
from fnx.core.primitive import MappedAxis, primitives
from fnx.core.primitive import primitive as named
from fnx.core.reference import run_reference
from fnx.core.simplify import simplify
from fnx.core.trace import trace
from fnx.core.types import array_type
from fnx.ops import elementwise, special, special_integrals
from fnx.ops.arithmetic import Smooth
from fnx.transforms.padded import Sized, pad_program
from tests.cases import CASES as ALL_CASES
from tests.cases import Case
from tests.rules import many, operands, rng_of, value
from tests.test_primitives import each

F64 = np.dtype("float64")
N = None
"""The size that varies."""


def last_three(x: Any) -> Any:
    return (x[-3:] ** 2).sum() + (x[1:] * x[:-1]).mean()


def summed(carry: Any, row: Any) -> Any:
    return fnp.sin(carry + row), carry * row.sum()


def rounds(x: Any) -> Any:
    return lax.scan(summed, fnp.zeros(3, x.dtype), x)


def pooled(x: Any) -> Any:
    window = (1, 2, 2, 1)
    return lax.reduce_window(x, -np.inf, lax.max, window, window, "VALID")


def averaged(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 1, 2, 1), "SAME")


def convolved(x: Any, y: Any, padding: str = "SAME") -> Any:
    return (lax.conv(x, y, (1, 1), padding) ** 2).mean()


def kept_up(x: Any, test: Any) -> Any:
    return lax.while_loop(test, lambda s: s * 1.5 + x.mean() + 3, x)


def custom_rules(x: Any) -> Any:
    """Rules that hold arrays: one that does not vary, and one that does."""
    places = np.arange(x.shape[0], dtype=np.float64)[:, None]

    @fnx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x)

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        weights = np.array([1.0, 2.0, 3.0]) + places
        return f(*primals), tangents[0] * weights

    return f(x), fnx.grad(lambda x: f(x).sum())(x)


def key() -> Any:
    return random.key(7)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: fnp.tanh(x) * fnp.exp(-x * x), ((N, 3),)),
    "reductions": (
        lambda x: (x.sum(), x.mean(0), x.max(), x.min(0), fnp.prod(x)),
        ((N, 3),),
    ),
    "places": (lambda x: (x.argmax(0), x.argmin(), fnp.argmax(x > 0)), ((N, 3),)),
    "logic": (lambda x: ((x > -5).all(), (x > 5).any(0)), ((N, 3),)),
    "moments": (lambda x: (fnp.var(x, ddof=1), fnp.cov(x, rowvar=False)), ((N, 3),)),
    "softmax": (lambda x: (nn.softmax(x, 0), nn.logsumexp(x, 0)), ((N, 3),)),
    "norm": (lambda x: fnp.linalg.norm(x, axis=0), ((N, 3),)),
    "dot": (lambda x, y: x @ y, ((3, N), (N, 4))),
    "products": (lambda x: (x.T @ x, x @ x.T), ((N, 3),)),
    "einsum": (lambda x: fnp.einsum("nij,njk->ik", x, x), ((N, 3, 3),)),
    "reverse": (lambda x: (x[::-1], x[::-1].cumsum(0)), ((N, 3),)),
    "slices": (lambda x: (x[1:], x[:-1], x[::2], x[-1], x[-3:]), ((N, 3),)),
    "diff": (lambda x: fnp.diff(x, axis=0), ((N, 3),)),
    "concatenate": (
        lambda x: fnp.concatenate([x, fnp.ones((2, 3), x.dtype), x * 2]),
        ((N, 3),),
    ),
    "pads": (
        lambda x: (
            fnp.pad(x, ((1, 2), (0, 0)), constant_values=7.0),
            fnp.pad(x, ((1, 2), (0, 0)), mode="edge"),
        ),
        ((N, 3),),
    ),
    "roll and tile": (lambda x: (fnp.roll(x, 2, 0), fnp.tile(x, (2, 1))), ((N, 3),)),
    "reshape": (lambda x: (x.reshape(-1), x.T.ravel()), ((N, 3),)),
    "merged": (lambda x: x.reshape(-1, 6).sum(1), ((2, N, 6),)),
    "cut": (lambda x: x.reshape(-1).reshape(4, -1), ((4, N),)),
    "stacked": (lambda x: fnp.stack([x, x]).reshape(-1, 3).sum(0), ((N, 3),)),
    "numbers": (
        lambda x: (
            x * fnp.linspace(0, 1, x.shape[0], dtype=x.dtype)[:, None],
            x.shape[0] * fnp.ones(2),
            x.shape[0],
        ),
        ((N, 3),),
    ),
    "captured": (lambda x: x * np.arange(len(x)) + np.ones(2)[0], ((N,),)),
    "cumulative": (
        lambda x: (
            fnp.cumsum(x, 0),
            lax.cumsum(x, 0, reverse=True),
            lax.cummax(x, 0, reverse=True),
            lax.cumprod(x, 0, reverse=True),
            lax.cumlogsumexp(x, 0, reverse=True),
        ),
        ((N, 3),),
    ),
    "sort": (
        lambda x: (fnp.sort(x, 0), fnp.argsort(x, 0)),
        ((N, 3),),
    ),
    "sort integers": (lambda x: fnp.sort((x * 9).astype("int8"), 0), ((N, 3),)),
    "top_k": (lambda x: lax.top_k(x.T, 3), ((N, 3),)),
    "gather": (lambda x: x[np.array([0, 2, -1, 7])], ((N, 3),)),
    "gather far": (lambda x: x[(x[:, 0] * 100).astype("int8")], ((N, 3),)),
    "gather fill": (
        lambda x: x.at[(x * 10).astype("int32")].get(mode="fill", fill_value=-1.0),
        ((N,),),
    ),
    "by its elements": (lambda x: fnp.arange(4.0)[(x * 10).astype("int32")], ((N,),)),
    "scatter": (
        lambda x: (
            fnp.zeros(4, x.dtype).at[(x * 10).astype("int32")].add(x),
            x.at[1].set(3.0).at[-1].set(9.0),
            x.at[np.array([1, -2, 7])].multiply(3.0),
        ),
        ((N,),),
    ),
    "scatter rows": (
        lambda x: x.at[(x[:, 0] * 100).astype("int32"), 1].max(5.0),
        ((N, 3),),
    ),
    "dynamic slices": (
        lambda x: (
            lax.dynamic_slice(x, ((x[0] > -9).astype("int8") * 100,), (3,)),
            lax.dynamic_update_slice(
                x, fnp.ones(3, x.dtype), ((x[0] > -9).astype("int32") * 100,)
            ),
        ),
        ((N,),),
    ),
    "scan": (rounds, ((N, 3),)),
    "scan in reverse": (
        lambda x: lax.scan(summed, fnp.zeros(3, x.dtype), x, reverse=True),
        ((N, 3),),
    ),
    "scan over itself": (
        lambda x: lax.scan(lambda c, _: (c * x.mean(), c.sum()), x, None, length=3),
        ((N, 3),),
    ),
    "fori_loop": (
        lambda x: lax.fori_loop(
            0, x.shape[0], lambda i, s: s + x[i], fnp.zeros(3, x.dtype)
        ),
        ((N, 3),),
    ),
    "while_loop": (lambda x: kept_up(x, lambda s: s.mean() < 10), ((N, 3),)),
    "while_loop of lanes": (
        lambda x: fnx.vmap(lambda y: kept_up(y, lambda s: s < 10))(x),
        ((N,),),
    ),
    "cond": (
        lambda x: lax.cond(
            x.sum() > 0, lambda x: x / x.shape[0], lambda x: x - x.mean(0), x
        ),
        ((N, 3),),
    ),
    "cond of lanes": (
        lambda x: fnx.vmap(lambda y: lax.cond(y > 0, fnp.sin, lambda y: y * 2, y))(x),
        ((N,),),
    ),
    "checkpoint": (
        fnx.grad(lambda x: fnx.checkpoint(lambda y: fnp.sin(fnp.sin(y)).mean())(x)),
        ((N, 3),),
    ),
    "custom rules": (custom_rules, ((N, 3),)),
    "jit": (lambda x: fnx.jit(lambda y: y - y.mean())(x), ((N, 3),)),
    "gradient": (
        fnx.grad(lambda x: (nn.softmax(x, 0) * fnp.sin(x)).mean()),
        ((N, 3),),
    ),
    "gradient of slices": (fnx.grad(last_three), ((N, 3),)),
    "gradient of sort": (
        fnx.grad(lambda x: (fnp.sort(x, 0) * fnp.arange(x.shape[0])[:, None]).sum()),
        ((N, 3),),
    ),
    "gradient of scan": (fnx.grad(lambda x: rounds(x)[1].mean()), ((N, 3),)),
    "each gradient": (
        lambda x, y: fnx.vmap(fnx.grad(lambda y, r: fnp.tanh(r @ y).sum()), (None, 0))(
            y, x
        ),
        ((N, 3), (3, 4)),
    ),
    "hessian": (fnx.hessian(lambda x: fnp.sin(x).sum() ** 2), ((N,),)),
    "jacobian": (fnx.jacrev(lambda x: fnp.sin(x) * x.mean()), ((N,),)),
    "classes": (
        lambda x, y: fnx.grad(
            lambda y: -nn.log_softmax(x @ y)[fnp.arange(x.shape[0]), 1].mean()
        )(y),
        ((N, 3), (3, 4)),
    ),
    "attention": (
        lambda x: nn.softmax(
            fnp.where(
                fnp.tril(fnp.ones((x.shape[1],) * 2)) > 0,
                fnp.einsum("bthd,bshd->bhts", x, x),
                -1e9,
            )
        ),
        ((2, N, 2, 3),),
    ),
    "random": (
        lambda x: (
            random.normal(key(), x.shape, x.dtype),
            x * random.bernoulli(key(), 0.5, x.shape),
            random.permutation(key(), x),
        ),
        ((N, 3),),
    ),
    "searches": (
        lambda x: (
            fnp.interp(0.3, fnp.sort(x), x),
            fnp.searchsorted(fnp.sort(x), np.array([-1.0, 0.0, 1.0])),
            fnp.quantile(x, x[0] * 0 + 0.3),
        ),
        ((N,),),
    ),
    "diagonals": (lambda x: (fnp.diag(x), fnp.triu(x[:, None] * x)), ((N,),)),
    "traces": (
        lambda x: (fnp.trace(x), fnp.diagonal(x, 1)),
        ((N, N),),
    ),
    "images": (
        lambda x: lax.conv(x, np.ones((4, 3, 2, 2)), (1, 1), "SAME"),
        ((N, 3, 5, 5),),
    ),
    "wide images": (
        lambda x: lax.conv(x, np.ones((4, 3, 3, 3)), (1, 1), "VALID"),
        ((2, 3, N, N),),
    ),
    "gradient of images": (fnx.grad(convolved, (0, 1)), ((N, 3, 5, 5), (4, 3, 2, 2))),
    "gradient of wide images": (
        fnx.grad(lambda x, y: convolved(x, y, "VALID"), (0, 1)),
        ((2, 3, N, 5), (4, 3, 2, 2)),
    ),
    "gradient of max pooling": (
        fnx.grad(lambda x: (pooled(x) ** 2).mean()),
        ((N, 6, 6, 2),),
    ),
    "gradient of sums of windows": (
        fnx.grad(lambda x: (averaged(x) ** 2).mean()),
        ((2, N, 6, 2),),
    ),
}


WITHOUT = {
    # the compiler's own, and one whose groups are as many as there are members
    *("sandwich", "conv_general_dilated"),
    # whose reference takes long, and which work element by element
    *[
        p.name
        for part in (special, special_integrals)
        for p in vars(part).values()
        if isinstance(p, Smooth) and not hasattr(elementwise, p.name)
    ],
    # what goes along a named axis
    *[p.name for p in primitives() if p.sees_axes and "fnx.ops" in type(p).__module__],
}
"""Primitives that cannot be padded when all operands of several calls are stacked."""


def types_at(shapes: Any, size: int) -> list[Any]:
    return [array_type([size if n is None else n for n in s], F64) for s in shapes]


def program_at(f: Any, shapes: Any, size: int) -> Any:
    """The program at a size, and what it captures."""

    def leaves(*args: Any) -> list[Any]:
        return [fnp.asarray(leaf) for leaf in fnx.tree.leaves(f(*args))]

    traced = trace(leaves, types_at(shapes, size))
    return simplify(traced.program), [np.asarray(x) for x in traced.captured]


def worst(x: Any, shape: Any) -> Any:
    """The array in front of what must not be read."""
    behind = {"b": True, "i": 77, "u": 77}.get(x.dtype.kind, np.nan)
    long = np.full(shape, behind, x.dtype)
    long[tuple(map(slice, x.shape))] = x
    return long


def values_at(shapes: Any, size: int) -> list[Any]:
    rng = np.random.default_rng(size)
    return [rng.uniform(-2.0, 2.0, t.shape) for t in types_at(shapes, size)]


@pytest.mark.parametrize("name", CASES)
def test_padding_reaches_no_result(name: str) -> None:
    f, shapes = CASES[name]
    (now, captured), (other, _), (largest, _) = [
        program_at(f, shapes, size) for size in (9, 10, 12)
    ]
    made = pad_program(Sized(now, other, largest))
    assert made.program == pad_program(Sized(other, now, largest)).program
    inputs = [*captured, *values_at(shapes, 9)]
    rows = zip(inputs, largest.input_types, strict=True)
    long = [worst(x, type.shape) for x, type in rows]
    held = zip(made.numbers, made.program.input_types[len(long) :], strict=True)
    long += [worst(np.asarray(x), type.shape) for x, type in held]
    found = run_reference(made.program, long)
    for wanted, out in zip(run_reference(now, inputs), found, strict=True):
        prefix = out[tuple(map(slice, np.shape(wanted)))]
        np.testing.assert_allclose(prefix, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_one_program_serves_a_range_of_sizes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if there were no code for all sizes.
    monkeypatch.setattr(AnySizes, "new", lambda *args: None)
    f, shapes = CASES[name]
    names = inspect.signature(f).parameters
    rows = zip(names, shapes, strict=False)
    axes = {n: tuple([a for a, k in enumerate(s) if k is None]) for n, s in rows}
    dynamic = fnx.jit(f, dynamic={n: a for n, a in axes.items() if a})
    for size in (11, 12, 9):
        args = values_at(shapes, size)
        results = fnx.tree.leaves(dynamic(*args))
        for found, wanted in zip(
            results, fnx.tree.leaves(fnx.jit(f)(*args)), strict=True
        ):
            assert (found.dtype, found.weak_type) == (wanted.dtype, wanted.weak_type)
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    assert dynamic.cache_info().misses == 1


# ---------------------------------------------------------------- every primitive


def stacked_calls(case: Case, args: Any, count: int) -> Any:
    """The program of so many calls at once: the `batch` rule over a leading axis."""
    primitive = named(case.primitive)
    arrays = [x for x in args if isinstance(x, Array)]
    types = [x.type.with_shape((count, *x.type.shape)) for x in arrays]

    def run(*tracers: Any) -> Any:
        given = iter(tracers)
        mapped = [isinstance(x, Array) for x in args]
        rows = zip(args, mapped, strict=True)
        members = [next(given) if is_mapped else x for x, is_mapped in rows]
        axis = MappedAxis(None, count)
        return many(primitive, primitive.batch(axis, members, mapped, **case.params)[0])

    return simplify(trace(run, types, rule=True).program)


@each([case for case in ALL_CASES if case.primitive not in WITHOUT])
def test_as_many_calls_as_there_are(case: Case) -> None:
    """The axis of `vmap` may vary, whatever the operation is."""
    rng = rng_of(case)
    calls = [operands(case, case.args(rng)) for _ in range(3)]
    places = [i for i, x in enumerate(calls[0]) if isinstance(x, Array)]
    if not places:
        return
    programs = [stacked_calls(case, calls[0], count) for count in (3, 4, 5)]
    made = pad_program(Sized(*programs))
    stacks = [np.stack([value(call[i]) for call in calls]) for i in places]
    long = [worst(x, (5, *x.shape[1:])) for x in stacks]
    found = run_reference(made.program, [*long, *made.numbers])
    for wanted, out in zip(run_reference(programs[0], stacks), found, strict=True):
        assert_same(out[tuple(map(slice, np.shape(wanted)))], wanted)


def assert_same(found: Any, wanted: Any) -> None:
    """Bit for bit, whatever the dtype, but for the NaN."""
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind not in "biuc":
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(found, wanted)
