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
from fnx.ad_checkpoint import checkpoint_name, print_saved_residuals
from fnx.core.digest import program_digest
from tests.control.flows import ROWS, STACK, TRANSFORMS, X

W = np.array([[0.5, -1.0, 0.3], [0.2, 0.7, -0.4], [-0.6, 0.1, 0.9]])


def bare(f, **options):
    return f


# ---------------------------------------------------------------- functions


def layer(y):
    hidden = checkpoint_name(fnp.tanh(y @ W), "hidden")
    return fnp.sin(hidden) * y


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
NAMED = policies.save_only_these_names("hidden")
POLICIES = {
    "none": None,
    "nothing": policies.nothing_saveable,
    "everything": policies.everything_saveable,
    "dots": policies.dots_saveable,
    "named": NAMED,
    "all but named": policies.save_anything_except_these_names("hidden"),
}


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


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


# ---------------------------------------------------------------- what is kept


def kept(f, *args):
    """The types of what the linear map of a function reads, as texts, sorted."""
    _, linear = fnx.vjp(f, *args)
    return sorted([str(x.type) for x in fnx.tree.leaves(linear)])


def one(policy):
    def f(x, w):
        hidden = checkpoint_name(fnp.sin(x) @ w, "hidden")
        return fnp.exp(fnp.tanh(hidden).sum(0, keepdims=True))

    return fnx.checkpoint(f, policy=policy)


ARGUMENTS = ["f64[2,3]", "f64[3,5]"]


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (None, []),
        (policies.nothing_saveable, []),
        (policies.dots_saveable, ["f64[2,5]"]),
        (policies.checkpoint_dots, ["f64[2,5]"]),
        (policies.dots_with_no_batch_dims_saveable, ["f64[2,5]"]),
        (policies.checkpoint_dots_with_no_batch_dims, ["f64[2,5]"]),
        (policies.offload_dot_with_no_batch_dims("device", "host"), ["f64[2,5]"]),
        (NAMED, ["f64[2,5]"]),
        (policies.save_only_these_names("other"), []),
        (policies.save_any_names_but_these("other"), ["f64[2,5]"]),
        (policies.save_any_names_but_these("hidden", "other"), []),
        (
            policies.save_from_both_policies(policies.nothing_saveable, NAMED),
            ["f64[2,5]"],
        ),
        (
            policies.save_and_offload_only_these_names(
                names_which_can_be_saved=["other"],
                names_which_can_be_offloaded=["hidden"],
                offload_src="device",
                offload_dst="pinned_host",
            ),
            ["f64[2,5]"],
        ),
        (lambda primitive, *types, **params: primitive.name == "exp", ["f64[1,5]"]),
    ],
)
def test_a_policy_says_what_is_kept(policy, wanted):
    x, w = np.ones((2, 3)), np.ones((3, 5))
    assert kept(one(policy), x, w) == sorted([*ARGUMENTS, *wanted])


def test_everything_may_be_kept():
    x, w = np.ones((2, 3)), np.ones((3, 5))
    assert kept(one(policies.everything_saveable), x, w) == kept(
        lambda x, w: fnp.exp(fnp.tanh(fnp.sin(x) @ w).sum(0, keepdims=True)), x, w
    )


def test_products_with_batch_axes_are_told_apart():
    def f(x, y):
        return fnp.sin(fnp.einsum("bij,bjk->bik", fnp.sin(x), y))

    x, y = np.ones((4, 2, 3)), np.ones((4, 3, 5))
    given = ["f64[4,2,3]", "f64[4,3,5]"]
    wrap = functools.partial(fnx.checkpoint, f)
    assert kept(wrap(policy=policies.dots_saveable), x, y) == sorted(
        [*given, "f64[4,2,5]"]
    )
    assert kept(wrap(policy=policies.dots_with_no_batch_dims_saveable), x, y) == given


def test_convolutions_are_products_without_batch_axes_they_are_not():
    def f(x, kernel):
        return fnp.sin(lax.conv(fnp.sin(x), kernel, (1, 1), "VALID"))

    x, kernel = np.ones((2, 3, 8, 8)), np.ones((5, 3, 2, 2))
    given = ["f64[2,3,8,8]", "f64[5,3,2,2]"]
    wrap = functools.partial(fnx.checkpoint, f)
    made = "f64[2,5,7,7]"
    assert kept(wrap(policy=policies.dots_saveable), x, kernel) == [
        *given[:1],
        made,
        given[1],
    ]
    assert (
        kept(wrap(policy=policies.dots_with_no_batch_dims_saveable), x, kernel) == given
    )


