"""while_loop and fori_loop with checkpoints: the same values, and less memory."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.testing import check_grads


def halvings(x, w, **options):
    """Rounds until the norm is small: more for a larger x; none for a small one."""

    def test(state):
        return (state["x"] ** 2).sum() > 0.01

    def body(state):
        x = fnp.sin(state["x"] * 0.85) @ w + 0.001
        return {"x": x, "n": state["n"] + 1}

    return lax.while_loop(test, body, {"x": x, "n": 0}, **options)


W_SMALL = np.array([[0.9, 0.1, 0.0], [-0.2, 0.8, 0.1], [0.05, 0.0, 0.95]])
CHECKPOINTS = [
    {"checkpoint": 1},
    {"checkpoint": 3},
    {"checkpoint": 100},
    {"max_steps": 40, "checkpoint": 4},
    {"max_steps": 40, "checkpoint": "sqrt"},
]
MANY = np.array([[0.5, 2.0, -3.0], [0.0, 0.01, 0.0], [1.5, 0.1, 9.0]])


@pytest.mark.parametrize("options", CHECKPOINTS, ids=str)
def test_a_while_loop_with_checkpoints_is_one_without(options):
    def f(x, w, **options):
        state = halvings(x, w, **options)
        return (state["x"] ** 2 * np.array([1.0, 2.0, 3.0])).sum() * 100

    def g(x, w):
        return f(x, w, **options)

    x = MANY[0]
    rounds = int(halvings(x, W_SMALL)["n"])
    assert rounds > 6 and int(halvings(x, W_SMALL, **options)["n"]) == rounds
    both = (0, 1)
    transforms = {
        "value": lambda f: f,
        "grad": lambda f: fnx.grad(f, both),
        "jvp": lambda f: lambda x, w: fnx.jvp(f, (x, w), (x + 1, w)),
        "hessian": lambda f: fnx.hessian(f),
        "reverse over reverse": lambda f: fnx.jacrev(fnx.grad(f)),
        "grad of a vmap": lambda f: (
            lambda x, w: fnx.grad(lambda w: fnx.vmap(f, (0, None))(MANY, w).sum())(w)
        ),
    }
    for name, transform in transforms.items():
        found = fnx.jit(transform(g))(x, W_SMALL)
        wanted = fnx.jit(transform(f))(x, W_SMALL)
        for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=name)
    check_grads(g, (x, W_SMALL), order=1)
    many = fnx.jit(fnx.vmap(fnx.grad(g), (0, None)))(MANY, W_SMALL)
    alone = [fnx.grad(f)(x, W_SMALL) for x in MANY]
    np.testing.assert_allclose(many, alone, rtol=1e-9, atol=1e-12)


def test_a_fori_loop_with_checkpoints_and_a_traced_bound():
    def f(x, n, **options):
        return lax.fori_loop(
            0, n, lambda i, y: fnp.sin(y) * 1.1 + 0.1 * i, x, **options
        )

    for n in (0, 1, 7):
        wanted = fnx.grad(f)(0.5, n)
        for options in CHECKPOINTS:
            found = fnx.jit(fnx.grad(lambda x, n, o=options: f(x, n, **o)))(0.5, n)
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
            second = fnx.jit(fnx.grad(fnx.grad(lambda x, n, o=options: f(x, n, **o))))(
                0.5, n
            )
            np.testing.assert_allclose(second, fnx.grad(fnx.grad(f))(0.5, n), rtol=1e-4)


def test_what_checkpoints_of_a_while_loop_keep():
    def f(x, **options):
        def body(state):
            n, x = state
            return n + 1, fnp.sin(x) * fnp.exp(-x)

        options = {"max_steps": 10_000, **options}
        return lax.while_loop(lambda s: s[0] < 10_000, body, (0, x), **options)[1].sum()

    def arena(**options):
        gradient = fnx.jit(fnx.grad(lambda x: f(x, **options)))
        plan = gradient.lower(np.ones(1000, np.float32)).as_text("plan")
        return int(plan.split("arena ")[1].split()[0])

    row, kept = 4000, arena()
    assert kept > 2 * 10_000 * row
    assert arena(checkpoint="sqrt") < 6 * 100 * row
    assert arena(checkpoint=10) < 1_100 * row


def test_more_rounds_than_expected_between_checkpoints():
    with pytest.raises(errors.StepLimitError, match=r"more than 8 rounds.*max_steps=8"):
        fnx.grad(lambda x: halvings(x, W_SMALL, max_steps=7, checkpoint=4)["x"].sum())(
            MANY[0]
        )
    with pytest.raises(errors.ArgumentError, match="nobody knows how many rounds"):
        halvings(MANY[0], W_SMALL, checkpoint="sqrt")
    with pytest.raises(errors.ArgumentError, match="checkpoint must be a positive"):
        halvings(MANY[0], W_SMALL, checkpoint=0)


def test_a_checkpointed_loop_writes_to_refs():
    def f(x, **options):
        ref = fnx.new_ref(x)

        def body(n):
            ref[...] = fnp.sin(ref[...]) + 0.1
            return n + 1

        lax.while_loop(lambda n: n < 5, body, 0, **options)
        return fnx.freeze(ref)

    for run in (fnx.grad, lambda f: fnx.jit(fnx.grad(f))):
        found = run(lambda x: f(x, checkpoint=2))(0.3)
        np.testing.assert_allclose(found, fnx.grad(f)(0.3), rtol=1e-6)
