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


# ---------------------------------------------------------------- across borders


def test_a_jitted_function_uses_a_ref_from_outside():
    counter, row = fnx.new_ref(0), fnx.new_ref(np.zeros(3))
    traces = []

    @fnx.jit
    def f(x, i):
        traces.append(None)
        counter[...] += 1
        row[i] = row[i] + x
        return row[...].sum() * counter[...]

    wanted = np.zeros(3)
    for n, (x, i) in enumerate([(1.0, 0), (2.0, 2), (3.0, 0)], 1):
        wanted[i] += x
        assert f(x, i) == wanted.sum() * n
        np.testing.assert_array_equal(row[...], wanted)
        assert counter[...] == n
    assert len(traces) == 2  # one to find the refs, one with them
    row[...] = 10  # what is written outside is read inside
    assert f(1.0, 1) == 31 * 4
    assert f(np.float64(1), 1) == 32 * 5 and len(traces) == 4


def test_a_jitted_function_takes_refs():
    @fnx.jit
    def sine_in_place(ref, scale):
        before = ref[...]
        ref[...] = fnp.sin(before) * scale
        return before

    x = np.array([0.5, 1.0])
    first, second = fnx.new_ref(x), fnx.new_ref(-x)
    for ref in (first, second, first):
        before = np.asarray(ref[...])
        np.testing.assert_array_equal(sine_in_place(ref, 2.0), before)
        np.testing.assert_allclose(ref[...], 2 * np.sin(before))
    inside = fnx.jit(lambda tree, *, by: tree["a"].at[tree["n"]].add(by))
    inside({"a": first, "n": 1}, by=5.0)
    np.testing.assert_allclose(first[1], 2 * np.sin(2 * np.sin(1.0)) + 5)
    static = fnx.jit(
        lambda n, ref: [ref.at[0].add(1) for _ in range(n)], static_argnums=0
    )
    before = first[0]
    static(3, first)
    np.testing.assert_allclose(first[0], before + 3)


def test_jit_in_loops_in_jit():
    total = fnx.new_ref(np.zeros(2))

    @fnx.jit
    def deposit(x):
        total[...] += x
        return total[0]

    @fnx.jit
    def outer(x):
        def body(c, i):
            return c + deposit(x * i), c

        c, _ = fnx.lax.scan(body, 0.0, np.arange(4.0))
        return fnx.lax.cond(c > 1e6, lambda: deposit(x), lambda: c)

    x = np.array([1.0, 10.0])
    assert outer(x) == 0 + 1 + 3 + 6
    np.testing.assert_array_equal(total[...], 6 * x)
    assert outer(x) == 6 + 7 + 9 + 12
    np.testing.assert_array_equal(total[...], 12 * x)


def test_derivatives_write_and_take_what_was_there_as_constant():
    ref, seen = fnx.new_ref(3.0), fnx.new_ref(np.float32(0))

    def f(x):
        y = x * ref[...]
        ref[...] = y * y  # 9 x²
        seen[...] = y
        return ref[...] * x  # 9 x³

    runs = {
        "grad": lambda: fnx.grad(f)(2.0),
        "value_and_grad": lambda: fnx.value_and_grad(f)(2.0)[1],
        "jvp": lambda: fnx.jvp(f, (2.0,), (1.0,))[1],
        "vjp": lambda: fnx.vjp(f, 2.0)[1](1.0)[0],
        "linearize": lambda: fnx.linearize(f, 2.0)[1](1.0),
        "jacfwd": lambda: fnx.jacfwd(f)(2.0),
        "jit(grad)": lambda: fnx.jit(fnx.grad(f))(2.0),
        "grad(jit)": lambda: fnx.grad(fnx.jit(f))(2.0),
        "jit(grad(jit))": lambda: fnx.jit(fnx.grad(fnx.jit(f)))(2.0),
    }
    for name, run in runs.items():
        ref[...], seen[...] = 3.0, 0.0
        assert run() == 27 * 4, name
        assert (ref[...], seen[...]) == (36, 6), name

    ref[...] = 3.0
    aux = fnx.grad(lambda x: (f(x), x + 1), has_aux=True)(2.0)
    assert aux == (108, 3) and ref[...] == 36
    # a gradient may read, in a loop too, what another call wrote
    slopes = fnx.jit(lambda xs: fnx.lax.map(fnx.grad(f), xs))
    ref[...] = 1.0
    np.testing.assert_array_equal(slopes(np.float32([1, 2])), [3 * 1, 3 * 4])
    assert ref[...] == 4


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_mapped_refs_have_a_part_for_each_member(axis):
    """Each member writes to its part; another ref is common to all."""
    start, scale = np.arange(6.0).reshape(2, 3), np.array([2.0, -1.0, 0.5])
    rows = np.moveaxis(start, axis, 0)
    factors = scale[: len(rows)]

    def f(refs, x, shared):
        before = refs["a"][0]
        refs["a"][0] = before * x + shared[...]
        refs["a"].at[1].add(x)
        return before, refs["b"].shape

    def run(value, x):
        refs = {"a": fnx.new_ref(value), "b": fnx.new_ref(value)}
        axes = ({"a": axis, "b": None}, 0, None)
        out = fnx.vmap(f, axes, (0, None))(refs, x, fnx.new_ref(10.0))
        return out[0], fnx.freeze(refs["a"]), out[1], refs["b"][...]

    wanted = rows.copy()
    wanted[:, 0] = rows[:, 0] * factors + 10
    wanted[:, 1] = rows[:, 1] + factors
    for function in (run, fnx.jit(run)):
        old, found, shape, same = function(start, factors)
        np.testing.assert_array_equal(old, rows[:, 0])
        np.testing.assert_array_equal(found, np.moveaxis(wanted, 0, axis))
        assert tuple(int(n) for n in shape) == (2, 3)
        np.testing.assert_array_equal(same, start)
    slope = fnx.grad(lambda x: run(start, x)[1].sum())(factors)
    np.testing.assert_allclose(slope, rows[:, 0] + 1)


