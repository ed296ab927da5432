"""Effects: they happen once, in the order of the program, under every transformation.

An effect here notes a tag and a value in a list, which is compared with what the same
function does as plain Python.
"""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.core.trace import trace
from fnx.core.types import array_type

LOG: list[tuple[str, float]] = []


@pytest.fixture(autouse=True)
def _empty():
    LOG.clear()


def note(tag, x):
    """Notes a value when the program runs."""
    fnx.debug.callback(lambda x: LOG.append((tag, float(x))), x)


def read(tag, x):
    """Notes a value, and gives it back from outside: an effect with a result."""

    def outside(x):
        LOG.append((tag, float(x)))
        return x

    shape = fnx.ShapeDtypeStruct(fnp.shape(x), "float32")
    return fnx.io_callback(outside, shape, x)


def noted(*wanted):
    """Whether exactly this was noted, in this order; forgets it."""
    found, LOG[:] = list(LOG), []
    assert [tag for tag, _ in found] == [tag for tag, _ in wanted]
    values = [value for _, value in found], [value for _, value in wanted]
    np.testing.assert_allclose(*values, rtol=1e-6)


def straight(x):
    note("before", x)
    y = fnp.sin(x) * x
    note("after", y)
    return y


STRAIGHT = ("before", 2.0), ("after", 2 * np.sin(2.0))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        fnx.jit,
        fnx.grad,
        lambda f: fnx.jit(fnx.grad(f)),
        lambda f: fnx.grad(fnx.jit(f)),
        lambda f: lambda x: fnx.jvp(f, (x,), (1.0,)),
        lambda f: fnx.jit(lambda x: fnx.jvp(fnx.jit(f), (x,), (1.0,))),
        lambda f: lambda x: fnx.vjp(f, x)[1](1.0),
        lambda f: lambda x: fnx.linearize(f, x)[1](1.0),
        fnx.jacfwd,
        fnx.jacrev,
        fnx.hessian,
        lambda f: fnx.jit(fnx.grad(fnx.grad(f))),
    ],
)
def test_an_effect_happens_once(transform):
    transform(straight)(2.0)
    noted(*STRAIGHT)


def test_a_result_that_is_not_used_keeps_its_effect():
    def f(x):
        fnx.jit(lambda y: read("call", y) + 1)(x)
        lax.cond(x > 0, lambda y: read("branch", y), lambda y: y, x)
        lax.scan(lambda c, _: (read("round", c), c), x, None, 2)
        lax.while_loop(lambda c: c < 2, lambda c: read("while", c) + 1, x)
        return 0.0

    wanted = (
        ("call", 1.0),
        ("branch", 1.0),
        ("round", 1.0),
        ("round", 1.0),
        ("while", 1.0),
    )
    f(fnp.float32(1))
    noted(*wanted)
    fnx.jit(f)(fnp.float32(1))
    noted(*wanted)


def test_equal_effects_are_not_merged():
    def f(x):
        note("same", x)
        note("same", x)
        return read("twice", x) + read("twice", x)

    fnx.jit(f)(fnp.float32(3))
    noted(("same", 3.0), ("same", 3.0), ("twice", 3.0), ("twice", 3.0))


def test_one_function_in_two_equal_calls_runs_twice():
    inner = fnx.jit(lambda x: read("inner", x))
    fnx.jit(lambda x: inner(x) + inner(x))(fnp.float32(3))
    noted(("inner", 3.0), ("inner", 3.0))


def test_a_call_without_arguments_or_results():
    f = fnx.jit(lambda: fnx.debug.callback(lambda: LOG.append(("none", 0.0))))
    f(), f()
    noted(("none", 0.0), ("none", 0.0))


def test_a_constant_effect_happens_once_under_grad():
    def f(x):
        note("constant", fnp.float32(7))
        return read("fixed", fnp.ones(())) * x

    assert fnx.grad(f)(2.0).item() == 1.0
    noted(("constant", 7.0), ("fixed", 1.0))
    assert fnx.jit(fnx.grad(f))(2.0).item() == 1.0
    noted(("constant", 7.0), ("fixed", 1.0))


# ---------------------------------------------------------------- loops and branches


def looping(x):
    def body(c, r):
        note("in", c)
        return c * r, c

    note("start", x)
    end, rows = lax.scan(body, x, np.array([2.0, 3.0], np.float32))
    note("end", end)
    return end + rows.sum()


LOOPING = ("start", 1.0), ("in", 1.0), ("in", 2.0), ("end", 6.0)


@pytest.mark.parametrize(
    "transform",
    [lambda f: f, fnx.jit, fnx.grad, lambda f: fnx.jit(fnx.grad(f)), fnx.hessian],
)
def test_effects_in_every_round(transform):
    transform(looping)(1.0)
    noted(*LOOPING)


def test_effects_of_what_does_not_change_stay_in_the_loop():
    def f(x):
        def body(c, _):
            note("fixed", x * 2)
            return c + x, None

        return lax.scan(body, 0.0, None, 3)[0]

    for transform in (fnx.jit, lambda f: fnx.jit(fnx.grad(f))):
        transform(f)(1.5)
        noted(*[("fixed", 3.0)] * 3)