def test_a_value_that_is_not_to_be_kept_is_not_kept_without_its_name():
    def f(x):
        return fnp.sin(fnp.sin(checkpoint_name(fnp.exp(x), "a")))

    def count(policy):
        return len(kept(fnx.checkpoint(f, policy=policy), X))

    assert count(policies.everything_saveable) == 3  # exp(x), and two cosines
    # the cosines, and x, from which exp(x) is computed again
    assert (
        kept(
            fnx.checkpoint(f, policy=policies.save_anything_except_these_names("a")), X
        )
        == ["f64[3]"] * 3
    )
    spied = []

    def spy(primitive, *types, **params):
        spied.append((primitive.name, *map(str, types), params.get("name")))
        return False

    assert count(spy) == 1
    assert ("exp", "f64[3]", None) in spied
    assert ("checkpoint_name", "f64[3]", "a") in spied


def test_functions_under_jit_are_seen_by_policies():
    f = fnx.checkpoint(
        fnx.jit(lambda x: fnp.sin(fnx.jit(lambda y: fnp.sin(y) @ W)(x))),
        policy=policies.dots_saveable,
    )
    x = np.ones((5, 3))
    assert kept(f, x).count("f64[5,3]") == 2


def scanned(policy):
    """A scan with a product in each round, under jit; rows of weights; two results."""

    def f(x, ws):
        def body(carry, w):
            hidden = fnx.jit(lambda y: fnp.tanh(y @ w))(carry["y"])
            state = {"y": fnp.sin(hidden), "n": carry["n"] + 1}
            return state, (hidden.sum(), carry["n"])

        last, (sums, numbers) = lax.scan(body, {"y": x, "n": 0}, ws, reverse=True)
        return (last["y"] * 2).sum() + (sums**2 * numbers).sum()

    return fnx.checkpoint(f, policy=policy) if policy else f


WS = np.stack([W, W.T, W @ W, -W])


def test_a_policy_keeps_rows_of_a_scan():
    x = np.ones((2, 3))
    given, rows = ["f64[2,3]", "f64[4,3,3]"], "f64[4,2,3]"
    assert kept(scanned(policies.nothing_saveable), x, WS) == given
    assert kept(scanned(policies.dots_saveable), x, WS) == sorted([*given, rows])

    def products(policy):
        both = fnx.value_and_grad(scanned(policy))
        return str(fnx.make_jaxpr(both)(x, WS)).count("dot_general")

    # one in a round forward, one backward, and one again where none is kept
    assert products(policies.dots_saveable) == 2
    assert products(policies.nothing_saveable) == 3


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_that_are_kept_change_no_value(policy):
    x = np.arange(6.0).reshape(2, 3) * 0.3 - 0.7
    f, plain_f = scanned(POLICIES[policy]), scanned(None)

    def slope(f):
        return fnx.grad(lambda x, ws: (fnx.grad(f, 1)(x, ws) ** 2).sum(), (0, 1))

    for found, wanted in zip(
        fnx.jit(slope(f))(x, WS), slope(plain_f)(x, WS), strict=True
    ):
        close(found, wanted)
    stack = np.stack([x, -x])
    found = fnx.vmap(fnx.grad(f), (0, None))(stack, WS)
    close(found, np.stack([fnx.grad(plain_f)(x, WS) for x in stack]))


def test_rows_that_a_call_reads_are_not_stacked_once_more():
    x = np.ones((2, 3))
    assert kept(scanned(None), x, WS).count("f64[4,3,3]") == 1


def test_what_is_kept_is_printed(capsys):
    outside = fnp.array(X)

    def f(params, *, scale):
        hidden = fnx.jit(lambda w: checkpoint_name(w @ W, "a"))(params["w"])
        return fnp.sin(hidden * scale) * outside

    x = fnx.ShapeDtypeStruct((3,), "float64")
    f_named = fnx.checkpoint(f, policy=policies.save_only_these_names("a"))
    print_saved_residuals(f_named, {"w": x}, scale=X)
    lines = capsys.readouterr().out.splitlines()
    places = [line.partition(" at ")[0] for line in lines]
    assert sorted(places) == [
        "f64[3,3] an array from outside",
        "f64[3] an array from outside",
        "f64[3] the argument scale",
        "f64[3] the result of checkpoint_name",
    ]
    (named,) = [line for line in lines if "checkpoint_name" in line]
    assert "test_remat.py:" in named


