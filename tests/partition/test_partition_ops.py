"""jit with shardings, operation by operation: values, and how results are cut.

The oracle is the same function on one device; what is cut is cut as the tables say.
"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import fnx
import fnx.control
import fnx.numpy as fnp
import fnx.ops
import fnx.scipy.linalg
import fnx.scipy.sparse.linalg
from fnx import errors, lax
from fnx.control import joint
from fnx.core.primitive import primitives
from fnx.experimental import io_callback
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P
from tests.spmd.arrays import random

pytestmark = pytest.mark.multi_device


def positive(*shape):
    """Positive definite matrices."""
    x = random(*shape)
    return x @ np.swapaxes(x, -1, -2) + 8 * np.eye(shape[-1], dtype="float32")


X = random(8, 8)
STACK = positive(8, 3, 3)
IMAGES, KERNEL = random(8, 4, 6, 6), random(8, 4, 3, 3, seed=1)


def convolved(x, kernel):
    return lax.conv_general_dilated(x, kernel, (2, 1), "SAME", rhs_dilation=(1, 2))


def pooled(x):
    window = (1, 1, 2, 3)
    return lax.reduce_window(x, -np.inf, lax.max, window, (1, 1, 2, 1), "VALID")


def averaged(x):
    window = (1, 1, 2, 3)
    return lax.reduce_window(x, 0.0, lax.add, window, (1, 1, 2, 1), "SAME")


def squares(function):
    """The gradient of the sum of squares of a function's result."""
    return fnx.grad(lambda *args: (function(*args) ** 2).sum())


def collatz(x):
    """A loop whose test folds what is cut."""
    return lax.while_loop(
        lambda c: fnp.abs(c[1]).sum() < 500, lambda c: (c[0] + 1, c[1] * 1.5), (0, x)
    )


def power(x):
    """A loop whose second carry is cut because of the first one."""

    def body(_, carry):
        one, two, three = carry
        return fnp.sin(one), two + one, three + two

    return lax.fori_loop(0, 3, body, (x, fnp.zeros(x.shape), fnp.zeros(x.shape)))


def bounded(x):
    return lax.while_loop(
        lambda c: fnp.abs(c).max() < 50, lambda c: c * 1.5 + x, x, max_steps=40
    )


def each_row(x):
    """Rows that choose, and rows that stop, one by one."""

    def row(r):
        r = lax.cond(r[0] > 0, fnp.cumsum, lambda r: fnp.sqrt(fnp.abs(r)), r)
        return lax.while_loop(lambda r: fnp.abs(r).sum() < 50, lambda r: r * 2 + 1, r)

    return fnx.vmap(row)(x)


def chosen(number):
    def run(x):
        return lax.switch(number, [lambda x: x * 2, fnp.sin, lambda x: x * 0 + 1], x)

    return run


def moved(x):
    """One branch gives what is cut in another way."""
    return lax.cond(x.sum() > 0, lambda x: x.T, lambda x: x * 2, x)


