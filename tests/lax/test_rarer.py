"""The rarer operations of `fnx.lax` against `jax.lax`, eagerly and compiled."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax as jlax

import fnx
import fnx.numpy as fnp
from fnx import errors, lax

RNG = np.random.default_rng(5)
F = RNG.standard_normal((3, 4, 5)).astype("f4")
I = RNG.integers(-99, 99, (3, 4)).astype("i4")  # noqa: E741


def _same(found, wanted, rtol=1e-5):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(
        found.astype("f8"), wanted.astype("f8"), rtol=rtol, atol=rtol
    )


# ---------------------------------------------------------------- reduce

FUNCTIONS = {
    "add": lambda lib: lib.add,
    "mul": lambda lib: lib.mul,
    "max": lambda lib: lib.max,
    "min": lambda lib: lib.min,
    "logaddexp": lambda lib: (jnp if lib is jlax else fnp).logaddexp,
}
STARTS = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf, "logaddexp": -np.inf}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1,), (2, 0), (0, 1, 2), ()])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_reduce(name, axes, jitted):
    start = np.float32(STARTS[name])
    wanted = jlax.reduce(F, start, FUNCTIONS[name](jlax), axes)

    def function(x):
        return lax.reduce(x, start, FUNCTIONS[name](lax), axes)

    _same((fnx.jit(function) if jitted else function)(F), wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reduce_with_a_start_and_without_elements(name):
    start = np.float32(0.5)
    wanted = jlax.reduce(F, start, FUNCTIONS[name](jlax), (1,))
    _same(lax.reduce(F, start, FUNCTIONS[name](lax), (1,)), wanted)
    none = np.zeros((2, 0), "f4")
    found = lax.reduce(none, start, FUNCTIONS[name](lax), (1,))
    _same(found, np.full(2, 0.5, "f4"))


def _affine(lib):
    def compose(f, g):
        return f[0] * g[0], g[1] + g[0] * f[1]

    return compose


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_reduce_of_a_tree_keeps_the_order(n):
    scale, shift = RNG.uniform(0.5, 1.5, (2, n, 3))
    found = lax.reduce((scale, shift), (1.0, 0.0), _affine(lax), (0,))
    a, b = np.ones(3), np.zeros(3)
    for s, t in zip(scale, shift, strict=True):
        a, b = a * s, t + s * b
    np.testing.assert_allclose(found[0], a, rtol=1e-12)
    np.testing.assert_allclose(found[1], b, rtol=1e-12)


def test_reduce_can_be_differentiated_and_mapped():
    def total(x):
        return lax.reduce(x, 0.0, lambda a, b: a + b + 0.1 * a * b, (0,))

    x = F[0, :, 0].astype("f8")
    slope = fnx.grad(total)(x)
    product = np.prod(1 + 0.1 * x)
    np.testing.assert_allclose(slope, product / (1 + 0.1 * x), rtol=1e-12)
    mapped = fnx.vmap(total)(F[0].astype("f8"))
    np.testing.assert_allclose(mapped, [float(total(row)) for row in F[0]], rtol=1e-6)


def test_reduce_xor():
    for axes in ((0,), (1,), (0, 1)):
        _same(lax.reduce_xor(I, axes), jlax.reduce_xor(I, axes))
        _same(lax.reduce_xor(I > 0, axes), jlax.reduce_xor(I > 0, axes))


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: lax.reduce((F, F), 0.0, max, (0,)), errors.TreeError, "init_values"),
        (
            lambda: lax.reduce((F, F), (0.0, 0.0), lambda a, b: a, (5,)),
            errors.AxisError,
            "out of range",
        ),
        (
            lambda: lax.reduce((F, F), (0.0, 0.0), lambda a, b: a[0], (0,)),
            errors.TreeError,
            "it gave",
        ),
        (
            lambda: lax.reduce(F, 0.0, lambda a, b: (a + b) > 0, (0,)),
            errors.DTypeError,
            "gave bool",
        ),
        (lambda: lax.reduce((F, I), (0.0, 0), max, (0,)), errors.ShapeError, "shape"),
    ],
)
def test_what_reduce_does_not_take(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


# ---------------------------------------------------------------- bits

EDGES = [0.0, -0.0, 1.5, 1e-40, 1e38, 3.4e38, 65519, 65520, np.nan, -np.inf, 6e-8, 1e-5]


@pytest.mark.parametrize("bits", [(8, 7), (8, 10), (5, 10), (5, 2), (4, 3), (1, 0)])
@pytest.mark.parametrize("dtype", ["f4", "f2", "bf16"])
def test_reduce_precision(bits, dtype):
    kind = ml_dtypes.bfloat16 if dtype == "bf16" else dtype
    with np.errstate(over="ignore"):
        x = np.array([*EDGES, *RNG.standard_normal(50) * 100], "f4").astype(kind)
    wanted = np.asarray(jlax.reduce_precision(x, *bits))
    for f in (
        lax.reduce_precision,
        fnx.jit(lax.reduce_precision, static_argnums=(1, 2)),
    ):
        found = np.asarray(f(x, *bits))
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.astype("f8"), wanted.astype("f8"))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_reduce_precision_of_doubles_and_of_tangents():
    x = RNG.standard_normal(20)
    with np.errstate(over="ignore"):
        _same(lax.reduce_precision(x, 8, 23), x.astype("f4").astype("f8"), 0)
    slope = fnx.grad(lambda x: (lax.reduce_precision(x, 8, 7) * 1.2345678).sum())(F)
    assert (slope == lax.reduce_precision(np.float32(1.2345678), 8, 7)).all()


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_mulhi(dtype):
    info = np.iinfo(dtype)
    ends = np.array([0, 1, 2, info.max, info.min, info.max // 3, 7], dtype)
    x, y = (a.ravel() for a in np.meshgrid(ends, ends))
    width = 8 * x.dtype.itemsize
    wanted = [(int(a) * int(b)) >> width for a, b in zip(x, y, strict=True)]
    assert lax.mulhi(x, y).tolist() == wanted
    assert fnx.jit(lax.mulhi)(x, y).tolist() == wanted


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_rng_bit_generator(dtype):
    state = np.array([3, 4, 2**32 - 2, 0], "u4")
    after, bits = lax.rng_bit_generator(state, (5, 7), dtype)
    assert bits.shape == (5, 7) and bits.dtype == dtype
    # The counter goes on over the end of its lower word.
    again = np.array([3 + (4 << 32), 2**32 - 2], "u8")
    other, same = lax.rng_bit_generator(again, (5, 7), dtype)
    np.testing.assert_array_equal(bits, same)
    steps = int(after[2]) + (int(after[3]) << 32) - (2**32 - 2)
    assert steps == (35 if dtype == "uint64" else 18)
    assert int(other[1]) == 2**32 - 2 + steps
    # What comes next goes on where this ends.
    joined = lax.rng_bit_generator(state, (36,), "uint32")[1]
    middle, first = lax.rng_bit_generator(state, (16,), "uint32")
    rest = lax.rng_bit_generator(middle, (20,), "uint32")[1]
    np.testing.assert_array_equal(np.concatenate([first, rest]), joined)
    if dtype == "uint32":
        many = np.asarray(lax.rng_bit_generator(state, (100_000,))[1])
        assert abs(many.mean() / 2**32 - 0.5) < 0.005
    with pytest.raises(errors.OptionError, match="Philox"):
        lax.rng_bit_generator(state, (2,), dtype, lax.RandomAlgorithm.RNG_PHILOX)


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("name", [p.name for p in lax.DotAlgorithmPreset])
def test_algorithms_of_products(name, rng):
    x = rng.standard_normal((8, 64)).astype("f4")
    y = rng.standard_normal((64, 8)).astype("f4")
    exact = x.astype("f8") @ y.astype("f8")
    preset = lax.DotAlgorithmPreset[name]
    numbers = (((1,), (0,)), ((), ()))
    found = lax.dot_general(x, y, numbers, preset)
    assert found.dtype == "float32"
    error = np.abs(np.asarray(found) - exact).max()
    # About what rounding the operands to that precision gives.
    bounds = {
        "F16_F16_F16": (1e-4, 4e-2),
        "F16_F16_F32": (1e-4, 1e-2),
        "BF16_BF16_BF16": (1e-3, 2e-1),
        "BF16_BF16_F32": (1e-3, 1e-1),
        "BF16_BF16_F32_X3": (1e-6, 3e-4),
        "TF32_TF32_F32": (1e-4, 1e-2),
    }
    low, high = bounds.get(name, (0, 3e-5))
    assert low <= error <= high
    wide = lax.dot(x, y, precision=preset, preferred_element_type="float64")
    assert wide.dtype == "float64"


def test_an_algorithm_of_the_user():
    x = np.array([[1.0 + 2**-9, 3.0]], "f4")
    one = lax.DotAlgorithm("bfloat16", "float32", "float32")
    two = one._replace(lhs_component_count=2, num_primitive_operations=2)
    eye = np.eye(2, dtype="f4")
    assert lax.dot(x, eye, precision=one).tolist() == [[1.0, 3.0]]
    assert lax.dot(x, eye, precision=two).tolist() == x.tolist()
    with pytest.raises(errors.OptionError, match="components"):
        lax.dot(x, eye, precision=one._replace(num_primitive_operations=2))
    with pytest.raises(errors.DTypeError, match="real floats"):
        lax.dot(x.astype("i4"), eye.astype("i4"), precision=one)
    with pytest.raises(errors.OptionError, match="unknown"):
        lax.dot(x, eye, precision="exact")


@pytest.mark.parametrize(
    "alias", "fastest bfloat16 bfloat16_3x tensorfloat32 float32".split()
)
def test_aliases_of_precisions(alias):
    assert lax.Precision(alias).name == jlax.Precision(alias).name
    _same(lax.dot(F[0], F[1].T, precision=alias), F[0] @ F[1].T)


@pytest.mark.parametrize("sizes", [[2, 0, 3], [1, 1, 1], [0, 0, 0], [0, 5, 0]])
def test_ragged_dot(sizes):
    x = RNG.standard_normal((5, 4)).astype("f4")
    y = RNG.standard_normal((3, 4, 2)).astype("f4")
    sizes = np.array(sizes, "i4")
    wanted = jlax.ragged_dot(x, y, sizes)
    _same(lax.ragged_dot(x, y, sizes), wanted)
    _same(fnx.jit(lax.ragged_dot)(x, y, sizes), wanted)
    slope = fnx.grad(lambda y: lax.ragged_dot(x, y, sizes).sum())(y)
    _same(slope, jax.grad(lambda y: jlax.ragged_dot(x, y, sizes).sum())(y))


RAGGED = [
    # operands, sizes, dot dimensions, ragged axis, group axes
    ((2, 5, 4), (3, 2, 4, 2), (2, 3), (((2,), (2,)), ((0,), (1,))), 1, (0,)),
    ((2, 5, 4), (3, 2, 4, 2), (3,), (((2,), (2,)), ((0,), (1,))), 1, (0,)),
    ((5, 4), (5, 2), (3,), (((0,), (0,)), ((), ())), 0, ()),
    ((2, 5, 4), (2, 5, 3), (2, 3), (((1,), (1,)), ((0,), (0,))), 1, ()),
    ((2, 5, 4), (2, 5, 3), (3,), (((1,), (1,)), ((0,), (0,))), 0, ()),
    ((2, 5, 4), (3, 4, 2), (2, 3), (((2,), (1,)), ((), ())), 1, (0,)),
]


@pytest.mark.parametrize("number", range(len(RAGGED)))
def test_ragged_dot_general(number):
    left, right, counts, numbers, ragged, groups = RAGGED[number]
    x, y = (RNG.standard_normal(s).astype("f4") for s in (left, right))
    sizes = RNG.integers(0, 3, counts).astype("i4")
    found = lax.ragged_dot_general(
        x, y, sizes, lax.RaggedDotDimensionNumbers(numbers, (ragged,), groups)
    )
    wanted = jlax.ragged_dot_general(
        x, y, sizes, jlax.RaggedDotDimensionNumbers(numbers, [ragged], list(groups))
    )
    _same(found, wanted)


def test_what_ragged_products_do_not_take():
    numbers = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    x, y, sizes = np.ones((5, 4)), np.ones((3, 4, 2)), np.ones(3, "i4")
    with pytest.raises(errors.OptionError, match="group_offset"):
        lax.ragged_dot(x, y, sizes, group_offset=np.zeros(1, "i4"))
    with pytest.raises(errors.DTypeError, match="group_sizes"):
        lax.ragged_dot_general(x, y, np.ones(3), numbers)
    with pytest.raises(errors.ArgumentError, match="one axis"):
        two = lax.RaggedDotDimensionNumbers(numbers.dot_dimension_numbers, (0, 1), ())
        lax.ragged_dot_general(x, y, sizes, two)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_scaled_dot(batch):
    x = RNG.standard_normal((*batch, 4, 8)).astype("f4")
    y = RNG.standard_normal((*batch, 8, 2)).astype("f4")
    s = RNG.uniform(1, 2, (*batch, 4, 2)).astype("f4")
    t = RNG.uniform(1, 2, (*batch, 4, 2)).astype("f4")
    wanted = (x * np.repeat(s, 4, -1)) @ (y * np.repeat(t, 2, -2))
    options = {"lhs_scale": s, "rhs_scale": t}
    found = lax.scaled_dot(x, y, **options, preferred_element_type="float32")
    _same(found, wanted.astype("f4"))
    coarse = lax.scaled_dot(x, y, **options)
    assert coarse.dtype == fnp.bfloat16
    np.testing.assert_allclose(np.asarray(coarse, "f4"), wanted, rtol=0.1, atol=0.2)
    with pytest.raises(errors.ShapeError, match="does not fit"):
        lax.scaled_dot(x, y, lhs_scale=np.ones((*batch, 4, 3)))


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_approximate_orders_are_exact(axis):
    for name, sign in (("approx_max_k", -1), ("approx_min_k", 1)):
        values, places = getattr(lax, name)(F, 2, axis)
        order = np.argsort(sign * F, axis, kind="stable").take(range(2), axis)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(F, order, axis))
    with pytest.raises(errors.OptionError, match="aggregate"):
        lax.approx_max_k(F, 2, aggregate_to_topk=False)
    with pytest.raises(errors.OptionError, match="recall"):
        lax.approx_max_k(F, 2, recall_target=0)


def test_accuracy_of_functions():
    x = np.float32(0.5)
    names = "cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh"
    for name in names.split():
        function = getattr(lax, name)
        plain = function(x)
        for accuracy in (
            *lax.AccuracyMode,
            lax.Tolerance(ulps=2),
            lax.Tolerance(rtol=1e-6),
        ):
            assert function(x, accuracy=accuracy) == plain
        with pytest.raises(errors.OptionError, match="units in the last place"):
            function(x, accuracy=lax.Tolerance(ulps=1))
    with pytest.raises(errors.OptionError, match="AccuracyMode"):
        lax.exp(x, accuracy="best")
    for wrong in ({}, {"atol": -1.0}, {"rtol": 1e-3, "ulps": 3}):
        with pytest.raises(errors.OptionError, match="Tolerance"):
            lax.Tolerance(**wrong)


def test_products_in_another_dtype():
    x = np.full(3, 2**30, "i4")
    assert lax.mul(x, x, out_dtype="int64").tolist() == [2**60] * 3


def test_composite():
    def body(x, *, power):
        return x**power

    cube = lax.composite(body, "my.power", version=1)
    assert cube(2.0, power=3) == 8
    assert fnx.grad(lambda x: cube(x, power=3))(2.0) == 12
    program = fnx.make_jaxpr(lambda x: cube(x, power=3))(2.0)
    assert {e.source.scope for e in program.eqns} == {("my.power.v1",)}
    with pytest.raises(errors.ArgumentError, match="'power' is traced"):
        fnx.jit(lambda x, p: cube(x, power=p))(2.0, 3.0)


def test_tokens_and_stage():
    token = lax.after_all(lax.create_token(), lax.create_token())
    assert token.shape == (0,)
    assert "barrier" in str(fnx.make_jaxpr(lax.after_all)(token))
    assert "barrier" in str(fnx.make_jaxpr(lambda: lax.stage(np.ones(2)))())
    assert lax.stage(2).dtype == "int32"


def test_shapes_and_places():
    assert lax.empty((2, 3), "float32").shape == (2, 3)
    _same(lax.shape_as_value((2, 3)), np.array([2, 3], "i4"))
    _same(lax.shape_as_value(()), np.zeros(0, "i4"))
    _same(lax.broadcast_like(F[0, 0], F), np.broadcast_to(F[0, 0], F.shape))
    for axes in itertools.chain(itertools.combinations(range(3), 2), [(1,), (0, 1, 2)]):
        places = [np.array([0, -1, 1, 4]) for _ in axes]
        _same(lax.index_take(F, places, axes), jlax.index_take(F, places, axes))


@pytest.mark.parametrize("mode", [None, "clip", "fill"])
def test_scatter_apply(mode):
    x = F[0]
    places = np.array([[1, 0], [3, 2], [1, 0], [9, 1]])
    dims = ((1,), (0,), (0, 1))
    options = {"update_shape": (4, 2), "mode": mode}
    found = lax.scatter_apply(
        x, places, lambda v: v * v + 1, lax.ScatterDimensionNumbers(*dims), **options
    )
    wanted = x.copy()
    for i, j in places:
        if i > 3 and mode != "clip":
            continue
        part = (min(i, 3), slice(j, j + 2))
        wanted[part] = wanted[part] ** 2 + 1
    _same(found, wanted)
    with pytest.raises(errors.ShapeError, match="update_shape"):
        lax.scatter_apply(x, places, fnp.sin, lax.ScatterDimensionNumbers(*dims))
