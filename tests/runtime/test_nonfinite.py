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