def test_effects_without_a_round():
    fnx.jit(lambda x: lax.scan(lambda c, _: (read("no", c), None), x, None, 0)[0])(1.0)
    noted()


def test_effects_of_a_test():
    def f(x):
        def test(v):
            note("test", v)
            return v < 3

        return lax.while_loop(test, lambda v: v + x, x)

    for transform in (fnx.jit, fnx.grad):
        transform(f)(2.0)
        noted(("test", 2.0), ("test", 4.0))


def test_effects_of_rounds_in_reverse():
    def f(x):
        def body(c, r):
            note("row", r)
            return c * r, None

        rows = np.array([2.0, 3.0], np.float32)
        return lax.scan(body, x, rows, reverse=True)[0]

    fnx.jit(fnx.grad(f))(1.0)
    noted(("row", 3.0), ("row", 2.0))


def choosing(x):
    def negative(y):
        note("negative", y)
        return -y

    def positive(y):
        note("positive", y)
        return y * y

    return lax.cond(x > 0, positive, negative, x)


@pytest.mark.parametrize("transform", [lambda f: f, fnx.jit, fnx.grad])
def test_only_the_effects_of_the_branch_that_runs(transform):
    transform(choosing)(-2.0)
    noted(("negative", -2.0))
    transform(choosing)(3.0)
    noted(("positive", 3.0))


# ---------------------------------------------------------------- vmap

STACK = np.array([1.0, -2.0, 3.0], np.float32)


def total(f):
    return lambda stack: fnx.vmap(f)(stack).sum()


@pytest.mark.parametrize(
    "transform",
    [
        fnx.vmap,
        lambda f: fnx.jit(fnx.vmap(f)),
        lambda f: fnx.vmap(fnx.jit(f)),
        lambda f: fnx.vmap(fnx.grad(f)),
        lambda f: fnx.grad(total(f)),
    ],
)
def test_members_in_their_order(transform):
    transform(straight)(STACK)
    before = [("before", x) for x in STACK]
    noted(*before, *[("after", x * np.sin(x)) for x in STACK])


def test_members_of_members():
    fnx.jit(fnx.vmap(fnx.vmap(lambda x: read("x", x))))(STACK.reshape(1, 3))
    noted(*[("x", x) for x in STACK])
    found = fnx.vmap(fnx.vmap(lambda x, y: read("xy", x + y), (None, 0)), (0, None))
    wanted = STACK[:, None] + STACK
    np.testing.assert_array_equal(found(STACK, STACK), wanted)
    noted(*[("xy", x) for x in wanted.ravel()])


def test_an_effect_that_is_not_mapped_happens_once():
    def f(x):
        note("once", 5 * fnp.ones(()))
        return x

    fnx.vmap(f)(STACK)
    noted(("once", 5.0))


def test_no_members():
    found = fnx.vmap(lambda x: read("x", x))(np.zeros(0, np.float32))
    assert found.shape == (0,)
    noted()


def test_members_in_different_branches():
    found = fnx.vmap(choosing)(STACK)
    np.testing.assert_array_equal(found, [1, 2, 9])
    noted(("positive", 1.0), ("negative", -2.0), ("positive", 3.0))
    found = fnx.jit(fnx.grad(total(choosing)))(STACK)
    np.testing.assert_array_equal(found, [2, -1, 6])
    noted(("positive", 1.0), ("negative", -2.0), ("positive", 3.0))


def test_members_with_different_numbers_of_rounds():
    def f(x):
        def body(v):
            note("v", v)
            return v * 2

        return lax.while_loop(lambda v: v < 3, body, x)

    starts = np.array([1.0, 5.0, 2.0], np.float32)
    wanted = ("v", 1.0), ("v", 2.0), ("v", 2.0)
    np.testing.assert_array_equal(fnx.vmap(f)(starts), [4, 5, 4])
    noted(*wanted)
    np.testing.assert_array_equal(fnx.jit(fnx.grad(total(f)))(starts), [4, 1, 2])
    noted(*wanted)


def test_members_with_one_number_of_rounds():
    def f(x):
        def body(n, v):
            note("v", v)
            return v + 1

        return lax.fori_loop(0, 2, body, x)

    fnx.jit(fnx.vmap(f))(STACK)
    noted(*[("v", x) for x in STACK], *[("v", x + 1) for x in STACK])


# ---------------------------------------------------------------- order in kernels


def random_function(seed):
    """A function of many small operations, with effects among them."""
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, 7, 40), rng.integers(0, 2**31, (40, 2))

    def f(x):
        pool = [x, x + 1]
        for number, (kind, (a, b)) in enumerate(zip(*choices, strict=True)):
            one, two = pool[a % len(pool)], pool[b % len(pool)]
            if kind == 0:
                pool.append(fnp.sin(one) + read(f"{number}", two.sum()))
            elif kind == 1:
                note(f"{number}", one[0] + two[1])
            elif kind == 2:
                pool.append(fnp.exp(-one * one) * two)
            elif kind == 3:
                pool.append(one - one.sum())
            elif kind == 4:
                pool.append(fnp.tanh(one + two))
            elif kind == 5:
                pool.append(one / (1 + two * two))
            else:
                pool.append(fnp.cumsum(one)[::-1])
        return pool[-6:]

    return f