def test_equal_policies_make_equal_programs():
    def program(policy):
        return fnx.make_jaxpr(fnx.checkpoint(layer, policy=policy))(X)

    names = policies.save_only_these_names
    assert program(names("a", "b")) == program(names("b", "a"))
    assert program_digest(program(names("a", "b"))) is not None  # so it is kept on disk
    assert program(names("a")) != program(names("b"))


# ---------------------------------------------------------------- memory


def arena(f, *args):
    """The bytes that a compiled function takes besides its arguments and results."""
    compiled = fnx.jit(f).lower(*args).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def deep(wrap, x, depth=20):
    """A chain of layers, each with several costly values."""

    def block(y):
        for _ in range(4):
            y = fnp.tanh(y @ W) + fnp.sin(y)
        return y

    for _ in range(depth):
        x = wrap(block)(x)
    return (x * x).sum()


BIG = np.linspace(-1, 1, 3000).reshape(1000, 3)


def test_a_policy_keeps_values_of_branches():
    def f(x, w, n):
        def one(x):
            return fnp.sin(fnp.exp(x) @ w)

        def two(x):
            return fnp.sin(fnp.sin(fnp.cos(x) @ w) @ w)

        return lax.switch(n, [one, two, lambda x: x * 2], x).sum()

    x, w, n = np.ones((2, 3)), np.ones((3, 3)), np.int32(1)

    def residuals(policy):
        return kept(lambda x, w: fnx.checkpoint(f, policy=policy)(x, w, n), x, w)

    # the branches share places: there are as many as the second one needs
    given = residuals(policies.nothing_saveable)
    dots = residuals(policies.dots_saveable)
    assert sorted(dots) == sorted([*given, "f64[2,3]", "f64[2,3]"])

    def products(policy):
        both = fnx.value_and_grad(fnx.checkpoint(f, policy=policy))
        return str(fnx.make_jaxpr(both)(x, w, n)).count("dot_general")

    # three forward, six backward, and the three again
    assert products(policies.nothing_saveable) > products(policies.dots_saveable)


def test_a_policy_keeps_rows_of_a_while_loop():
    def f(x, w, n):
        def body(state):
            i, y = state
            return i + 1, fnp.sin(fnp.tanh(y) @ w)

        return lax.while_loop(lambda s: s[0] < n, body, (0, x), max_steps=10)[1].sum()

    x, w, n = np.ones((2, 3)), np.ones((3, 3)), np.int32(4)

    def residuals(policy):
        return kept(lambda x, w: fnx.checkpoint(f, policy=policy)(x, w, n), x, w)

    given = residuals(policies.nothing_saveable)
    dots = residuals(policies.dots_saveable)
    # the number of rounds takes the place of their test's operand
    assert sorted(dots) == sorted([*given, "f64[10,2,3]"])

    def products(policy):
        both = fnx.value_and_grad(fnx.checkpoint(f, policy=policy))
        return str(fnx.make_jaxpr(both)(x, w, n)).count("dot_general")

    assert products(policies.nothing_saveable) == products(policies.dots_saveable) + 1
    for policy in (policies.nothing_saveable, policies.dots_saveable):
        g = fnx.checkpoint(f, policy=policy)
        for count in (0, 4, 10):
            found = fnx.jit(fnx.grad(g))(x, w, count)
            np.testing.assert_allclose(found, fnx.grad(f)(x, w, count), rtol=1e-12)
        with pytest.raises(errors.StepLimitError, match="more than 10 rounds"):
            fnx.jit(fnx.grad(g))(x, w, 11)


def test_the_compiler_does_not_undo_a_checkpoint():
    full = arena(fnx.grad(functools.partial(deep, bare)), BIG)
    merged = functools.partial(fnx.checkpoint, prevent_cse=False)
    assert arena(fnx.grad(functools.partial(deep, merged)), BIG) == full
    least = arena(fnx.grad(functools.partial(deep, fnx.checkpoint)), BIG)
    # 20 arguments of blocks and what one block computes, of 160 values of blocks
    assert least <= 40 * BIG.nbytes
    assert full >= 120 * BIG.nbytes


def test_nor_in_second_derivatives():
    def directional(wrap):
        f = functools.partial(deep, wrap, depth=8)
        slope = lambda x: (fnx.grad(f)(x) * BIG).sum()  # noqa: E731
        return arena(fnx.grad(slope), BIG)

    assert directional(fnx.checkpoint) < directional(bare) / 2


