"""Checkpointed functions: the values of the plain ones, and what is kept for them.

Each function takes `wrap`, which is a checkpoint or leaves its argument alone; the
latter, written without it, is the oracle under every transformation.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import checkpoint_policies as policies
from fnx import errors, lax
from fnx.ad_checkpoint import checkpoint_name
from tests.control.checkpoints import (
    NAMED,
    POLICIES,
    W,
    bare,
    close,
    layer,
    rounds,
)
from tests.control.flows import ROWS, STACK, TRANSFORMS, X

# ---------------------------------------------------------------- functions


def chain(wrap, x):
    for _ in range(3):
        x = wrap(layer)(x)
    return x


def captured(wrap, x):
    return wrap(lambda y: fnp.exp(-y * x) + fnp.sin(x) * y)(fnp.cos(x))


def nested(wrap, x):
    inner = wrap(lambda y: fnp.sin(y) * fnp.exp(y))
    return wrap(lambda y: inner(fnp.cos(y)) * inner(y))(x)


def trees(wrap, x):
    @functools.partial(wrap, static_argnums=(1,), static_argnames="power")
    def f(state, kind, *, power):
        assert kind == "even"
        count = (state["a"] > 0).sum()
        return {"a": fnp.sin(state["a"]) ** power, "n": count}, state["b"]

    state, b = f({"a": x, "b": 2 * x}, "even", power=2)
    return state["a"] * state["n"] + b


def with_jit(wrap, x):
    inner = fnx.jit(lambda y: fnp.sin(y) @ W * y)
    return fnx.jit(wrap(lambda y: inner(fnp.cos(y)) * fnp.cos(inner(y))))(x)


@fnx.custom_jvp
def by_rule(x):
    return fnp.sin(x)


@by_rule.defjvp
def _by_rule_jvp(primals, tangents):
    return by_rule(*primals), fnp.cos(primals[0]) * tangents[0]


@fnx.custom_vjp
def backwards(x):
    return fnp.exp(x) * x


backwards.defvjp(
    lambda x: (backwards(x), (x, fnp.exp(x))),
    lambda kept, ct: ((kept[0] + 1) * kept[1] * ct,),
)


def with_rules(wrap, x):
    return wrap(lambda y: by_rule(backwards(fnp.cos(y))) * by_rule(y))(x)


def in_scan(wrap, x):
    def body(carry, row):
        return fnp.sin(carry) * x + row, (carry * row).sum()

    last, rows = lax.scan(wrap(body), x, ROWS)
    return last + rows.sum()


def around_branch(wrap, x):
    def f(y):
        hidden = fnp.tanh(y)

        def one(y):
            z = checkpoint_name(fnp.sin(y) @ W, "hidden")
            return fnp.exp(-z), hidden * z

        def other(y):
            z = fnp.cos(y) @ W.T
            return fnp.sin(fnp.cos(z) @ W), y

        a, b = lax.cond(y[0] > 0.1, one, other, y)
        return lax.cond(y[0] < 0, lambda: a, lambda: a * b)

    return wrap(f)(x).sum() + wrap(f)(-x).sum()


def around_recorded(wrap, x):
    def f(y):
        def body(state):
            n, y, z = state
            h = checkpoint_name(fnp.sin(y) @ W, "hidden")
            return n + 1, fnp.tanh(h) * x, z + fnp.cos(h @ W)

        goes_on = lambda s: s[0] < 3 + (x[0] > 0)  # noqa: E731
        n, y, z = lax.while_loop(goes_on, body, (0, y, y), max_steps=4)
        return fnp.sin(y) * n + z

    return wrap(f)(x).sum()


def around_everything(wrap, x):
    """A loop in a branch in a loop, with a product in each."""

    def f(y):
        def inner(state):
            n, y = state
            return n + 1, fnp.sin(fnx.jit(lambda y: y @ W)(y))

        def outer(c, r):
            d = fnp.cos(checkpoint_name(c @ W.T, "hidden"))

            def up(d):
                test = lambda s: s[0] < 2  # noqa: E731
                return lax.while_loop(test, inner, (0, d), max_steps=2)[1]

            return lax.cond(r[0] > 0, up, lambda d: fnp.exp(d) @ W, d), d * r

        return lax.scan(outer, y, ROWS)

    last, rows = wrap(f)(x)
    return (last * x).sum() + (rows**2).sum()


def around_scan(wrap, x):
    def f(y):
        return lax.scan(lambda c, r: (fnp.sin(c) * y + r, c * r), y, ROWS)

    last, rows = wrap(f)(fnp.cos(x))
    return last * rows.sum(0)


def in_while(wrap, x):
    body = wrap(lambda s: (s[0] * 1.5 + fnp.sin(s[0]) * x, s[1] + 1))
    return lax.while_loop(lambda s: s[1] < 4, body, (x, 0))[0]


def around_while(wrap, x):
    def f(y):
        return lax.while_loop(
            lambda s: abs(s).sum() < 9, lambda s: s * 1.6 + fnp.cos(s) * y, y
        )

    return wrap(f)(fnp.sin(x)) * x


def in_cond(wrap, x):
    f = wrap(lambda y: fnp.sin(fnp.exp(y)) * y)
    return lax.cond(x.sum() > 3.0, f, lambda y: y * 2.0, x)


def around_cond(wrap, x):
    def f(y):
        return lax.cond(y.sum() > 1.5, lambda v: fnp.sin(v) * y, lambda v: v @ W, y)

    return wrap(f)(fnp.cos(x))


FUNCTIONS = [
    chain,
    captured,
    nested,
    trees,
    with_jit,
    with_rules,
    in_scan,
    around_scan,
    around_everything,
    in_while,
    around_while,
    in_cond,
    around_cond,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_checkpoint_changes_no_value(function, name):
    transform, maps = TRANSFORMS[name]
    found = transform(functools.partial(function, fnx.checkpoint))
    wanted = transform(functools.partial(function, bare))
    if not maps:
        close(found(X), wanted(X))
        return
    rows = np.stack([wanted(x) for x in STACK])
    close(fnx.vmap(found)(STACK), rows)
    close(fnx.jit(fnx.vmap(found))(STACK), rows)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["jit of grad", "hessian", "vmap of grad of grad"])
def test_a_policy_changes_no_value(policy, name):
    transform, maps = TRANSFORMS[name]
    wrap = functools.partial(fnx.checkpoint, policy=POLICIES[policy])
    around_flow = around_branch, around_recorded, around_everything
    for function in (chain, nested, with_jit, around_scan, *around_flow):
        found = transform(functools.partial(function, wrap))
        wanted = transform(functools.partial(function, bare))
        if maps:
            close(fnx.vmap(found)(STACK), np.stack([wanted(x) for x in STACK]))
        else:
            close(found(X), wanted(X))


def test_a_linear_function_is_transposed():
    f = fnx.checkpoint(lambda x: (x @ W) * 2.0)
    (found,) = fnx.linear_transpose(f, X)(X)
    close(found, 2.0 * W @ X)


def test_python_may_look_at_values_where_it_may_without():
    @fnx.checkpoint
    def f(x):
        return x * x if x > 1 else x

    assert fnx.grad(f)(3.0).item() == 6.0
    with pytest.raises(errors.TracerValueError, match="x, unknown while tracing"):
        fnx.jit(f)(3.0)


# ---------------------------------------------------------------- mistakes

BAD = {
    "checkpoint takes a function": lambda: fnx.checkpoint(3),
    "policy is 'dots'": lambda: fnx.checkpoint(abs, policy="dots"),
    "a policy is a function policy(": lambda: fnx.checkpoint(abs, policy=3),
    "prevent_cse must be": lambda: fnx.checkpoint(abs, prevent_cse=1),
    "static_argnums=2 is out of range": lambda: fnx.checkpoint(
        lambda x: x, static_argnums=2
    ),
    "has no argument of that name": lambda: fnx.checkpoint(
        lambda x: x, static_argnames="y"
    ),
    "kind is 'even'": lambda: fnx.grad(
        fnx.checkpoint(lambda x, kind: x * 2), argnums=0
    )(1.0, "even"),
    "checkpoint_name: name must be a string": lambda: checkpoint_name(X, 3),
    "names are strings, got 3": lambda: policies.save_only_these_names("a", 3),
    "policy_2 is None": lambda: policies.save_from_both_policies(NAMED, None),
    "'a' is in names_which_can_be_saved": lambda: (
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a", "b"],
            names_which_can_be_offloaded=["a"],
            offload_src="device",
            offload_dst="pinned_host",
        )
    ),
    "scan: checkpoint must be a positive integer": lambda: rounds(X, 4, checkpoint=0),
    "got 'root'": lambda: rounds(X, 4, checkpoint="root"),
    "got 2.0": lambda: rounds(X, 4, checkpoint=2.0),
    "got True": lambda: rounds(X, 4, checkpoint=True),
    "fori_loop: checkpoint must be": lambda: lax.fori_loop(
        0, 3, lambda i, v: v, X, checkpoint=-1
    ),
    "checkpoint='sqrt': nobody knows how many": lambda: fnx.jit(
        lambda n: lax.fori_loop(0, n, lambda i, v: v, X, checkpoint="sqrt")
    )(3),
}


@pytest.mark.parametrize("text", BAD)
def test_mistakes_are_explained(text):
    with pytest.raises(errors.FnxError) as caught:
        BAD[text]()
    assert text in str(caught.value)


def test_a_policy_that_cannot_be_hashed():
    class Policy:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, *args, **params):
            return True

    with pytest.raises(errors.OptionError, match="cannot be hashed"):
        fnx.checkpoint(abs, policy=Policy())


def test_a_checkpoint_around_a_loop_that_begins_with_a_number():
    def f(x):
        return fnx.lax.fori_loop(0, 4, lambda i, v: v / (x - i), 1.0)

    found = fnx.jit(fnx.grad(fnx.checkpoint(f)))(0.5)
    np.testing.assert_allclose(found, fnx.grad(f)(0.5), rtol=1e-5)
