"""What the cases of reductions cannot say: ties, high derivatives at zeros, nesting."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.core.primitive import primitive
from fnx.core.trace import trace
from fnx.kernel.build import KernelBuilder
from fnx.ops.cumulative import cummax, cummin, cumprod
from fnx.ops.reduce import fold_tag, reduce_max, reduce_min, reduce_prod
from fnx.runtime.array import from_numpy
from fnx.transforms.jvp import push_forward


def tangent(function, x, t, **params):
    """The tangent of a primitive with one operand, as NumPy."""
    given = from_numpy(np.asarray(x, float)), from_numpy(np.asarray(t, float))
    return np.asarray(function.jvp((given[0],), (given[1],), **params)[1])


@pytest.mark.parametrize("extremum", [reduce_max, reduce_min])
@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ([2.0, 2.0, 2.0, 2.0], [0.25] * 4),
        ([-0.0, 0.0], [0.5, 0.5]),
        ([np.inf, np.inf, np.inf], [1 / 3] * 3),
        # A NaN is the extremum: it alone gets the cotangent.
        ([1.0, np.nan, 2.0, np.nan], [0, 0.5, 0, 0.5]),
    ],
)
def test_the_tied_share_equally(extremum, values, shares):
    found = [tangent(extremum, values, row, axes=(0,)) for row in np.eye(len(values))]
    np.testing.assert_allclose(found, shares, 1e-15)


def test_an_extremum_over_nothing_does_not_move():
    x = from_numpy(np.zeros((0, 2)))
    assert reduce_max.jvp((x,), (x,), axes=(0,))[1] is None


@pytest.mark.parametrize("reverse", [False, True])
def test_the_tied_so_far_share_equally(reverse):
    x = np.array([1.0, 1.0, 0.0, 1.0, 3.0, 2.0, 3.0])
    shares = np.zeros((7, 7))
    shares[0, 0] = 1
    shares[1:3, :2] = 1 / 2
    shares[3, [0, 1, 3]] = 1 / 3
    shares[4:6, 4] = 1
    shares[6, [4, 6]] = 1 / 2
    if reverse:
        x, shares = x[::-1], shares[::-1, ::-1]
    params = {"axis": 0, "reverse": reverse}
    for function, sign in ((cummax, 1), (cummin, -1)):
        found = [tangent(function, sign * x, row, **params) for row in np.eye(7)]
        np.testing.assert_allclose(np.transpose(found), shares, 1e-15)


def test_a_nan_moves_what_comes_after_it():
    x = [1.0, np.nan, 2.0, np.nan]
    found = [tangent(cummax, x, r, axis=0, reverse=False) for r in np.eye(4)]
    wanted = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0.5, 0, 0.5]]
    np.testing.assert_array_equal(np.transpose(found), wanted)


@pytest.mark.parametrize(
    ("function", "params"),
    [(reduce_prod, {"axes": (0,)}), (cumprod, {"axis": 0, "reverse": False})],
)
def test_mixed_third_derivative_of_a_product_at_zeros(function, params):
    """d³(abcde) / da dc dd = b e, also where a, c and d are 0."""
    x = from_numpy(np.array([0.0, 2.0, 0.0, 0.0, 5.0]))
    program = trace(lambda x: [function(x, **params)], [x.type]).program
    given = [x]
    for place in (0, 2, 3):
        direction = from_numpy(np.eye(5)[place])
        count = len(given)

        def derived(*args, program=program, direction=direction):
            still = [None] * (len(args) - 1)
            return [push_forward(program, args, [*still, direction])[1][0]]

        traced = trace(derived, [x.type for x in given])
        given = [*traced.captured, *given]
        program = traced.program
        assert len(given) >= count
    value = np.asarray(push_forward(program, given, [None] * len(given))[0][0])
    assert np.atleast_1d(value)[-1] == 10


def test_folds_have_tags_that_tell_how_deep_they_are():
    k = KernelBuilder()
    (i,) = k.domain((4,))
    assert fold_tag((i, 0)) == ("fold", 1)
    tags = []

    def body(inner):
        tags.append(fold_tag((i * 2, *inner)))
        return k.constant(1.0, np.dtype("float32"))

    k.fold("add", fold_tag((i,)), (3,), body)
    assert tags == [("fold", 2)]


def test_accumulation_in_16_bits_would_stop_short():
    ones = from_numpy(np.ones(5000, np.float16))
    assert float(primitive("reduce_sum")(ones, axes=(0,))) == 5000


def test_a_sum_of_negative_zeros_keeps_its_sign():
    def negative(*shape):
        x = from_numpy(np.full(shape, -0.0, np.float32))
        return np.signbit(np.asarray(primitive("reduce_sum")(x, axes=(0,)))).all()

    assert negative(1)
    assert negative(4, 2)
    assert not negative(0)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u1", "i8"])
@pytest.mark.parametrize("shape", [(1,), (37,), (5, 33), (300, 41), (140_000,)])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_what_nothing_beats(name, shape, dtype):
    largest = name == "argmin"
    if dtype[0] == "f":
        worst = np.inf if largest else -np.inf
    else:
        info = np.iinfo(dtype)
        worst = info.max if largest else info.min
    rng = np.random.default_rng(0)
    flat = np.full(shape, worst, dtype)
    some = np.where(rng.random(shape) < 0.9, flat, flat.dtype.type(3))
    many = rng.integers(0, 4, shape).astype(dtype)
    arrays = [flat, some, many]
    if dtype[0] == "f":
        nan = np.dtype(dtype).type("nan")
        arrays.append(np.where(rng.random(shape) < 0.1, nan, some))
    for x in arrays:
        for axis in range(x.ndim):
            found = fnx.jit(lambda x, axis=axis: getattr(fnp, name)(x, axis))(x)
            np.testing.assert_array_equal(found, getattr(np, name)(x, axis))