def test_a_barrier_keeps_equal_computations_apart():
    def twice(behind):
        return lambda x: fnp.sin(fnp.exp(x)) + fnp.cos(fnp.exp(behind(x)))

    def exponentials(f):
        return str(fnx.make_jaxpr(f)(X)).count("= exp")

    assert exponentials(twice(lambda x: x)) == 1
    assert exponentials(twice(lax.optimization_barrier)) == 2
    x = {"a": np.arange(3), "b": (1.5, X + 1j)}
    found = fnx.jit(lax.optimization_barrier)(x)
    np.testing.assert_array_equal(found["a"], x["a"])
    np.testing.assert_array_equal(found["b"][1], x["b"][1])
    slope = fnx.grad(lambda x: (lax.optimization_barrier((x, 2.0))[0] ** 2).sum())
    close(fnx.vmap(slope)(STACK), 2 * STACK)


def test_constants_that_both_passes_compute_do_not_merge_them():
    def block(y):
        waves = fnp.exp(fnp.sin(fnp.arange(3000.0).reshape(1000, 3)))
        return fnp.tanh(fnp.sin(y * waves) * fnp.cos(y)) * fnp.exp(-y * waves)

    def f(wrap, x):
        for _ in range(20):
            x = wrap(block)(x)
        return x.sum()

    least = arena(fnx.grad(functools.partial(f, fnx.checkpoint)), BIG)
    assert least <= 30 * BIG.nbytes
    assert arena(fnx.grad(functools.partial(f, bare)), BIG) >= 50 * BIG.nbytes


# ---------------------------------------------------------------- loops


def rounds(x, length, **options):
    def body(carry, row):
        state = fnp.sin(carry["s"]) * x + row
        return {"s": state, "n": carry["n"] + 1}, (state * carry["n"], None)

    rows = np.sin(np.arange(3.0 * length)).reshape(length, 3)
    last, (ys, _) = lax.scan(body, {"s": x, "n": 0}, rows, **options)
    return last["s"] * last["n"] + (ys * np.cos(np.arange(length))[:, None]).sum(0)


def rounds_plain(x, length, reverse=False):
    rows = np.sin(np.arange(3.0 * length)).reshape(length, 3)
    state, extra = x, 0.0
    order = reversed(range(length)) if reverse else range(length)
    for n, i in enumerate(order):
        state = fnp.sin(state) * x + rows[i]
        extra = extra + state * n * np.cos(i)
    return state * length + extra


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint": "sqrt"},
        {"checkpoint": 2, "reverse": True},
        {"checkpoint": 4, "unroll": 3},
    ],
    ids=str,
)
def test_checkpoints_of_a_scan_change_no_value(options, name):
    transform, maps = TRANSFORMS[name]
    reverse = options.get("reverse", False)
    found = transform(lambda x: rounds(x, 7, **options))
    wanted = transform(lambda x: rounds_plain(x, 7, reverse))
    if not maps:
        close(found(X), wanted(X))
        return
    rows = np.stack([wanted(x) for x in STACK])
    close(fnx.vmap(found)(STACK), rows)
    close(fnx.jit(fnx.vmap(found))(STACK), rows)


@pytest.mark.parametrize("checkpoint", [1, 3, 4, 5, 9, "sqrt"])
@pytest.mark.parametrize("length", [0, 1, 4, 6])
def test_any_number_of_rounds(checkpoint, length):
    def slope(x):
        return fnx.grad(lambda x: rounds(x, length, checkpoint=checkpoint).sum())(x)

    close(fnx.jit(slope)(X), fnx.grad(lambda x: rounds_plain(x, length).sum())(X))


def test_fori_loop_takes_checkpoints():
    def loop(x, checkpoint):
        return lax.fori_loop(
            2, 9, lambda i, v: fnp.sin(v) * x + i, x, checkpoint=checkpoint
        ).sum()

    close(fnx.grad(lambda x: loop(x, "sqrt"))(X), fnx.grad(lambda x: loop(x, None))(X))


def test_checkpoints_bound_the_memory_of_a_long_scan():
    x = np.linspace(-1, 1, 100)

    def f(x, checkpoint):
        def body(c, r):
            a = fnp.sin(c * x) + r
            return fnp.tanh(a) * fnp.exp(-c * c), None

        return lax.scan(body, x, np.zeros(2500), checkpoint=checkpoint)[0].sum()

    def rows(checkpoint):
        return arena(fnx.grad(lambda x: f(x, checkpoint)), x) / x.nbytes

    assert rows(None) > 4 * 2500
    assert rows("sqrt") < 10 * 50
    assert rows(10) < 250 + 10 * 10
    assert rows(500) < 10 * 500


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
