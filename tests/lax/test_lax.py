"""`fnx.lax` against `jax.lax`, in one table of calls; collectives under vmap."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax

RNG = np.random.default_rng(0)
F = RNG.standard_normal((3, 4))
P = np.abs(F) + 1.1
Q = np.clip(F / 4, -0.9, 0.9)
I = RNG.integers(-9, 9, (3, 4)).astype("i4")  # noqa: E741
J = RNG.integers(1, 5, (3, 4)).astype("i4")
B = F > 0
C = F + 1j * P

CALLS = [
    *[(n, (F,)) for n in "neg abs sign square reciprocal floor ceil exp exp2".split()],
    *[(n, (F,)) for n in "expm1 cbrt logistic erf erfc sin cos tan atan".split()],
    *[(n, (F,)) for n in "sinh cosh tanh asinh is_finite round".split()],
    *[(n, (P,)) for n in "log log1p sqrt rsqrt acosh".split()],
    *[(n, (Q,)) for n in "asin acos atanh erf_inv".split()],
    *[(n, (F, P)) for n in "add sub mul div rem max min atan2 nextafter".split()],
    *[(n, (P, F)) for n in "pow complex".split()],
    *[(n, (F, F[::-1].copy())) for n in "eq ne lt le gt ge".split()],
    *[(n, (I, J)) for n in "add sub mul div rem max bitwise_and bitwise_or".split()],
    *[(n, (I, J)) for n in "bitwise_xor shift_left shift_right_arithmetic".split()],
    *[(n, (J,)) for n in "bitwise_not population_count clz".split()],
    *[(n, (C,)) for n in "real imag conj abs exp neg".split()],
    ("shift_right_logical", (I, J)),
    ("conj", (F,)),
    ("round", (np.array([0.5, 1.5, -2.5, 0.49999999999999994, -0.2]),)),
    ("integer_pow", (F, 3)),
    ("pow", (F, 2)),
    ("add", (F, 1.0)),
    ("max", (F, 0.0)),
    ("clamp", (0.0, F, 1.0)),
    ("select", (B, F, P)),
    ("select_n", (B, F, P)),
    ("select_n", (J % 3, F, P, F)),
    ("convert_element_type", (F, "int32")),
    ("bitcast_convert_type", (F, "int64")),
    ("bitcast_convert_type", (F, "uint8")),
    ("bitcast_convert_type", (I, "bfloat16")),
    ("bitcast_convert_type", (I.astype("i1"), "float32")),
    ("bitcast_convert_type", (I.astype("u2").reshape(3, 2, 2), "uint32")),
    ("reshape", (F, (2, 6))),
    ("reshape", (F, (2, 6), (1, 0))),
    ("transpose", (F, (1, 0))),
    ("expand_dims", (F, (0, 2))),
    ("squeeze", (F[None], (0,))),
    ("collapse", (F[None], 0, 2)),
    ("broadcast", (F, (2,))),
    ("broadcast_in_dim", (F, (3, 2, 4), (0, 2))),
    ("rev", (F, (0, 1))),
    ("concatenate", ([F, P], 1)),
    ("split", (F, (1, 2), 0)),
    ("pad", (F, 0.0, [(1, 2, 1), (-1, 0, 0)])),
    ("tile", (F, (2, 1))),
    ("iota", ("int32", 4)),
    ("broadcasted_iota", ("int32", (2, 3), 1)),
    ("full", ((2,), 3.0)),
    ("full_like", (F, 2)),
    ("slice", (F, (0, 1), (3, 4), (2, 1))),
    ("slice_in_dim", (F, 1, None, 2, 1)),
    ("slice_in_dim", (F, -3, -1)),
    ("index_in_dim", (F, -1, 1, False)),
    ("dynamic_slice", (F, (1, 3), (2, 2))),
    ("dynamic_slice", (F, (-1, 0), (1, 2))),
    ("dynamic_slice_in_dim", (F, 3, 2, 1)),
    ("dynamic_index_in_dim", (F, 2, 1, False)),
    ("dynamic_update_slice", (F, P[:2, :2], (1, 3))),
    ("dynamic_update_slice_in_dim", (F, P[:, :2], 3, 1)),
    ("dynamic_update_index_in_dim", (F, P[0], 1, 0)),
    *[(f"reduce_{n}", (F, (0,))) for n in "sum prod max min".split()],
    ("reduce_sum", (F, (1, 0))),
    ("reduce_and", (B, (0,))),
    ("reduce_or", (B, (1,))),
    ("argmax", (F, 1, np.int32)),
    ("argmin", (F, 0, np.int64)),
    *[(f"cum{n}", (F, 1)) for n in "sum prod max min logsumexp".split()],
    ("cumsum", (F, 0, True)),
    ("sort", (F, 0)),
    ("sort", ((I[0], F[0]),)),
    ("sort_key_val", (I[0], F[0])),
    ("top_k", (F, 2)),
    ("dot", (F, P.T)),
    ("dot_general", (F, P, (((1,), (1,)), ((0,), (0,))))),
    ("batch_matmul", (F[None], P.T[None])),
    ("stack", ([F, P], 1)),
    ("unstack", (F, 1)),
]


def _ours(x):
    if isinstance(x, list):
        return [_ours(y) for y in x]
    return fnp.array(x) if isinstance(x, np.ndarray) else x


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "args"), CALLS, ids=[f"{i}-{c[0]}" for i, c in enumerate(CALLS)]
)
def test_as_jax(name, args, jax):
    want = getattr(jax.lax, name)(*args)
    got = getattr(lax, name)(*map(_ours, args))
    many = isinstance(want, tuple | list)
    assert isinstance(got, tuple | list) == many
    for g, w in zip(got if many else [got], want if many else [want], strict=True):
        assert g.shape == w.shape
        assert g.dtype.kind == w.dtype.kind
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds", None])
def test_gather_and_scatter_as_jax(mode, jax):
    indices = np.array(
        [[0], [2], [1]] if mode == "promise_in_bounds" else [[0], [7], [1]]
    )
    numbers = ((1,), (0,), (0,))
    want = jax.lax.gather(
        F, indices, jax.lax.GatherDimensionNumbers(*numbers), (1, 4), mode=mode
    )
    dims = lax.GatherDimensionNumbers(*numbers)
    got = lax.gather(fnp.array(F), indices, dims, (1, 4), mode=mode)
    np.testing.assert_array_equal(got, want)
    for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_max"):
        theirs = jax.lax.ScatterDimensionNumbers(*numbers)
        ours = lax.ScatterDimensionNumbers(*numbers)
        want = getattr(jax.lax, name)(F, indices, P, theirs, mode=mode)
        got = getattr(lax, name)(fnp.array(F), indices, P, ours, mode=mode)
        np.testing.assert_allclose(got, want, rtol=1e-15)


def test_nothing_is_promoted():
    with pytest.raises(errors.DTypeError, match="must have equal dtypes"):
        lax.add(fnp.ones(3), fnp.ones(3, "int32"))
    with pytest.raises(errors.ShapeError, match="must have equal shapes"):
        lax.add(fnp.ones(3), fnp.ones((2, 3)))
    assert lax.add(fnp.ones(3), fnp.float32(1)).tolist() == [2, 2, 2]
    grad = fnx.grad(lambda s: lax.mul(fnp.ones(3), s).sum())(fnp.float32(2))
    assert grad == 3


def test_stop_gradient():
    grad = fnx.grad(lambda x: lax.stop_gradient(x) * x)(3.0)
    assert grad == 3
    tree = lax.stop_gradient({"a": fnp.ones(2), "n": 1})
    assert tree["n"] == 1


def test_rounding_methods():
    x = fnp.array([0.5, 1.5, 2.5, -0.5])
    assert lax.round(x).tolist() == [1, 2, 3, -1]
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    assert lax.round(x, even).tolist() == [0, 2, 2, 0]


def test_precision_is_accepted_by_products():
    x = fnp.ones((2, 2))
    assert fnp.dot(x, x, precision=lax.Precision.HIGHEST).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(errors.OptionError, match="precision='wrong' is unknown"):
        fnp.dot(x, x, precision="wrong")
    half = fnp.ones((2, 2), "float16")
    assert fnp.dot(half, half, preferred_element_type="float32").dtype == fnp.float32


# ---------------------------------------------------------------- collectives

V = RNG.standard_normal((4, 4, 2))
COLLECTIVES = {
    "psum": lambda m, x: m.psum(x, "i"),
    "pmean": lambda m, x: m.pmean(x, "i"),
    "pmax": lambda m, x: m.pmax(x, "i"),
    "pmin": lambda m, x: m.pmin(x, "i"),
    "tree": lambda m, x: m.psum({"a": x, "b": 2 * x}, "i")["b"],
    "size": lambda m, x: x * m.psum(1, "i") + m.axis_size("i"),
    "index": lambda m, x: x * m.axis_index("i"),
    "all_gather": lambda m, x: m.all_gather(x, "i", axis=1),
    "all_gather tiled": lambda m, x: m.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda m, x: m.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda m, x: m.psum_scatter(x, "i", tiled=True),
    "all_to_all": lambda m, x: m.all_to_all(x, "i", 0, 1),
    "all_to_all tiled": lambda m, x: m.all_to_all(x, "i", 0, 1, tiled=True),
    "ppermute": lambda m, x: m.ppermute(x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "pshuffle": lambda m, x: m.pshuffle(x, "i", [3, 0, 1, 2]),
    "pswapaxes": lambda m, x: m.pswapaxes(x, "i", 0),
    "pbroadcast": lambda m, x: m.pbroadcast(x, "i", 2),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_as_jax(name, jax):
    f = COLLECTIVES[name]
    want = jax.vmap(lambda x: f(jax.lax, x), axis_name="i")(V)
    got = fnx.vmap(lambda x: f(lax, x), axis_name="i")(fnp.array(V))
    np.testing.assert_allclose(got, want, rtol=1e-12)


SEVERAL = {
    "all_gather": lambda x, i: lax.all_gather(x, i, axis=1),
    "all_gather tiled": lambda x, i: lax.all_gather(x, i, axis=1, tiled=True),
    "psum_scatter": lambda x, i: lax.psum_scatter(x, i),
    "psum_scatter tiled": lambda x, i: lax.psum_scatter(x, i, tiled=True),
    "all_to_all": lambda x, i: lax.all_to_all(x, i, 0, 1),
    "all_to_all tiled": lambda x, i: lax.all_to_all(x, i, 0, 1, tiled=True),
    "pbroadcast": lambda x, i: lax.pbroadcast(x, i, 4),
    "pcast": lambda x, i: lax.pcast(x, i, to="varying"),
    "pmean": lambda x, i: lax.pmean(x, i),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_two_axes_are_as_one_of_their_product(name):
    f = SEVERAL[name]
    x = fnp.array(RNG.standard_normal((6, 6, 2)))
    want = fnx.vmap(lambda x: f(x, "all"), axis_name="all")(x)
    rows = fnx.vmap(lambda x: f(x, ("i", "j")), axis_name="j")
    got = fnx.vmap(rows, axis_name="i")(x.reshape(2, 3, 6, 2))
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-12)


SENT = {
    "ring": [(n, (n + 1) % 12) for n in range(12)],
    "rows exchanged": [(n, (n + 6) % 12) for n in range(12)],
    "reversed": [(n, 11 - n) for n in range(12)],
    "random": list(enumerate([int(n) for n in RNG.permutation(12)])),
    "a few": [(0, 5), (5, 0), (3, 11), (11, 4)],
    "none": [],
}


@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64"])
@pytest.mark.parametrize("name", SENT)
def test_what_is_sent_along_several_axes(name, dtype):
    """Replicas along three axes have the numbers of one axis; -0.0 stays what it is."""
    x = RNG.standard_normal((12, 5)).astype(dtype)
    x[:, 0] = -0.0
    want = np.zeros_like(x)
    for source, end in SENT[name]:
        want[end] = x[source]
    f = lambda x: lax.ppermute(x, ("i", "j", "k"), SENT[name])  # noqa: E731
    for over in "kji":
        f = fnx.vmap(f, axis_name=over)
    got = np.asarray(f(x.reshape(2, 3, 2, 5))).reshape(12, 5)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got.real), np.signbit(want.real))


def test_several_axes_are_shuffled_with_their_gradient():
    x = RNG.standard_normal((6, 5)).astype("float32")
    order = [4, 0, 5, 1, 2, 3]
    both = lambda x: lax.pshuffle(x, ("i", "j"), order)  # noqa: E731
    rows = fnx.vmap(fnx.vmap(both, axis_name="j"), axis_name="i")
    np.testing.assert_array_equal(rows(x.reshape(2, 3, 5)).reshape(6, 5), x[order])
    weights = fnp.arange(30.0).reshape(2, 3, 5)
    got = fnx.grad(lambda x: (rows(x) * weights).sum())(x.reshape(2, 3, 5))
    want = np.empty((6, 5))
    want[order] = np.arange(30.0).reshape(6, 5)
    np.testing.assert_array_equal(got.reshape(6, 5), want)


@pytest.mark.parametrize("perm", [[(0, 6)], [(0, 1), (0, 2)], [(2, 1), (0, 1)]])
def test_what_cannot_be_sent_along_several_axes(perm):
    f = fnx.vmap(lambda x: lax.ppermute(x, ("i", "j"), perm), axis_name="j")
    with pytest.raises(errors.AxisError, match="numbered from 0 to 5"):
        fnx.vmap(f, axis_name="i")(np.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("groups", [None, [[0, 2], [3, 1]]], ids=["all", "groups"])
def test_the_mean_of_integers_is_no_integer(dtype, groups):
    """Of eight and sixteen bits neither the sum wraps."""
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min // 2**8 * 2**8, 100)
    x = RNG.integers(limits[0] // 2, limits[1] + 1, (4, 7)).astype(dtype)
    x[:, 0] = np.iinfo(dtype).max if dtype != "bool" else True
    if dtype in ("int32", "int64"):
        x %= 1000
    mean = lambda x: lax.pmean(x, "i", axis_index_groups=groups)  # noqa: E731
    got = fnx.vmap(mean, axis_name="i")(x)
    want = np.empty((4, 7))
    for group in groups or [range(4)]:
        want[list(group)] = x[list(group)].mean(0, dtype="float64")
    assert got.dtype == ("float64" if dtype == "int64" else "float32")
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_mean_of_integers_over_two_axes():
    x = np.arange(6).reshape(2, 3)
    f = fnx.vmap(lambda x: lax.pmean(x, ("i", "j")), axis_name="j")
    np.testing.assert_array_equal(fnx.vmap(f, axis_name="i")(x), np.full((2, 3), 2.5))


def test_booleans_are_counted():
    x = RNG.integers(0, 2, (5, 3)).astype(bool)
    got = fnx.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(x)
    assert got.dtype == fnp.int32
    np.testing.assert_array_equal(got, np.broadcast_to(x.sum(0), (5, 3)))


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathered_arrays_may_be_empty(axis, tiled):
    x = np.ones((4, 3, 0, 2), "float32")
    gather = lambda x: lax.all_gather(x, "i", axis=axis, tiled=tiled)  # noqa: E731
    got = fnx.vmap(gather, axis_name="i")(x)
    rows = np.concatenate(x, axis) if tiled else np.stack(x, axis)
    assert got.shape == (4, *rows.shape)


IN_GROUPS = {
    "psum": lambda x, i, g: lax.psum(x, i, axis_index_groups=g),
    "count": lambda x, i, g: x * lax.psum(1, i, axis_index_groups=g),
    "pmean": lambda x, i, g: lax.pmean(x, i, axis_index_groups=g),
    "pmax": lambda x, i, g: lax.pmax(x, i, axis_index_groups=g),
    "pmin": lambda x, i, g: lax.pmin(x, i, axis_index_groups=g),
    "all_gather": lambda x, i, g: lax.all_gather(
        x, i, axis=1, tiled=True, axis_index_groups=g
    ),
    "psum_scatter": lambda x, i, g: lax.psum_scatter(
        x, i, tiled=True, axis_index_groups=g
    ),
    "all_to_all": lambda x, i, g: lax.all_to_all(
        x, i, 0, 1, tiled=True, axis_index_groups=g
    ),
    "pswapaxes": lambda x, i, g: lax.pswapaxes(x[:3], i, 0, axis_index_groups=g),
}


@pytest.mark.parametrize("name", IN_GROUPS)
@pytest.mark.parametrize("axis", ["i", "j"])
def test_groups_are_as_an_axis_of_their_own(name, axis):
    """On a grid of replicas, the columns are groups of three, the rows of two."""
    f = IN_GROUPS[name]
    x = fnp.array(RNG.standard_normal((2, 3, 6, 2)))
    if axis == "j":
        groups = [[3, 4, 5], [0, 1, 2]]
    else:
        groups = [[0, 3], [1, 4], [2, 5]]
    if name == "pswapaxes" and axis == "i":
        x = x[:, :, :2]
    rows = fnx.vmap(lambda x: f(x, axis, None), axis_name="j")
    want = fnx.vmap(rows, axis_name="i")(x)
    flat = x.reshape(6, *x.shape[2:])
    got = fnx.vmap(lambda x: f(x, "all", groups), axis_name="all")(flat)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-12)
    slopes = fnx.vmap(
        fnx.vmap(fnx.grad(lambda x: (f(x, axis, None) ** 2).sum()), axis_name="j"),
        axis_name="i",
    )(x)
    got = fnx.vmap(
        fnx.grad(lambda x: (f(x, "all", groups) ** 2).sum()), axis_name="all"
    )(flat)
    np.testing.assert_allclose(got.reshape(slopes.shape), slopes, rtol=1e-12)


def numpy_ragged(operand, output, input_offsets, sizes, output_offsets):
    """What replicas send, slice by slice; each argument has a row for each replica."""
    found = output.copy()
    count, slices = sizes.shape
    for source in range(count):
        for k in range(slices):
            target = k // (slices // count)
            begin, to = input_offsets[source, k], output_offsets[source, k]
            rows = operand[source, begin : begin + sizes[source, k]]
            found[target, to : to + sizes[source, k]] = rows
    return found


@pytest.mark.parametrize(("rows", "slices"), [(20, 3), (9, 6), (40, 3)])
def test_ragged_all_to_all(rows, slices):
    """Slices of random lengths, one after the other where they arrive."""
    count = 3
    sizes = RNG.integers(0, 4, (count, slices))
    starts = np.cumsum(sizes, 1) - sizes
    operand = RNG.standard_normal((count, 25, 2))
    output = RNG.standard_normal((count, rows + 10, 2))
    # to each replica: those of replica 0, of replica 1, …
    to = sizes.reshape(count, count, -1).swapaxes(0, 1).reshape(count, -1)
    places = (np.cumsum(to, 1) - to).reshape(count, count, -1)
    places = places.swapaxes(0, 1).reshape(count, slices)
    received = to

    def send(*arguments):
        return lax.ragged_all_to_all(*arguments, axis_name="i")

    arguments = [fnp.array(x) for x in (operand, output, starts, sizes, places)]
    arguments.append(fnp.array(received))
    found = fnx.vmap(send, axis_name="i")(*arguments)
    want = numpy_ragged(operand, output, starts, sizes, places)
    np.testing.assert_array_equal(found, want)

    # the cotangent of what is sent comes back, that of what is written over is lost
    def share(operand, output, *rest):
        return (send(operand, output, *rest) * ct[0]).sum()

    ct = fnp.array(RNG.standard_normal((1, rows + 10, 2)))
    slopes = fnx.vmap(fnx.grad(share, (0, 1)), axis_name="i")(*arguments)
    marks = [np.arange(x.size).reshape(x.shape) + 1.0 for x in (operand, output)]
    came = numpy_ragged(marks[0], -marks[1], starts, sizes, places)
    each = np.broadcast_to(np.asarray(ct), came.shape)
    for slope, mark, sign in zip(slopes, marks, (1, -1), strict=True):
        total = np.zeros(mark.size + 1)
        np.add.at(
            total, (sign * came[sign * came > 0]).astype(int), each[sign * came > 0]
        )
        np.testing.assert_allclose(slope, total[1:].reshape(mark.shape), 1e-12)


def test_what_does_not_fit_is_not_exchanged():
    x, n = fnp.zeros((2, 4)), fnp.zeros((2, 2), "int32")

    def send(*arguments):
        call = lambda *xs: lax.ragged_all_to_all(*xs, axis_name="i")  # noqa: E731
        return fnx.vmap(call, axis_name="i")(*arguments)

    with pytest.raises(errors.DTypeError, match="send_sizes"):
        send(x, x, n, fnp.zeros((2, 2)), n, n)
    with pytest.raises(errors.ShapeError, match="multiple of the 2 replicas"):
        send(x, x, *[fnp.zeros((2, 3), "int32")] * 4)
    with pytest.raises(errors.ShapeError, match="rows of one kind"):
        send(x, fnp.zeros((2, 4, 1)), n, n, n, n)


def test_groups_of_several_axes_are_refused():
    with pytest.raises(errors.AxisError, match="along one axis"):
        lax.psum(1.0, ("i", "j"), axis_index_groups=[[0]])
    with pytest.raises(errors.OptionError, match="'reduced' is not supported"):
        fnx.vmap(lambda x: lax.pcast(x, "i", to="reduced"), axis_name="i")(V)
    with pytest.raises(errors.AxisError, match="0 to 3"):
        fnx.vmap(lambda x: lax.pbroadcast(x, "i", 4), axis_name="i")(V)


def test_two_names():
    x = fnp.array(np.arange(6.0).reshape(2, 3))

    def both(f):
        return fnx.vmap(fnx.vmap(f, axis_name="j"), axis_name="i")(x)

    assert both(lambda x: lax.psum(x, ("i", "j"))).tolist() == [[15.0] * 3] * 2
    number = both(lambda x: lax.axis_index(("i", "j")))
    assert number.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(errors.AxisError, match="'k'"):
        both(lambda x: lax.psum(x, "k"))
