"""Branches and loops under every transformation, against the same written in Python."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from tests.control.flows import FLOWS, ROWS, STACK, TRANSFORMS, X, total

PARAMS = pytest.mark.parametrize("flow", FLOWS, ids=[flow.name for flow in FLOWS])


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def plain(flow, transform, value):
    """The transformed plain function at a value."""
    return transform(lambda x: flow.plain(x, value))(value)


@PARAMS
@pytest.mark.parametrize("name", TRANSFORMS)
def test_control_flow_is_what_python_does(flow, name):
    transform, maps = TRANSFORMS[name]
    if not maps:
        close(transform(flow.function)(X), plain(flow, transform, X))
        return
    wanted = np.stack([plain(flow, transform, x) for x in STACK])
    close(fnx.vmap(transform(flow.function))(STACK), wanted)
    close(fnx.jit(fnx.vmap(transform(flow.function)))(STACK), wanted)


@PARAMS
def test_gradients_of_mapped_functions(flow):
    found = fnx.grad(total(fnx.vmap(flow.function)))(STACK)

    def each(stack):
        pairs = zip(stack, STACK, strict=True)
        return fnp.stack([flow.plain(x, value) for x, value in pairs])

    close(found, fnx.grad(total(each))(STACK))


@PARAMS
def test_nested_maps(flow):
    stacks = STACK.reshape(2, 2, 3)
    found = fnx.jit(fnx.vmap(fnx.vmap(flow.function)))(stacks)
    wanted = [flow.plain(x, x) for x in STACK]
    close(found, np.stack(wanted).reshape(2, 2, 3))


@PARAMS
def test_without_jit(flow):
    with fnx.disable_jit():
        found = flow.function(X)
    close(found, flow.plain(X, X))


# ---------------------------------------------------------------- scan


def test_no_rounds_without_jit():
    with fnx.disable_jit():
        carry, rows = lax.scan(lambda c, x: (c + x, {"y": (x, 2)}), X, ROWS[:0])
        assert rows["y"][0].shape == (0, *ROWS.shape[1:])
        assert rows["y"][1].shape == (0,) and np.array_equal(carry, X)
        few = lax.map(lambda x: x * 2, ROWS[:1], batch_size=3)
        np.testing.assert_array_equal(few, ROWS[:1] * 2)


def test_no_rounds():
    carry, rows = lax.scan(lambda c, x: (c + x, c), 1.5, np.zeros(0))
    assert carry.item() == 1.5 and rows.shape == (0,)
    assert lax.fori_loop(3, 3, lambda i, v: v + 1, 0).item() == 0
    assert lax.fori_loop(3, 1, lambda i, v: v + 1, 0).item() == 0
    gradient = fnx.grad(lambda c: lax.scan(lambda c, _: (c * c, None), c, None, 0)[0])
    assert gradient(2.0).item() == 1.0


@pytest.mark.parametrize("unroll", [1, 2, 3, 4, 5, 9, True, False])
@pytest.mark.parametrize("reverse", [False, True])
def test_unrolled_rounds_are_rounds(unroll, reverse):
    def f(x):
        return lax.scan(
            lambda c, r: (c * r + 1, c), x, ROWS, reverse=reverse, unroll=unroll
        )

    carry, rows = X, {}
    for i in reversed(range(4)) if reverse else range(4):
        rows[i], carry = carry, carry * ROWS[i] + 1
    for run in (f, fnx.jit(f)):
        found, stack = run(X)
        close(found, carry)
        close(stack, np.stack([rows[i] for i in range(4)]))


def test_python_numbers_take_the_dtype_that_they_become():
    total, _ = lax.scan(lambda c, x: (c + x, None), 0, np.arange(3, dtype=np.float64))
    assert total.dtype == np.float64 and total.item() == 3.0
    value = lax.while_loop(lambda v: v < 3, lambda v: v + np.float32(1.5), 0)
    assert value.dtype == np.float32 and value.item() == 3.0
    assert lax.fori_loop(0, 3, lambda i, v: v + i, 0).dtype == np.int32


@pytest.mark.parametrize(
    "loop",
    [
        lambda f, init: lax.scan(lambda c, _: (f(c), None), init, None, 3),
        lambda f, init: lax.while_loop(lambda c: c < 3, f, init),
        lambda f, init: lax.fori_loop(0, 3, lambda i, c: f(c), init),
        lambda f, init: fnx.jit(lambda n: lax.fori_loop(0, n, lambda i, c: f(c), init))(
            3
        ),
    ],
    ids=["scan", "while_loop", "fori_loop", "fori_loop, traced"],
)
@pytest.mark.parametrize(
    ("init", "dtype"),
    [(1.5, "int32"), (1.5, "bool"), (1, "bool"), (1j, "float32"), (1j, "int8")],
)
def test_what_has_a_dtype_gives_no_way_to_a_python_number(loop, init, dtype):
    with pytest.raises(errors.ShapeError, match=r"the carry must keep its .* dtypes"):
        loop(lambda c: (c.real + 1).astype(dtype), init)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64", "float16"])
def test_an_index_between_python_bounds_takes_the_dtype_of_what_it_meets(dtype):
    def total(n, start=0):
        return lax.fori_loop(start, n, lambda i, v: v + i, np.zeros((), dtype))

    with fnx.disable_jit():
        assert total(4).dtype == dtype
    for run in (total, fnx.jit(total), fnx.jit(total, static_argnums=0)):
        assert run(4).dtype == dtype and run(4).item() == 6
    assert fnx.jit(total)(4, 1).dtype == dtype


def test_an_index_between_bounds_with_a_dtype_has_it():
    found = lax.fori_loop(np.uint8(1), np.uint8(4), lambda i, v: v * i, np.uint8(1))
    assert found.dtype == np.uint8 and found.item() == 6
    with pytest.raises(errors.ShapeError, match="returns i32"):
        lax.fori_loop(np.int32(0), 3, lambda i, v: v + i, np.int8(0))


@pytest.mark.parametrize("checkpoint", [None, 2])
def test_branches_of_python_numbers_that_keep_other_residuals(checkpoint):
    def rounds(x):
        def body(state):
            return state[0] + 1, fnp.sin(state[1])

        start = (0, x)
        return lax.while_loop(
            lambda s: s[0] < 3, body, start, max_steps=5, checkpoint=checkpoint
        )[1]

    def f(x):
        y = lax.cond(x > 0, lambda: rounds(x), lambda: x)
        return lax.switch(1, [lambda: y, lambda: fnp.sin(y) * fnp.exp(y)])

    y, slope = 0.5, 1.0
    for _ in range(3):
        y, slope = np.sin(y), slope * np.cos(y)
    slope *= np.exp(y) * (np.sin(y) + np.cos(y))
    for run in (fnx.grad(f), fnx.jit(fnx.grad(f)), fnx.grad(fnx.checkpoint(f))):
        np.testing.assert_allclose(run(0.5), slope, rtol=1e-6)
    lanes = fnx.vmap(lambda w, x: fnx.grad(f)(x) * w, (0, None))(np.ones(2, "f4"), 0.5)
    np.testing.assert_allclose(lanes, [slope] * 2, rtol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 3, 6, 7])
def test_an_associative_scan_from_the_end(length):
    """Affine maps do not commute: what comes later is the first argument."""
    rng = np.random.default_rng(length)
    slopes, offsets = rng.standard_normal((2, length))

    def after(first, second):
        return first[0] * second[0], second[0] * first[1] + second[1]

    value, wanted = 0.0, np.zeros(length)
    for i in reversed(range(length)):
        value = slopes[i] * value + offsets[i]
        wanted[i] = value
    for run in (
        lax.associative_scan,
        fnx.jit(lax.associative_scan, static_argnums=(0, 2)),
    ):
        found = run(after, (slopes, offsets), True)[1]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    stacked = np.stack([offsets, -offsets], axis=1), np.stack([slopes] * 2, axis=1)
    turned = tuple(x.T for x in stacked[::-1])
    found = lax.associative_scan(after, turned, reverse=True, axis=-1)[1]
    np.testing.assert_allclose(found, [wanted, -wanted], rtol=1e-12)


def test_carries_that_change_places():
    def swap(carry, _):
        a, b, c = carry
        return (b, c, a), a

    (a, b, c), rows = fnx.jit(lambda: lax.scan(swap, (1.0, 2.0, 3.0), None, 7))()
    assert (a.item(), b.item(), c.item()) == (2.0, 3.0, 1.0)
    np.testing.assert_array_equal(rows, [1, 2, 3, 1, 2, 3, 1])


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_a_row_of_a_large_carry_is_set_in_place(rounds):
    big = np.arange(4000.0).reshape(1000, 4)

    def body(i, state):
        array, seen = state
        seen = seen + array[i]  # read before the update
        return array.at[2 * i].set(-seen), seen

    loop = fnx.jit(lambda x: lax.fori_loop(0, rounds, body, (x, x[0] * 0)))
    given = fnp.array(big)
    array, seen = loop(given)
    want, total = big.copy(), np.zeros(4)
    for i in range(rounds):
        total = total + want[i]
        want[2 * i] = -total
    close(array, want)
    close(seen, total)
    np.testing.assert_array_equal(given, big)  # what it was given is left alone


def test_an_update_that_the_old_carry_outlives():
    def body(i, state):
        return state[0].at[i].set(9.0), state[0]

    array, old = fnx.jit(lambda x: lax.fori_loop(0, 3, body, (x, x)))(np.zeros(100))
    np.testing.assert_array_equal(array[:4], [9, 9, 9, 0])
    np.testing.assert_array_equal(old[:4], [9, 9, 0, 0])


def test_invariants_are_computed_before_the_loop():
    def f(w, x):
        return lax.scan(lambda c, r: (c * fnp.exp(w) + r, None), x, ROWS)[0]

    plan = fnx.jit(f).lower(X, X).as_text("plan")
    assert plan.index("kernel0") < plan.index("rounds")
    wanted = X
    for row in ROWS:
        wanted = wanted * np.exp(X) + row
    close(fnx.jit(f)(X, X), wanted)
    jacobian = fnx.jacrev(f)(X, X)
    close(np.diag(jacobian), fnx.jvp(lambda w: f(w, X), (X,), (np.ones(3),))[1])


# ---------------------------------------------------------------- lanes


def test_lanes_that_do_not_choose_a_branch_do_not_see_it():
    def endless(y):
        return lax.while_loop(lambda v: v != 0.0, lambda v: v - 1.0, y)

    f = fnx.vmap(lambda y: lax.cond(y > 0, endless, lambda v: v * 2, y))
    np.testing.assert_array_equal(f(np.array([3.0, -0.5, 2.0])), [0.0, -1.0, 0.0])


def test_a_loop_without_end_in_one_without_rounds():
    """How long a round takes is unknown, and there are none of them."""

    def body(c, _):
        return lax.while_loop(lambda v: v.sum() < 9.0, lambda v: v * 2.0, c), None

    def outer(c, row):
        return lax.scan(body, c, None, 0)[0] + row, None

    close(fnx.jit(lambda x: lax.scan(outer, x, ROWS)[0])(X), X + ROWS.sum(0))


def test_branches_that_capture_equal_arrays():
    """The same function thrice, which closes over an array of several elements."""
    w = fnp.asarray(X)
    branch = lambda y: y * w  # noqa: E731
    f = lambda i, x: lax.switch(i, [branch, lambda y: y, branch], x)  # noqa: E731
    close(f(2, X), X * X)
    g = lambda w: f(2, X * w)[1] + lax.switch(1, [lambda y: y * w] * 3, X)[1]  # noqa: E731
    close(fnx.grad(lambda x: g(x).sum())(np.float64(2.0)), X[1] * X[1] + X[1])


def test_lanes_that_differ_in_the_predicate_alone():
    """Nothing but the predicate is mapped, and a branch has a product."""
    w = fnp.asarray(WEIGHTS[0][:3, :3])
    f = lambda p: lax.cond(p, lambda: fnp.log(w @ w.T), lambda: w)  # noqa: E731
    found = fnx.vmap(f)(np.array([True, False]))
    close(found, np.stack([np.log(w @ w.T), w]))
    none = lambda p: lax.cond(p, lambda: fnp.arange(3) @ X, lambda: 1.0)  # noqa: E731
    close(fnx.vmap(none)(np.array([False, True])), [1.0, 4.1])


def test_gradients_of_lanes_that_do_not_choose_a_branch():
    def f(w, x):
        def risky(v):
            return fnp.dot(w, fnp.stack([1 / v, fnp.log(v)]))

        return lax.cond(x > 0, risky, lambda v: v * 0.0, x)

    xs = np.array([0.0, 2.0, -1.0])
    w = np.array([3.0, 4.0])
    found = fnx.grad(lambda w: fnx.vmap(f, (None, 0))(w, xs).sum())(w)
    close(found, [0.5, np.log(2.0)])
    slopes = fnx.grad(lambda x: fnx.vmap(f, (None, 0))(w, x).sum())(xs)
    close(slopes, [0.0, -3 / 4 + 4 / 2, 0.0])


def test_lanes_that_are_done_rest():
    def f(x):
        return lax.while_loop(lambda v: v < 10, lambda v: v * v, x)

    xs = np.array([2.0, 11.0, 3.0, 1e300])
    np.testing.assert_array_equal(fnx.vmap(f)(xs), [16.0, 11.0, 81.0, 1e300])


def test_loops_of_different_lengths_in_reverse():
    def f(x):
        return lax.while_loop(lambda v: v < 50, lambda v: v * v, x)

    xs = np.array([2.0, 60.0, 3.0])
    wanted = [8 * 2.0**7, 1.0, 4 * 3.0**3]
    close(fnx.vmap(fnx.grad(f))(xs), wanted)
    close(fnx.grad(lambda x: fnx.vmap(f)(x).sum())(xs), wanted)


# ---------------------------------------------------------------- reverse mode


def test_a_bound_on_the_rounds_in_reverse_mode():
    def power(x, most):
        return lax.while_loop(
            lambda s: s[1] < 10, lambda s: (s[0] * x, s[1] + 1), (x, 0), max_steps=most
        )[0]

    close(fnx.grad(lambda x: power(x, 10))(X[1]), 11 * 1.1**10)
    close(power(X[1], 3), 1.1**11)  # no reverse mode, no bound
    with pytest.raises(errors.StepLimitError, match=r"more than 9 rounds.*max_steps=9"):
        fnx.grad(lambda x: power(x, 9))(X[1])
    close(fnx.grad(lambda x: power(x, 11))(X[1]), 11 * 1.1**10)


def test_many_rounds_in_reverse_mode():
    def f(x):
        return lax.while_loop(
            lambda s: s[1] < 100_000, lambda s: (s[0] + x * 1e-5, s[1] + 1), (x, 0)
        )[0]

    close(fnx.grad(f)(X[2]), 2.0)


# ---------------------------------------------------------------- mistakes

BAD = {
    "cond: pred must be a scalar": lambda: lax.cond(X > 0, abs, abs, X),
    "branch 0": lambda: lax.cond(True, lambda x: x, lambda x: x[:2], X),
    "differ": lambda: lax.cond(True, lambda x: (x, x), lambda x: [x, x], X),
    "takes functions": lambda: lax.cond(True, 1.0, 2.0),
    "branches is empty": lambda: lax.switch(0, []),
    "index must be an integer": lambda: lax.switch(0.5, [abs, abs], X),
    "no function for the platform": lambda: lax.platform_dependent(1.0, tpu=abs),
    "must return a pair": lambda: lax.scan(lambda c, x: c, X, ROWS),
    "it is given f64[3], it returns f64[]": lambda: lax.scan(
        lambda c, x: (c.sum(), None), X, ROWS
    ),
    "at ['b']: only in": lambda: lax.scan(
        lambda c, x: ({"a": x, "b": x}, None), {"a": X}, ROWS
    ),
    "must have one length": lambda: lax.scan(lambda c, x: (c, x), X, (X, ROWS)),
    "no leading axis": lambda: lax.scan(lambda c, x: (c, x), X, 1.0),
    "xs has no arrays": lambda: lax.scan(lambda c, x: (c, x), X),
    "length must be an integer": lambda: lax.scan(abs, X, None, 2.5),
    "length must not be negative": lambda: lax.scan(abs, X, None, -1),
    "scan: unroll must be": lambda: lax.scan(lambda c, x: (c, x), X, ROWS, unroll=0),
    "must return a bool scalar": lambda: lax.while_loop(lambda v: v > 0, abs, X),
    "it returned f64[]": lambda: lax.while_loop(lambda v: v.sum(), abs, X),
    "it returned a tuple of length 2": lambda: lax.while_loop(lambda v: (v, v), abs, X),
    "max_steps must be": lambda: lax.while_loop(abs, abs, X, max_steps=-1),
    "lower must be an integer": lambda: lax.fori_loop(0.5, 3, lambda i, v: v, X),
    "upper must be a scalar": lambda: lax.fori_loop(0, np.arange(3), lambda i, v: v, X),
    "unroll=2: a bound is traced": lambda: fnx.jit(
        lambda n: lax.fori_loop(0, n, lambda i, v: v, X, unroll=2)
    )(3),
    "map: the leading axes must have one length": lambda: lax.map(
        lambda r: r, (X, ROWS)
    ),
    "map: xs has no arrays": lambda: lax.map(lambda r: r, ()),
    "batch_size must be": lambda: lax.map(abs, ROWS, batch_size=0),
    "no axis 3": lambda: lax.associative_scan(lambda a, b: a, X, axis=3),
    "elems has no arrays": lambda: lax.associative_scan(lambda a, b: a, ()),
}


def test_mistakes_in_a_map_and_in_segments_name_what_the_user_named():
    with pytest.raises(errors.TracerValueError, match="depends on row,"):
        lax.map(lambda row: row if row > 0 else -row, ROWS[:, 0])
    with pytest.raises(errors.TracerValueError, match=r"depends on pair\['a'\],"):
        lax.map(lambda pair: float(pair["a"]), {"a": ROWS[:, 0]})
    with pytest.raises(errors.TracerValueError, match="depends on v,"):
        lax.while_loop(lambda v: v < 3, lambda v: float(v), 1.0, checkpoint=2)


@pytest.mark.parametrize("bound", ["known", "traced"])
def test_mistakes_in_a_fori_loop_name_its_own_arguments(bound):
    def loop(body, value):
        def run(n):
            return lax.fori_loop(0, n, body, value)

        return run(3) if bound == "known" else fnx.jit(run)(3)

    with pytest.raises(errors.TracerValueError, match="depends on total,"):
        loop(lambda step, total: total if total > 0 else -total, 1.0)
    with pytest.raises(errors.TracerValueError, match="depends on step,"):
        loop(lambda step, total: total if step > 0 else -total, 1.0)
    with pytest.raises(errors.TracerValueError, match=r"depends on total\['a'\],"):
        loop(lambda step, total: {"a": int(total["a"])}, {"a": 1.0})
    with pytest.raises(errors.ShapeError) as caught:
        loop(lambda i, v: {"a": v["a"] * 1.5}, {"a": np.int32(1)})
    text = str(caught.value)
    assert text.startswith("fori_loop: <lambda>: the carry")
    assert "\n  init_val['a']: it is given i32[], it returns f32[]" in text
    with pytest.raises(errors.ArgumentError, match=r"fori_loop: init_val\[0\] is 'a'"):
        loop(lambda i, v: v, ["a"])


@pytest.mark.parametrize("text", BAD)
def test_mistakes_are_explained(text):
    with pytest.raises(errors.FnxError) as caught:
        BAD[text]()
    assert text in str(caught.value)


# ---------------------------------------------------------------- products of rows

WEIGHTS = np.random.default_rng(7).normal(size=(2, 20, 20)) * 0.2
SERIES = np.random.default_rng(8).normal(size=(6, 17, 20))


def recurrent(weights, bias, series, reverse=False):
    def body(state, x):
        state = fnp.tanh(state @ weights[0] + fnp.sin(x) @ weights[1] + bias)
        return state, state.sum(1)

    begin = fnp.zeros((17, 20), np.float64)
    return lax.scan(body, begin, series, reverse=reverse)


def recurrent_plain(weights, bias, series, reverse=False):
    state, rows = np.zeros((17, 20)), {}
    for i in reversed(range(6)) if reverse else range(6):
        state = fnp.tanh(state @ weights[0] + fnp.sin(series[i]) @ weights[1] + bias)
        rows[i] = state.sum(1)
    return state, fnp.stack([rows[i] for i in range(6)])


def test_what_is_made_of_a_product_of_rows_alone():
    """A product that only equations read that do not depend on the carry either."""

    def body(total, x):
        row = x @ WEIGHTS[0]
        flat = (fnp.sin(row) @ WEIGHTS[1]).reshape(-1)
        return total + row, flat

    found = fnx.jit(lambda s: lax.scan(body, np.zeros((17, 20)), s))(SERIES)
    rows = SERIES @ WEIGHTS[0]
    close(found[0], rows.sum(0))
    close(found[1], (np.sin(rows) @ WEIGHTS[1]).reshape(6, -1))


@pytest.mark.parametrize("reverse", [False, True])
def test_products_of_rows_are_made_outside_of_the_loop(reverse):
    args = WEIGHTS, np.arange(20.0) * 0.1, SERIES

    def scalar(f):
        def loss(*args):
            last, rows = f(*args, reverse=reverse)
            return (last * last).sum() + (rows * np.arange(17.0)).sum()

        return loss

    for found, wanted in zip(
        fnx.jit(lambda *a: recurrent(*a, reverse=reverse))(*args),
        recurrent_plain(*args, reverse=reverse),
        strict=True,
    ):
        close(found, wanted)
    found = fnx.jit(fnx.grad(scalar(recurrent), (0, 1, 2)))
    wanted = fnx.grad(scalar(recurrent_plain), (0, 1, 2))(*args)
    for x, y in zip(found(*args), wanted, strict=True):
        close(x, y)
    plan = found.lower(*args).as_text("plan")
    held = [row for row in plan.split("\n") if row.startswith("      ")]
    assert sum(" @ " in row for row in held) == 2  # one product a round, each way
    mapped = fnx.jit(fnx.vmap(fnx.grad(scalar(recurrent)), (0, None, 0)))
    weights, series = np.stack([WEIGHTS, -WEIGHTS]), np.stack([SERIES, SERIES + 1])
    each = [
        fnx.grad(scalar(recurrent_plain))(w, args[1], s)
        for w, s in zip(weights, series, strict=True)
    ]
    close(mapped(weights, args[1], series), np.stack(each))


# ---------------------------------------------------------------- packed carries


@pytest.mark.parametrize("reverse", [False, True])
def test_carries_that_go_the_same_way(reverse):
    """Six of them, with operands of their own, beside two that go other ways."""
    rng = np.random.default_rng(3)
    begin, scale = list(rng.random((6, 2))), list(rng.random(6))
    rows = list(rng.random((6, 5)))

    def body(carry, xs):
        many, other, seen = carry
        parts = zip(many, scale, xs, strict=True)
        many = [fnp.sin(c * s) + x * 1.5 for c, s, x in parts]
        return (many, other * 0.9 + 1, seen + many[0] * 0 + xs[0]), other

    def loop(begin, rows):
        first = (begin, X[0], X[:2])
        (many, other, seen), ys = lax.scan(body, first, rows, reverse=reverse)
        return many, other, seen, ys

    def plain(begin, rows):
        carry, found = (begin, X[0], X[:2]), {}
        for i in reversed(range(5)) if reverse else range(5):
            carry, found[i] = body(carry, [row[i] for row in rows])
        return (*carry, np.stack([found[i] for i in range(5)]))

    def scalar(f):
        def loss(begin, rows):
            many, other, seen, ys = f(begin, rows)
            return sum((x * x).sum() for x in many) + other + seen.sum() + ys.sum()

        return loss

    for run in (loop, fnx.jit(loop)):
        found, wanted = run(begin, rows), plain(begin, rows)
        for x, y in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
            close(x, y)
    found = fnx.jit(fnx.grad(scalar(loop), (0, 1)))(begin, rows)
    wanted = fnx.grad(scalar(plain), (0, 1))(begin, rows)
    for x, y in zip(fnx.tree.leaves(found), fnx.tree.leaves(wanted), strict=True):
        close(x, y)


MIXED_WAYS = {
    "a row trades places": lambda c, k, r, odd: (
        fnp.sin(c) * r if odd else fnp.sin(r) * c
    ),
    "a constant trades places": lambda c, k, r, odd: (
        fnp.sin(c) * k if odd else fnp.sin(k * 1.5) * c
    ),
    "a row or a constant": lambda c, k, r, odd: fnp.sin(c) * (r if odd else k),
    "all the same": lambda c, k, r, odd: fnp.sin(c * k) * r,
}


@pytest.mark.parametrize("name", MIXED_WAYS)
def test_carries_that_go_the_same_way_with_other_operands(name):
    way = MIXED_WAYS[name]
    rows = [np.linspace(0.1, 0.9, 5) + n for n in range(8)]
    begin = list(0.1 * np.arange(8.0) + 0.3)

    def step(carry, offset, row):
        pairs = enumerate(zip(carry, offset, row, strict=True))
        return [way(c, k, r, n % 2) for n, (c, k, r) in pairs]

    def loop(begin, offset):
        body = lambda carry, row: (step(carry, offset, row), None)  # noqa: E731
        return lax.scan(body, begin, rows)[0]

    offset = list(0.1 * np.arange(8.0) + 0.5)
    wanted = begin
    for i in range(5):
        wanted = step(wanted, offset, [row[i] for row in rows])
    for run in (loop, fnx.jit(loop)):
        close(fnp.stack(run(begin, offset)), fnp.stack(wanted))


def test_branches_may_close_over_different_arrays():
    first, second, third = [fnp.asarray(STACK[0] + n) for n in range(3)]
    branches = [lambda: first.sum(), lambda: second.sum(), lambda: third.sum()]
    for number, wanted in enumerate([first, second, third]):
        assert lax.switch(number, branches) == wanted.sum()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_complex_number_begins_a_loop(dtype):
    def power(x):
        def turn(state):
            k, y = state
            return k + 1, y * x

        start = 0, fnp.full((), 2 - 1j, dtype)
        return fnx.lax.while_loop(lambda state: state[0] < 3, turn, start)[1]

    x = np.asarray(1 + 2j, dtype)
    np.testing.assert_allclose(fnx.jit(power)(x), (2 - 1j) * x**3, rtol=1e-6)
    np.testing.assert_allclose(power(x), (2 - 1j) * x**3, rtol=1e-6)