# name: function, arguments, how they are cut, how the results are cut
CASES = {
    "norm": (fnp.linalg.norm, [X], P("a", "b"), P()),
    "its gradient": (fnx.grad(fnp.linalg.norm), [X], P("a", "b"), P("a", "b")),
    "norm of columns": (
        lambda x: fnp.linalg.norm(x, axis=0),
        [X],
        P("a", "b"),
        P("b"),
    ),
    "trace": (fnp.trace, [X], P("a"), P()),
    "diagonals of a stack": (
        lambda x: fnp.diagonal(x, axis1=1, axis2=2),
        [STACK],
        P("a"),
        P("a"),
    ),
    "merged, the second cut": (lambda x: x.reshape(-1), [X], P(None, "a"), P()),
    "merged, both cut": (lambda x: x.reshape(-1), [X], P("a", "b"), P("a")),
    "merged, the first in single rows": (
        lambda x: x.reshape(-1),
        [random(2, 8)],
        P("a", "b"),
        P(("a", "b")),
    ),
    "split in more than the first": (
        lambda x: x.reshape(2, 4, 2),
        [random(16)],
        P(("a", "b")),
        P("a", "b"),
    ),
    "split where it does not divide": (
        lambda x: x.reshape(2, 4, 2),
        [random(16)],
        P("b"),
        P(),
    ),
    "split, the first names divide": (
        lambda x: x.reshape(2, 3, 4),
        [random(24)],
        P(("a", "b")),
        P("a"),
    ),
    "set a column": (lambda x: x.at[:, 2].set(1), [X], P("a"), P("a")),
    "set columns": (lambda x: x.at[:, 2:5].mul(3), [X], P("a"), P("a")),
    "add at indices": (
        lambda x: x.at[np.array([1, 2, 1])].add(2),
        [X],
        P(None, "a"),
        P(None, "a"),
    ),
    "a part at a place": (
        lambda x, n: lax.dynamic_slice(x, (0, n), (8, 3)),
        [X, np.int32(7)],
        (P("b"), None),
        P("b"),
    ),
    "update at a place": (
        lambda x, n: lax.dynamic_update_slice(x, x[:, :3] * 2, (0, n)),
        [X, np.int32(7)],
        (P("b"), None),
        P("b"),
    ),
    "set a row of another device": (
        lambda x: x.at[5].set(2),
        [X],
        P("b", "a"),
        P("b", "a"),
    ),
    "rows of several devices": (
        lambda x, n: lax.dynamic_update_slice(x, x[:5] * 2, (n, 0)),
        [X, np.int32(2)],
        (P("b"), None),
        P("b"),
    ),
    "a block of several, moved inside": (
        lambda x, n: lax.dynamic_update_slice(x, x[:5, :3].T.T * 2, (n, n)),
        [X, np.uint8(6)],
        (P("b", "a"), None),
        P("b", "a"),
    ),
    "its gradient by the update": (
        squares(lambda u, x: lax.dynamic_update_slice(x, u * x[0, 0], (3, 2))),
        [random(3, 8), X],
        (None, P("b")),
        None,
    ),
    "cond": (moved, [X], P("a"), P("a")),
    "its other branch": (lambda x: moved(-x * x), [X], P("a"), P("a")),
    "its gradient, in parts": (squares(moved), [X], P("a"), P("a")),
    "switch": (chosen(1), [X], P("a", "b"), P("a", "b")),
    "a branch that is whole": (chosen(2), [X], P("a", "b"), P("a", "b")),
    "while_loop": (collatz, [X], P("a", "b"), (P(), P("a", "b"))),
    "carries cut by each other": (power, [X], P("a"), (P("a"), P("a"), P("a"))),
    "a bounded loop": (bounded, [X], P("b"), P("b")),
    "its gradient, recorded": (squares(bounded), [X], P("b"), P("b")),
    "a loop in each row": (each_row, [X], P("a"), P("a")),
    "the rows over two axes": (each_row, [X], P(("a", "b")), P(("a", "b"))),
    "a loop in each row of whole columns": (each_row, [X], P(None, "a"), None),
    "a scan of rows in parts": (
        lambda x: lax.scan(lambda c, r: (c + r, c * r), fnp.zeros(8), x),
        [X],
        P(None, "a"),
        (P("a"), P(None, "a")),
    ),
    "a barrier": (
        lambda x, y: lax.optimization_barrier((x, y)),
        [X, X.T],
        (P("a"), P(None, "a")),
        (P("a"), P(None, "a")),
    ),
    "checkpoint": (
        fnx.grad(lambda x: fnx.checkpoint(lambda x: fnp.sin(fnp.sin(x)).sum())(x)),
        [X],
        P("a"),
        P("a"),
    ),
    "convolution, by images": (convolved, [IMAGES, KERNEL], (P("a"), None), P("a")),
    "by output features": (
        convolved,
        [IMAGES, KERNEL],
        (P("a"), P("b")),
        P("a", "b"),
    ),
    "by input features": (
        convolved,
        [IMAGES, KERNEL],
        (P("a", "b"), P(None, "b")),
        P("a"),
    ),
    "gradient of the images": (
        squares(convolved),
        [IMAGES, KERNEL],
        (P("a"), None),
        P("a"),
    ),
    "gradient of the kernel": (
        squares(lambda kernel, x: convolved(x, kernel)),
        [KERNEL, IMAGES],
        (None, P("a")),
        P(),
    ),
    "one by one": (
        lambda x, k: lax.conv(x, k[:, :, :1, :1], (1, 1), "SAME"),
        [random(2, 4, 8, 6), KERNEL],
        (P(None, None, "b"), None),
        P(None, None, "b"),
    ),
    "groups of features": (
        lambda x, k: lax.conv_general_dilated(
            x, k[:, :2], (1, 1), "SAME", feature_group_count=2
        ),
        [IMAGES, KERNEL],
        (P("a"), None),
        P("a"),
    ),
    "the kernel's gradient in groups": (
        squares(
            lambda k, x: lax.conv_general_dilated(
                x, k, (1, 1), "SAME", feature_group_count=4
            )
        ),
        [KERNEL[:, :1], IMAGES],
        (None, P("a")),
        P(),
    ),
    "largest in windows": (pooled, [IMAGES], P("a", "b"), P("a", "b")),
    "the gradient": (squares(pooled), [IMAGES], P("a", "b"), P("a", "b")),
    "sums of windows": (squares(averaged), [IMAGES], P("a", "b"), P("a", "b")),
    "patches": (
        lambda x: lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "SAME"),
        [IMAGES],
        P("a"),
        P("a"),
    ),
    "cholesky": (fnp.linalg.cholesky, [STACK], P("b"), P("b")),
    "its gradient in a stack": (squares(fnp.linalg.cholesky), [STACK], P("b"), P("b")),
    "triangular systems": (
        lambda a, b: fnx.scipy.linalg.solve_triangular(a, b, lower=True),
        [STACK, random(8, 3, 2)],
        (P("a"), P("a")),
        P("a"),
    ),
    "systems": (
        fnp.linalg.solve,
        [STACK, random(8, 3, 2)],
        (P("a"), None),
        P("a"),
    ),
    "right sides in columns": (
        lambda a, b: fnx.scipy.linalg.solve_triangular(a, b, lower=True),
        [positive(8, 8), X],
        (None, P(None, "a")),
        P(None, "a"),
    ),
    "inverses": (fnp.linalg.inv, [STACK], P("a"), P("a")),
    "determinants": (fnp.linalg.det, [STACK], P("a"), P("a")),
    "eigenvalues": (fnp.linalg.eigvalsh, [STACK], P("a"), P("a")),
    "singular values": (
        lambda x: fnp.linalg.svd(x, compute_uv=False),
        [STACK],
        P("a"),
        P("a"),
    ),
    "triangles of qr": (lambda x: abs(fnp.linalg.qr(x)[1]), [STACK], P("a"), P("a")),
    "tridiagonal systems": (
        lambda d: lax.linalg.tridiagonal_solve(d * 0, d, d * 0, d[..., None]),
        [abs(random(8, 4)) + 1],
        P("a"),
        P("a"),
    ),
    "fourier": (lambda x: fnp.fft.rfft(x, axis=1), [X], P("a"), P("a")),
    "conjugate gradients": (
        lambda b: fnx.scipy.sparse.linalg.cg(lambda v: 2 * v, b)[0],
        [random(8)],
        P("a"),
        P("a"),
    ),
    "sort": (lambda x: fnp.sort(x, 1), [X], P("b"), P("b")),
    "running sums": (lambda x: fnp.cumsum(x, 1), [X], P("b"), P("b")),
    "stack": (lambda x: fnp.stack([x, x + 1], 1), [X], P("a", "b"), P("a", None, "b")),
    "padding": (lambda x: fnp.pad(x, ((0, 0), (1, 2))), [X], P("b"), P("b")),
    "select": (lambda x: fnp.where(x > 0, x, 0), [X], P("a", "b"), P("a", "b")),
    "iota": (lambda x: x + fnp.arange(8), [X], P("a", "b"), P("a", "b")),
    "replicas of another mesh": (
        lambda x: fnx.pmap(lambda r: r / lax.psum(r, "i"), "i")(x),
        [X],
        P(None, "a"),
        P(None, "a"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_shardings(name, mesh):
    function, args, specs, outs = CASES[name]
    with mesh:
        got = fnx.jit(function, in_shardings=specs)(*args)
    want = fnx.jit(function)(*args)
    pairs = zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-4)
    if outs is None:
        return
    ends = outs if type(outs) is tuple else [outs] * len(fnx.tree.leaves(got))
    for one, spec in zip(fnx.tree.leaves(got), ends, strict=True):
        assert one.sharding == NamedSharding(mesh, spec), (one.sharding.spec, spec)


def test_a_row_with_no_member_is_never_run_for_others(mesh):
    """A device none of whose rows take part computes with the row of another device."""
    starts = np.array([3, 1, 1, 1, 1, 1, 1, 1], "int32")

    def halvings(n):
        # Only of numbers over 1 does it end: 1 becomes 1 again.
        odd = lambda n: lax.while_loop(lambda n: n != 2, lambda n: (n + 1) // 2, n)  # noqa: E731
        return lax.cond(n > 1, odd, lambda n: n, n)

    with mesh:
        run = fnx.jit(fnx.vmap(halvings), in_shardings=P(("a", "b")))
        np.testing.assert_array_equal(run(starts), [2, 1, 1, 1, 1, 1, 1, 1])


# What nobody can compute in parts: functions of the user's that see whole arrays.
UNKNOWN = {"pure_callback", "foreign"}

# What the compiler alone makes, after programs are cut.
INSIDE = {"sandwich"}

# Without operands.
MADE = {"iota", "platform_index", "constant", "number", "axis_index", "blank"}


def test_every_primitive_says_how_it_is_cut():
    for package in (fnx.ops, fnx.control):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
    ways = ("cut", "body", "flow", "alignment")
    silent = {
        p.name
        for p in primitives()
        if not (p.effect or any(map(p.has, ways)))
        and not p.name.startswith(("test_", "example_"))
    }
    assert silent == UNKNOWN | INSIDE | MADE


def called(x):
    return fnx.pure_callback(np.sin, fnx.ShapeDtypeStruct(x.shape, x.dtype), x)


REFUSED = {
    "a callback": (called, X, P("a"), "pure_callback of f32.8,8. cut"),
    "a matrix in parts": (
        lambda x: fnp.linalg.cholesky(x),
        positive(8, 8),
        P("a"),
        "cholesky of f32",
    ),
    "a transform along what is cut": (
        lambda x: fnp.fft.fft(x, axis=0),
        X,
        P("a"),
        "fft of",
    ),
    "windows over what is cut": (pooled, IMAGES, P(None, None, "a"), "reduce_window"),
    "inside of a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, x: called(x), x),
        X,
        P("a"),
        "pure_callback",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stays_undecided_names_operation_and_line(name, mesh):
    function, x, spec, text = REFUSED[name]
    with mesh:
        cut = fnx.jit(function, in_shardings=spec)
        with pytest.raises(errors.OptionError, match=f"(?s)test_partition_ops.*{text}"):
            cut(x)
        with fnx.config.override(replicate_uncut=True):
            np.testing.assert_allclose(
                cut(x), fnx.jit(function)(x), rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize("small", [True, False])
def test_effects_happen_once(mesh, capsys, monkeypatch, small):
    if not small:
        monkeypatch.setattr(joint, "runs_as_one", lambda *_: False)
        fnx.clear_caches()
    calls = []

    def host(x):
        calls.append(np.array(x))
        return np.float32(x.sum() + len(calls))

    def f(x):
        fnx.debug.print("sum {}", x.sum())

        def body(i, x):
            fnx.debug.print("round {} {}", i, x[0, 0])
            return x + 1

        x = lax.fori_loop(0, 2, body, x)
        return x * io_callback(host, fnx.ShapeDtypeStruct((), "float32"), x)

    x = np.ones((8, 4), "float32")
    with mesh:
        got = fnx.jit(f, in_shardings=P("a", "b"))(x)
    np.testing.assert_array_equal(got, x * 3 * (3 * 32 + 1))
    assert capsys.readouterr().out == "sum 32.0\nround 0 1.0\nround 1 2.0\n"
    (seen,) = calls
    np.testing.assert_array_equal(seen, x * 3)


@pytest.mark.parametrize("spec", [P(None, "b"), P("a", "b"), P(("b", "a")), P("b")])
@pytest.mark.parametrize(
    "name", ["slice", "sum of slices", "in the middle", "reversed"]
)
def test_what_every_device_has_is_sliced_then_cut(name, spec, mesh):
    """A part of a slice is no slice of a part, also where it is computed again."""
    steps = {
        "slice": lambda y: y[1:9, 2:],
        "sum of slices": lambda y: fnp.sin(y[1:9, 2:]) + y[2:, :16] * y[:8, :1],
        "in the middle": lambda y: y[:8, ::-1][:, 1:17] * 2,
        "reversed": lambda y: y[::-1][1:9, 2:] + fnp.arange(16.0),
    }
    step = steps[name]

    def function(x):
        return step(fnp.pad(x, ((1, 1), (2, 0))))

    x = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    want = np.asarray(function(fnp.array(x)))
    place = NamedSharding(mesh, spec)
    with fnx.config.override(replicate_uncut=True):
        got = fnx.jit(function, in_shardings=place, out_shardings=place)(x)
    assert got.sharding == place
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


@pytest.mark.parametrize("spec", [P("a"), P(None, "b"), P("b", "a")])
def test_what_every_device_has_is_reversed_then_cut(spec, mesh):
    """The part of a reversed array is not the part reversed."""
    x = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, spec)
    for axis in (0, 1, (0, 1)):

        def flip(x, axis=axis):
            return fnp.flip(fnp.sin(x), axis)

        got = fnx.jit(flip, in_shardings=whole, out_shardings=cut)(x)
        np.testing.assert_allclose(got, np.flip(np.sin(x), axis), 1e-6, 1e-6)