@pytest.mark.parametrize("seed", range(25))
def test_kernels_leave_the_order_of_effects(seed):
    f = random_function(seed)
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    wanted = f(fnp.array(x))
    order = list(LOG)
    LOG.clear()
    found = fnx.jit(f)(x)
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-4, atol=2e-4)
    assert [tag for tag, _ in LOG] == [tag for tag, _ in order]
    values = [value for _, value in LOG], [value for _, value in order]
    np.testing.assert_allclose(*values, rtol=2e-4, atol=2e-4)


def test_outputs_of_one_kernel_on_both_sides_of_an_effect():
    """What an effect reads and what is made of its result could share a kernel."""

    def f(x):
        costly = fnp.exp(fnp.sin(x)) ** 1.5
        first = read("first", (costly * 2)[0])
        second = read("second", x[1])
        return costly * 2, costly + second, first

    x = np.array([0.5, 2.0], np.float32)
    found = fnx.jit(f)(x)
    costly = np.exp(np.sin(x)) ** 1.5
    np.testing.assert_allclose(found[0], costly * 2, rtol=1e-5)
    np.testing.assert_allclose(found[1], costly + 2, rtol=1e-5)
    noted(("first", 2 * costly[0]), ("second", 2.0))


# ---------------------------------------------------------------- values on demand


def test_python_may_ask_for_a_value_behind_an_effect_without_results():
    inner = fnx.jit(straight)

    def f(x):
        y = inner(x)
        return y if y > 0 else -y

    fnx.grad(f)(2.0)
    noted(*STRAIGHT)


def test_python_cannot_ask_for_what_an_effect_gives():
    def f(x):
        y = read("y", lax.stop_gradient(x))
        return x if y > 0 else -x

    with pytest.raises(errors.TracerValueError, match="a result of io_callback"):
        fnx.grad(f)(2.0)
    noted()


# ---------------------------------------------------------------- the property itself


def test_equations_know_their_effects():
    def held(function):
        return trace(lambda x: [function(x)], [array_type((), "float32")]).program

    inner = fnx.jit(lambda x: (note("x", x), x)[1])
    quiet = fnx.jit(lambda x: x + 1)
    assert held(inner).effect
    assert not held(quiet).effect
    assert held(lambda x: lax.cond(x > 0, inner, quiet, x)).effect
    assert not held(lambda x: lax.cond(x > 0, quiet, quiet, x)).effect
    assert held(lambda x: lax.fori_loop(0, 3, lambda i, v: inner(v), x)).effect
    assert not held(lambda x: fnx.pure_callback(lambda x: x, fnx.typeof(x), x)).effect


def test_the_effects_of_a_backward_rule_happen_when_it_runs():
    @fnx.custom_vjp
    def f(x):
        note("plain", x)
        return x * x

    def forward(x):
        note("forward", x)
        return x * x, x

    def backward(x, ct):
        note("backward", ct)
        return (2 * x * ct,)

    f.defvjp(forward, backward)
    fnx.jit(f)(3.0)
    noted(("plain", 3.0))
    assert fnx.jit(fnx.grad(lambda x: 5 * f(x)))(3.0).item() == 30.0
    noted(("forward", 3.0), ("backward", 5.0))
    fnx.jit(lambda x: fnx.linearize(lambda x: (x, f(x)), x)[0])(3.0)
    noted(("forward", 3.0))


def test_recomputation_does_not_repeat_effects():
    transforms = [
        lambda f: fnx.grad(fnx.checkpoint(f)),
        lambda f: fnx.jit(fnx.grad(fnx.checkpoint(fnx.jit(f)))),
        lambda f: fnx.jit(fnx.hessian(fnx.checkpoint(f))),
    ]
    for transform in transforms:
        transform(straight)(2.0)
        noted(*STRAIGHT)
    fnx.jit(fnx.grad(fnx.checkpoint(choosing)))(2.0)
    noted(("positive", 2.0))


def test_checkpoints_do_not_repeat_effects():
    def f(x):
        def body(c, _):
            note("c", c)
            return fnp.sin(c) * x, None

        return lax.scan(body, x, None, 5, checkpoint=2)[0]

    c, wanted = np.float32(0.5), []
    for _ in range(5):
        wanted.append(("c", c))
        c = np.sin(c) * np.float32(0.5)
    fnx.jit(fnx.grad(f))(0.5)
    noted(*wanted)


def test_the_hunt_for_nans_does_not_repeat_effects():
    def noting(x):
        note("x", x)
        return fnp.log(x)

    def reading(x):
        return fnp.log(read("y", x))

    with fnx.debug_nans(True):
        with pytest.raises(errors.NonFiniteError, match="log"):
            fnx.jit(noting)(-1.0)
        noted(("x", -1.0))
        with pytest.raises(errors.NonFiniteError, match="has effects"):
            fnx.jit(reading)(np.float32(-1))
        noted(("y", -1.0))