def test_refs_that_are_mapped_in_maps_and_never_twice():
    ref = fnx.new_ref(np.zeros((2, 3)))

    def f(ref, x):
        ref[...] += x

    fnx.vmap(fnx.vmap(f, (0, None)), (0, 0))(ref, np.array([1.0, 2.0]))
    np.testing.assert_array_equal(ref[...], [[1] * 3, [2] * 3])
    fnx.vmap(lambda r: None)(ref)  # nobody writes
    np.testing.assert_array_equal(ref[...], [[1] * 3, [2] * 3])
    fnx.vmap(lambda r: r.at[...].set(7), axis_size=2)(ref)  # all members alike
    np.testing.assert_array_equal(ref[...], np.full((2, 3), 7))
    with pytest.raises(errors.ArgumentError, match="two names for one place"):
        fnx.vmap(lambda a, b: None)(ref, ref)
    with pytest.raises(errors.ArgumentError, match="two names for one place"):
        fnx.vmap(lambda a: ref[0])(ref)
    with pytest.raises(errors.AxisError, match="it has no axis 2 to map"):
        fnx.vmap(lambda a: None, 2)(ref)
    assert ref[0, 0].item() == 7  # it is lent no longer


def test_vmap_reads_and_writes_what_is_common():
    scale, calls = fnx.new_ref(np.array([1.0, 2.0])), fnx.new_ref(0)

    def f(x, ref):
        calls[...] += 1
        return x * ref[1]

    x = np.arange(3.0)
    for run in (fnx.vmap(f, (0, None)), fnx.jit(fnx.vmap(f, (0, None)))):
        np.testing.assert_array_equal(run(x, scale), 2 * x)
    assert calls[...] == 2


def test_borders_as_in_jax():
    if not hasattr(jax, "new_ref"):
        pytest.skip("this JAX has no refs")

    def run(lib):
        ref = lib.new_ref(np.float32([1, 2, 3]))
        total = lib.new_ref(np.float32(0))

        @lib.jit
        def step(ref, x):
            def body(c, i):
                ref[i] = ref[i] * c
                total[...] += ref[i]
                return c + 1, total[...]

            ys = lib.lax.scan(body, x, np.arange(3))[1]
            total[...] = total[...] / 2
            return ys

        found = [step(ref, np.float32(2)), step(ref, np.float32(-1))]
        return [*found, ref[...], total[...]]

    for found, want in zip(run(fnx), run(jax), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_a_ref_that_a_jit_used_may_go():
    ref = fnx.new_ref(1.0)
    f = fnx.jit(lambda: ref[...] + 1)
    assert f() == 2
    fnx.freeze(ref)
    with pytest.raises(errors.ArgumentError, match="after fnx"):
        f()


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
        (
            lambda: fnx.make_jaxpr(lambda: OUTSIDE.at[...].add(1))(),
            errors.ArgumentError,
            "from outside is written to inside of a transformation that does not pass",
        ),
        (
            lambda: fnx.vmap(lambda x: OUTSIDE.at[...].add(x))(np.ones(3)),
            errors.ArgumentError,
            "with a value of its own for each member: it has room for one",
        ),
        (
            lambda: fnx.jit(lambda: OUTSIDE[...]).lower(),
            errors.ArgumentError,
            "jit of <lambda>: the function uses a Ref from outside",
        ),
        (
            lambda: fnx.jit(lambda r, s: None)(OUTSIDE, OUTSIDE),
            errors.ArgumentError,
            "two names for one place",
        ),
        (
            lambda: fnx.jit(lambda r: r[...] + OUTSIDE[...])(OUTSIDE),
            errors.ArgumentError,
            "two names for one place",
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
