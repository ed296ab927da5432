"""debug_nans and debug_infs: which operation made it, where, and around what."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax

X = np.array([[1.0, 2.0, 3.0], [4.0, -1.0, 2.0]])
HERE = "tests/runtime/test_nonfinite.py"


def text(f, *args, infs=False):
    switch = fnx.debug_infs if infs else fnx.debug_nans
    with switch(True), pytest.raises(errors.NonFiniteError) as caught:
        f(*args)
    assert isinstance(caught.value, FloatingPointError)
    return str(caught.value)


def line(f, below, source):
    """How a line of a function is shown, `below` its definition."""
    code = f.__code__
    return f"{HERE}:{code.co_firstlineno + below} ({code.co_qualname}{source}"


def head(p):
    with fnx.named_scope("head"):
        return fnp.log(p)


def loss(x):
    return {"loss": (head(x) * 2).sum()}


def test_a_jitted_function():
    assert text(fnx.jit(loss), X) == (
        "jit of loss gave NaN: the result['loss'].\n"
        f"  made by log, at {line(head, 2, ', in head): return fnp.log(p)')}\n"
        "  its output at index [1,1] is nan, of -1.0"
    )
    compiled = fnx.jit(loss).lower(X).compile()
    assert "made by log" in text(compiled, X)


def test_without_jit():
    assert text(loss, X) == (
        "log gave NaN.\n"
        f"  made by log, at {line(head, 2, ', in head): return fnp.log(p)')}\n"
        "  its output at index [1,1] is nan, of -1.0"
    )
    assert text(lambda x: x / x, fnp.zeros(2)).startswith("div gave NaN.")
    # Repeated calls become native, but not here.
    x = fnp.asarray([-1.0])
    for _ in range(6000):
        fnp.sqrt(x)
    assert "made by sqrt" in text(fnp.sqrt, x)


def test_nothing_is_raised_elsewhere():
    with fnx.debug_nans(True):
        assert fnx.jit(fnp.sqrt)(4.0) == 2.0
        assert np.isinf(fnx.jit(lambda x: 1 / x)(0.0))
        # What the user asks for is none of the function's.
        assert np.isnan(fnp.full(2, np.nan)).all()
        masked = fnx.jit(lambda x: fnp.where(x > 0, fnp.log(x), 0.0))
        assert masked(-1.0) == 0.0
    f = fnx.jit(fnp.sqrt)
    for _ in range(200):
        assert np.isnan(f(-1.0))
    assert "made by sqrt" in text(f, -1.0)
    assert np.isnan(f(-1.0)) and not fnx.config.debug_nans


def test_the_branch_that_was_not_taken_is_not_blamed():
    def f(x):
        safe = fnp.where(x > 0, fnp.log(x), 0.0)
        return safe + fnp.sqrt(x)

    found = text(fnx.jit(f), np.array([2.0, -1.0]))
    assert found.split("\n")[1:] == [
        f"  made by sqrt, at {line(f, 2, '): return safe + fnp.sqrt(x)')}",
        "  its output at index [1] is nan, of -1.0",
    ]


def test_what_was_in_an_argument():
    w = fnp.asarray([1.0, 2.0])
    f = fnx.jit(lambda x, p: x * p["w"] * w)
    assert text(f, 1.0, {"w": np.array([1.0, np.nan])}) == (
        "jit of <lambda> gave NaN: the result at index [1].\n"
        "  It is in p['w'] at index [1] already."
    )
    bad = fnp.asarray([np.nan, 1.0])
    assert text(fnx.jit(lambda x: x * bad), 1.0).endswith(
        "It is in captured array 0 (f32[2]) at index [0] already."
    )


def step(c, r):
    c = c * r
    return fnp.sqrt(c), c


def test_loops_say_the_round():
    rows = np.array([1.0, 2.0, -3.0, 1.0])

    def run(rows, reverse=False):
        return lax.scan(step, 1.0, rows, reverse=reverse)[0]

    shown = line(run, 1, "): return lax.scan(step, 1.0, rows, reverse=reverse)[0]")
    for f in (fnx.jit(run), run):
        lines = text(f, rows).split("\n")
        assert (
            lines[1]
            == f"  made by sqrt, at {line(step, 2, '): return fnp.sqrt(c), c')}"
        )
        assert lines[2].startswith("  its output is nan, of -4.2")
        assert lines[3:] == [f"  in round 2 of scan, at {shown}"]
    backwards = fnx.jit(lambda rows: run(rows, reverse=True))
    assert "in round 2 of scan" in text(backwards, rows)
    assert "in round 0 of scan" in text(backwards, np.array([-1.0, 1.0, 1.0]))

    def until(x):
        return lax.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, fnp.sqrt(c[1] - 1)), (0, x)
        )

    assert "in round 3 of while_loop" in text(fnx.jit(until), 5.0)


def test_programs_in_programs():
    inner = fnx.jit(lambda y: lax.scan(step, y, np.array([1.0, -2.0]))[0])

    def branch(x):
        return lax.cond(x > 0, lambda x: inner(x), lambda x: x, x)

    def outer(xs):
        with fnx.named_scope("outer"):
            return lax.scan(lambda c, x: (c, branch(x)), 0.0, xs)[1]

    lines = text(fnx.jit(outer), np.array([-1.0, -2.0, 3.0])).split("\n")
    assert lines[0] == "jit of outer gave NaN: the result at index [2]."
    assert "(step, in outer)" in lines[1] and "made by sqrt" in lines[1]
    assert [row.split(",")[0] for row in lines[3:]] == [
        "  in round 1 of scan",
        "  in call <lambda>",
        "  in cond",
        "  in round 2 of scan",
    ]


def test_members_of_a_vmap():
    f = fnx.vmap(lambda v: fnp.log(v).sum())
    for g in (fnx.jit(f), f):
        lines = text(g, X).split("\n")
        assert lines[2:] == [
            "  its output at index [1,1] is nan, of -1.0",
            "  for member 1 of the mapped axis (vmap)",
        ]
    twice = fnx.jit(fnx.vmap(fnx.vmap(fnp.sqrt), 1, 1))
    assert "for member 1, 0 of the mapped axis" in text(twice, np.array([[1, -1.0]]))


def test_derivatives_are_told_apart():
    def root(x):
        return fnp.sqrt(x).sum()

    found = text(fnx.jit(fnx.grad(root)), np.array([1.0, 0.0]), infs=True)
    assert found.split("\n")[1:] == [
        f"  made by div, at {line(root, 1, ', derivative): return fnp.sqrt(x).sum()')}",
        "  its output at index [1] is inf, of 0.5, 0.0",
        "  it is part of the derivative of that line",
    ]

    @fnx.custom_vjp
    def f(x):
        return x * 2.0

    def backward(x, ct):
        return (fnp.log(x) * ct,)

    f.defvjp(lambda x: (f(x), x), backward)
    lines = text(fnx.jit(fnx.grad(f)), -1.0).split("\n")
    shown = line(backward, 1, ", backward): return (fnp.log(x) * ct,)")
    assert lines[1:] == [
        f"  made by log, at {shown}",
        "  its output is nan, of -1.0",
        "  it is part of the derivative of that line, in the backward pass",
    ]


def decay(c, i):
    c = c * 0.99999
    return fnp.where(i == 123_456, fnp.log(-c), c), None


def test_a_long_loop_runs_compiled_to_the_round():
    # by reference rules it would take half a minute
    def run(x):
        return lax.scan(decay, x, np.arange(200_000))[0]

    lines = text(fnx.jit(run), 1.0).split("\n")
    shown = "): return fnp.where(i == 123_456, fnp.log(-c), c), None"
    assert lines[1] == f"  made by log, at {line(decay, 2, shown)}"
    assert lines[2].startswith("  its output is nan, of -0.290")
    assert lines[3].startswith("  in round 123456 of scan, at ")


def test_a_loop_in_a_branch_in_a_loop_of_a_vmap():
    def inner(x, n):
        return lax.fori_loop(0, n, lambda i, x: fnp.sqrt(x - i), x)

    def outer(x):
        def body(c, n):
            return lax.cond(n > 2, lambda: inner(c, n), lambda: c + 1), c

        return lax.scan(body, x, np.arange(4))[0]

    found = text(fnx.jit(fnx.vmap(outer)), np.array([900.0, -1.0])).split("\n")
    # the second member: -1, 0, 1, 2, and then sqrt(sqrt(sqrt(2) - 1) - 2)
    assert "made by sqrt" in found[1] and "fnp.sqrt(x - i)" in found[1]
    assert found[2].startswith("  its output at index [1] is nan, of -1.3564")
    assert found[3] == "  for member 1 of the mapped axis (vmap)"
    rounds = [row.split(",")[0].split(" of ")[0].strip() for row in found[3:]]
    assert [r for r in rounds if r.startswith("in round")] == [
        "in round 2",
        "in round 3",
    ]


def test_the_backward_pass_of_a_loop_says_its_own_round():
    @fnx.custom_vjp
    def f(x):
        return x * 0.5

    def backward(x, ct):
        return (ct * fnp.sqrt(x - 0.3),)

    f.defvjp(lambda x: (f(x), x), backward)

    def loss(x):
        return lax.scan(lambda x, _: (f(x), None), x, length=5)[0].sum()

    # x is 4, 2, 1, 0.5, 0.25: the last round, which the backward pass takes first
    found = text(fnx.jit(fnx.grad(loss)), np.array([4.0])).split("\n")
    assert found[1] == (
        f"  made by sqrt, at {line(backward, 1, ', backward')}"
        "): return (ct * fnp.sqrt(x - 0.3),)"
    )
    assert found[3:] == [
        "  it is part of the derivative of that line, in the backward pass",
        f"  in round 4 of scan, at {line(loss, 1, ', backward')}"
        "): return lax.scan(lambda x, _: (f(x), None), x, length=5)[0].sum()",
    ]

    def until(x):
        def test(c):
            return c[0] < 3

        def body(c):
            return c[0] + 1, f(c[1])

        return lax.while_loop(test, body, (0, x))[1]

    found = text(fnx.jit(fnx.grad(until)), 0.5).split("\n")
    assert "in the backward pass" in found[3] and "in round 2 of scan" in found[4]


def test_infinities_and_complex_numbers_in_loops():
    def grow(z, n):
        return z * n, z.real

    values = np.array([1e200, 1e100, 1e50])
    for start in (1.0, 1j, 1 + 1j):
        found = text(
            fnx.jit(lambda z: lax.scan(grow, z, values)[0]),
            np.asarray(start),
            infs=True,
        )
        assert "made by mul" in found and "in round 2 of scan" in found


def test_a_nan_that_a_loop_was_given_is_not_made_there():
    def scale(c, x):
        return c * x, c

    rows = np.array([1.0, np.nan, 2.0])
    found = text(fnx.jit(lambda rows: lax.scan(scale, 1.0, rows)[0]), rows)
    assert found.endswith("It is in rows at index [1] already.")
    # nor is a constant that is looked at in some rounds alone
    w = np.array([np.nan, 2.0])

    def masked(c, i):
        return c + fnp.where(i > 0, w[1], 0.0) * fnp.sqrt(1.0 - i), None

    found = text(fnx.jit(lambda x: lax.scan(masked, x, np.arange(3.0))[0]), 1.0)
    assert "made by sqrt" in found and "in round 2 of scan" in found
    empty = fnx.jit(lambda x: lax.scan(masked, x, np.arange(0.0))[0] + fnp.sqrt(-x))
    assert "made by sqrt" in text(empty, 1.0)


def test_loops_with_effects_and_donated_arrays():
    seen = []

    def body(c, x):
        fnx.debug.callback(lambda c: seen.append(float(c)), c)
        return fnp.sqrt(c - x), c

    f = fnx.jit(lambda c, rows: lax.scan(body, c, rows)[0], donate_argnums=1)
    rows = fnp.asarray([0.0, 1.0, 4.0])
    assert "in round 1 of scan" in text(f, np.asarray(0.25), rows)
    assert len(seen) == 3  # what the program does besides is done once


def test_constants():
    assert text(fnx.jit(lambda x: (x, fnp.log(-1.0))), 1.0) == (
        "jit of <lambda> gave NaN: the result[1].\n"
        "  It is a constant: numbers alone were computed with while tracing."
    )


def test_infinities_and_dtypes():
    assert text(lambda: 1 / fnp.zeros(3), infs=True).endswith(
        "its output at index [0] is inf, of 1.0, 0.0"
    )
    for dtype, most in (("float16", 6e4), ("bfloat16", 3e38), ("float64", 1e308)):
        found = text(
            fnx.jit(lambda x: x * 100.0), fnp.asarray([1.0, most], dtype), infs=True
        )
        assert "made by mul" in found and "its output at index [1] is inf, of" in found
    z = np.array([1.0 + 0j, complex(0, np.inf)])
    with fnx.debug_nans(True), fnx.debug_infs(True), pytest.raises(FloatingPointError):
        fnx.jit(lambda z: z + 1)(z)


def test_what_only_the_compiler_makes_is_said(monkeypatch):
    from fnx.core.primitive import primitive

    fnx.clear_caches()
    monkeypatch.setattr(primitive("cos"), "scalar", "log")
    try:
        found = text(fnx.jit(lambda x: fnp.cos(x) + 0.875), -1.0)
    finally:
        monkeypatch.undo()
        fnx.clear_caches()
    assert found.split("\n")[1].startswith("  The reference rules give none: fnx.check")


def test_the_environment_turns_it_on():
    code = "import fnx, fnx.numpy as fnp; fnx.jit(fnp.log)(-1.0)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"FNX_DEBUG_NANS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "fnx.errors.NonFiniteError: jit of log gave NaN" in run.stderr


def test_the_switches_nest():
    from fnx.core import hooks

    before = len(hooks.busy)
    with fnx.debug_nans(True), fnx.debug_nans(True), fnx.debug_infs(True):
        assert len(hooks.busy) == before + 2
        with fnx.debug_nans(False):
            assert len(hooks.busy) == before + 1
            assert np.isnan(fnx.jit(fnp.sqrt)(-2.0))
    assert len(hooks.busy) == before


def test_the_line_of_a_derivative_of_a_scalar_under_jit():
    """The reference rules that are run again see NumPy's arrays alone."""

    def root(x):
        return fnp.sqrt(x * x)  # the line

    with fnx.debug_nans(True), pytest.raises(errors.NonFiniteError) as caught:
        fnx.jit(fnx.grad(root))(0.0)
    text = str(caught.value)
    assert text.startswith("jit of root gave NaN")
    assert "root, backward" in text and "# the line" in text
