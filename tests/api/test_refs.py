"""Refs: arrays that can be written to, eagerly and in transformed functions."""

import jax
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors


def test_reading_and_writing():
    ref = fnx.new_ref(np.arange(6.0).reshape(2, 3))
    before = ref[...]
    ref[0] = 7
    ref[1, 1:] = np.array([-1, -2])
    ref.at[0, 0].add(0.5)
    ref.at[:, 2].multiply(10)
    ref.at[1].max(0)
    np.testing.assert_array_equal(ref[...], [[7.5, 7, 70], [3, 0, 0]])
    np.testing.assert_array_equal(before, np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(ref.at[0].get(), [7.5, 7, 70])
    assert (ref.shape, ref.dtype, ref.ndim, ref.size) == ((2, 3), np.float64, 2, 6)
    ref[...] = np.array([1, 2, 3], np.int8)
    np.testing.assert_array_equal(ref[...], [[1, 2, 3], [1, 2, 3]])
    assert ref[...].dtype == np.float64
    ref[...] += 1
    assert ref[1, 0] == 2
    np.testing.assert_array_equal(fnx.freeze(ref), [[2, 3, 4], [2, 3, 4]])
    with pytest.raises(errors.ArgumentError, match="after fnx"):
        ref[...]


def powers(x):
    """x, x², x³, … in a ref that a traced function makes."""
    ref = fnx.new_ref(fnp.ones(4, x.dtype))
    for n in range(1, 4):
        ref[n] = ref[n - 1] * x
    return (fnx.freeze(ref) * np.arange(1.0, 5.0)).sum()


def test_jit_grad_and_vmap():
    x = np.array([0.5, -2.0, 3.0])
    value = 1 + 2 * x + 3 * x**2 + 4 * x**3
    slope = 2 + 6 * x + 12 * x**2
    for y, v, s in zip(x, value, slope, strict=True):
        assert fnx.jit(powers)(y) == powers(fnp.asarray(y)) == v
        assert fnx.grad(powers)(y) == fnx.jit(fnx.grad(powers))(y) == s
    np.testing.assert_array_equal(fnx.vmap(powers)(x), value)
    np.testing.assert_array_equal(fnx.vmap(fnx.grad(powers))(x), slope)
    assert fnx.hessian(powers)(2.0) == 6 + 24 * 2


def loops(lib, ref_of, freeze, x, n):
    """A ref from outside of nested loops and branches, in JAX's words."""
    total = ref_of(x * 0)
    row = ref_of(x[None] * lib.numpy.ones((4, 1)))

    def outer(carry, i):
        def inner(j, _):
            total[...] += row[i % 4] * j
            row[j % 4] = lib.numpy.sin(total[...])
            return 0

        lib.lax.fori_loop(0, n, inner, 0)

        def double():
            total[...] = total[...] * 1.5
            return carry + 1

        carry = lib.lax.cond(i % 2 == 0, double, lambda: carry - row[1].sum())
        return carry, total[0]

    carry, ys = lib.lax.scan(outer, 0.0 * x[0], lib.numpy.arange(5))
    return carry + freeze(total).sum() + ys.sum(), freeze(row)


def oracle(lib, x, n):
    """The same in NumPy."""
    total, row = 0 * x, np.ones((4, 1)) * x[None]
    carry, ys = 0.0, []
    for i in range(5):
        for j in range(n):
            total = total + row[i % 4] * j
            row[j % 4] = np.sin(total)
        if i % 2 == 0:
            total = total * 1.5
            carry = carry + 1
        else:
            carry = carry - row[1].sum()
        ys.append(total[0])
    return carry + total.sum() + sum(ys), row


X = np.array([0.3, -0.2, 0.9])


@pytest.mark.parametrize("n", [0, 3])
def test_loops_and_branches(n):
    def f(x):
        return loops(fnx, fnx.new_ref, fnx.freeze, x, n)

    wanted = oracle(np, X.copy(), n)
    for run in (f, fnx.jit(f)):
        value, row = run(fnp.asarray(X))
        np.testing.assert_allclose(value, wanted[0], rtol=1e-12)
        np.testing.assert_allclose(row, wanted[1], rtol=1e-12)
    many = fnx.vmap(f)(np.stack([X, 2 * X]))[0]
    second = oracle(np, 2 * X, n)[0]
    np.testing.assert_allclose(many, [wanted[0], second], rtol=1e-12)


def test_the_gradient_of_loops():
    f = fnx.jit(fnx.grad(lambda x: loops(fnx, fnx.new_ref, fnx.freeze, x, 3)[0]))
    found = f(X)
    for k in range(3):
        step = np.zeros(3)
        step[k] = 1e-6
        low, high = [oracle(np, X + sign * step, 3)[0] for sign in (-1, 1)]
        np.testing.assert_allclose(found[k], (high - low) / 2e-6, rtol=1e-7)


def test_while_loops_read_in_the_test():
    def f(x):
        ref, rounds = fnx.new_ref(x), fnx.new_ref(0)

        def body(n):
            ref[...] = ref[...] / 2
            rounds[...] += 1
            return n

        fnx.lax.while_loop(lambda n: ref[...] > n, body, 1.0)
        return fnx.freeze(ref), fnx.freeze(rounds)

    for run in (f, fnx.jit(f)):
        assert run(fnp.asarray(20.0)) == (0.625, 5)
        assert run(fnp.asarray(0.5)) == (0.5, 0)
    found = fnx.vmap(f)(np.array([20.0, 0.5, 3.0]))
    np.testing.assert_array_equal(found[0], [0.625, 0.5, 0.75])
    np.testing.assert_array_equal(found[1], [5, 0, 2])


def test_switch_and_map_outside_of_traces():
    ref = fnx.new_ref(np.zeros(3))

    def write(x):
        ref[x] = ref[x - 1] + x
        return ref[0]

    fnx.lax.map(write, np.array([1, 2, 0]))
    np.testing.assert_array_equal(ref[...], [3, 1, 3])
    branches = [lambda: None, lambda: ref.at[0].add(1)]
    fnx.lax.switch(0, branches)
    assert ref[0] == 3
    fnx.lax.switch(1, branches)
    assert ref[0] == 4


def test_as_in_jax():
    if not hasattr(jax, "new_ref"):
        pytest.skip("this JAX has no refs")

    def f(lib, x):
        ref = lib.new_ref(x)

        def body(carry, y):
            ref[1] = ref[0] + y
            ref[...] = ref[...] * carry
            return carry + 1, ref[1]

        ys = lib.lax.scan(body, np.float32(1), np.arange(3, dtype=np.float32))[1]
        return ys, ref[...]

    x = np.array([2.0, 5.0], np.float32)
    wanted = jax.jit(lambda x: f(jax, x))(x)
    for found, want in zip(fnx.jit(lambda x: f(fnx, x))(x), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6)


# ---------------------------------------------------------------- mistakes


def kept():
    held = []

    def f(x):
        held.append(fnx.new_ref(x))
        return x

    fnx.jit(f)(1.0)
    return held[0][...]


def frozen_inside():
    ref = fnx.new_ref(1.0)
    fnx.lax.cond(True, lambda: fnx.freeze(ref), lambda: 1.0)


def written():
    ref = fnx.new_ref(0)

    def test(n):
        ref[...] += 1
        return n < 3

    fnx.lax.while_loop(test, lambda n: n + 1, 0)


OUTSIDE = fnx.new_ref(1.0)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (kept, errors.LeakedTracerError, "the trace in which it was made had ended"),
        (frozen_inside, errors.ArgumentError, "frozen inside of a loop"),
        (lambda: fnx.jit(lambda: OUTSIDE[...])(), errors.ArgumentError, "from outside"),
        (
            lambda: fnx.grad(lambda x: x * OUTSIDE[...])(1.0),
            errors.ArgumentError,
            "inside of jit, grad, vmap",
        ),
        (lambda: fnx.jit(lambda r: r)(OUTSIDE), errors.ArgumentError, "type Ref"),
        (lambda: fnx.new_ref(OUTSIDE), errors.ArgumentError, "read it with"),
        (lambda: fnx.new_ref("a"), errors.ArgumentError, "new_ref: init_val is 'a'"),
        (lambda: fnx.freeze(1.0), errors.ArgumentError, "takes a Ref, got a float"),
        (
            lambda: OUTSIDE.__setitem__(..., np.ones(2)),
            errors.ShapeError,
            r"f32\[\] was written with f64\[2\]",
        ),
        (lambda: iter(OUTSIDE), TypeError, "cannot be iterated"),
    ],
)
def test_mistakes(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
    assert OUTSIDE[...] == 1


def test_a_condition_only_reads():
    with pytest.raises(errors.ArgumentError, match="cond_fun may only read"):
        written()
