"""fnx.debug: print, callback and breakpoint."""

from __future__ import annotations

import bdb
import io
import logging
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import debug, errors, lax

STACK = np.array([1.0, -2.0, 3.0], np.float32)
BOTH = pytest.mark.parametrize("transform", [lambda f: f, fnx.jit])


def printed(capsys):
    captured = capsys.readouterr()
    assert not captured.err
    return captured.out.splitlines()


# ---------------------------------------------------------------- print


@BOTH
def test_logs_have_the_values_and_the_line_of_the_call(transform, caplog):
    def f(x):
        debug.log("x is {} of {n}", x, n=3)
        return x + 1

    with caplog.at_level(logging.INFO, "fnx.debug"):
        transform(fnx.grad(f))(2.0)
        transform(lambda x: lax.scan(lambda c, r: (f(r), None), 0.0, x)[0])(STACK)
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [f"x is {x} of 3" for x in ("2.0", "1.0", "-2.0", "3.0")]
    (line,) = {record.lineno for record in caplog.records}
    assert f.__code__.co_firstlineno + 1 == line
    assert {record.pathname for record in caplog.records} == {__file__}
    assert {(record.name, record.levelname) for record in caplog.records} == {
        ("fnx.debug", "INFO")
    }
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fnx.debug"):
        transform(f)(2.0)
    assert not caplog.records
    with pytest.raises(
        errors.ArgumentError, match=r"debug.log: .* does not use number 0"
    ):
        debug.log("x", 1.0)


@BOTH
def test_values_are_formatted(transform, capsys):
    def f(x, n):
        debug.print("{} {:.2f} {n:>4d} {{}} {!r:.6}", x, x[1], x, n=n)
        debug.print("{x[0]} {what} {tree}", x=x, what="text", tree={"a": [n, None]})

    transform(f)(STACK, np.int32(7))
    assert printed(capsys) == [
        "[ 1. -2.  3.] -2.00    7 {} Array(",
        "1.0 text {'a': [Array(7, dtype=int32), None]}",
    ]


def test_numbers_and_numpy_arrays(capsys):
    fnx.jit(lambda: debug.print("{} {:.1f} {}", 0.1, 2, np.arange(3)))()
    assert printed(capsys) == ["0.1 2.0 [0 1 2]"]


def test_arrays_print_as_in_jax(jax, capsys):
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 3
    args = "{} {} {:.3f} {} {}", x, np.int32(4), x[1, 1], np.array([True, False]), x[0]
    fnx.jit(lambda x: debug.print(args[0], x, *args[2:]))(x)
    ours = printed(capsys)
    jax.jit(lambda x: jax.debug.print(args[0], x, *args[2:]))(x)
    jax.effects_barrier()
    assert ours == printed(capsys)


@pytest.mark.parametrize(
    "transform",
    [fnx.grad, lambda f: fnx.jit(fnx.grad(f)), fnx.hessian, fnx.jacfwd],
)
def test_a_derivative_prints_once(transform, capsys):
    def f(x):
        debug.print("x {}", x)
        y = x * x
        debug.print("y {}", y)
        return y

    transform(f)(3.0)
    assert printed(capsys) == ["x 3.0", "y 9.0"]


@BOTH
def test_each_member_prints(transform, capsys):
    def f(x):
        debug.print("x {}", x)
        debug.print("doubled {}", 2 * x, ordered=True)

    transform(fnx.vmap(f))(STACK)
    lines = [*[f"x {x}" for x in STACK], *[f"doubled {2 * x}" for x in STACK]]
    assert printed(capsys) == lines


@BOTH
def test_each_round_prints(transform, capsys):
    def f(x):
        def body(c, r):
            debug.print("{c} {r}", c=c, r=r)
            return c + r, None

        def step(v):
            debug.print("while {}", v)
            return v / 2

        lax.while_loop(lambda v: v > 1, step, x)
        return lax.scan(body, x, STACK)[0]

    transform(f)(4.0)
    lines = ["while 4.0", "while 2.0", "4.0 1.0", "5.0 -2.0", "3.0 3.0"]
    assert printed(capsys) == lines


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: debug.print("{}", x, x, y=x), "does not use number 1, y"),
        (lambda x: debug.print("{} {}", x), "asks for more arguments"),
        (lambda x: debug.print("{x}", x), "asks for 'x'"),
        (lambda x: debug.print("{} {0}", x), "cannot switch"),
        (lambda x: debug.print("{", x), "the format"),
        (lambda x: debug.print(x), "must be a format string"),
        (lambda x: debug.callback(3, x), "takes a function"),
    ],
)
@BOTH
def test_invalid_calls(transform, call, text):
    with pytest.raises(errors.ArgumentError, match=text):
        transform(call)(2.0)


# ---------------------------------------------------------------- callback


def test_callbacks_get_arrays_and_everything_else():
    seen = []

    def outside(x, mode, *, options):
        assert not x.flags.writeable
        seen.append((type(x), x.tolist(), mode, options["scale"], options["y"].item()))

    @fnx.jit
    def f(x):
        debug.callback(outside, x, "mean", options={"scale": 2.0, "y": x.sum()})

    f(STACK)
    assert seen == [(np.ndarray, STACK.tolist(), "mean", 2.0, 2.0)]


def test_what_a_callback_returns_is_dropped():
    assert fnx.jit(lambda x: debug.callback(lambda x: x, x))(1.0) is None


def test_tangents_in_a_rule_are_shown_in_forward_mode(capsys):
    @fnx.custom_jvp
    def f(x):
        return x

    @f.defjvp
    def _(primals, tangents):
        debug.print("x {}, t {}", *primals, *tangents)
        return primals[0], 2 * tangents[0]

    fnx.jvp(f, (3.0,), (1.0,))
    assert printed(capsys) == ["x 3.0, t 1.0"]
    # Reverse mode has no tangents, so that there is nothing to be shown.
    assert fnx.grad(f)(3.0).item() == 2.0
    assert printed(capsys) == []


# ---------------------------------------------------------------- breakpoint


class Terminal(io.StringIO):
    """A standard input that somebody types into."""

    def isatty(self):
        return True


def stopping(x):
    tree = {"half": x / 2}
    debug.breakpoint()
    return tree["half"] + 1


@pytest.mark.parametrize("transform", [fnx.jit, fnx.grad])
def test_a_debugger_at_the_line_with_its_values(transform, monkeypatch, capsys):
    typed = "p x, tree['half'].shape\np tree['half'] * 10\nlist\nc\n"
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    transform(stopping)(3.0)
    out = capsys.readouterr().out
    assert "test_debug.py" in out and "stopping()" in out
    assert "-> debug.breakpoint()" in out
    assert "(array(3., dtype=float32), ())" in out and "15.0" in out
    assert 'return tree["half"] + 1' in out


def test_a_debugger_without_a_transformation(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal("p tree['half']\nc\n"))
    trace = sys.gettrace()
    try:
        assert stopping(fnp.float32(3)).item() == 2.5
    finally:
        sys.settrace(trace)
    out = capsys.readouterr().out
    assert '-> return tree["half"] + 1' in out
    assert "Array(1.5, dtype=float32)" in out


@BOTH
def test_without_a_terminal_the_values_are_written(transform, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert transform(stopping)(fnp.float32(3)).item() == 2.5
    err = capsys.readouterr().err
    assert "fnx.debug.breakpoint at" in err
    assert "(stopping): debug.breakpoint()" in err
    assert "no terminal" in err and "x = " in err and "1.5" in err


def test_a_breakpoint_in_every_round(monkeypatch, capsys):
    def f(x):
        def body(c, r):
            debug.breakpoint()
            return c * r, None

        return lax.scan(body, x, STACK)[0]

    monkeypatch.setattr(sys, "stdin", Terminal("p c, r\nc\n" * 3))
    fnx.jit(f)(fnp.float32(1))
    lines = [line for line in capsys.readouterr().out.splitlines() if "(array" in line]
    assert [line.count("array(") for line in lines] == [2, 2, 2]
    assert "array(3., dtype=float32))" in lines[2]


def test_q_ends_the_program(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Terminal("q\n"))
    with pytest.raises(bdb.BdbQuit):
        fnx.jit(stopping)(3.0)


@pytest.mark.multi_device
def test_lines_of_replicas_stay_apart(monkeypatch):
    """Each is written at once: what writes to a stream may be interrupted."""

    class Stream:
        def __init__(self):
            self.writes = []

        def write(self, text):
            self.writes.append(text)

        def flush(self):
            pass

    def f(x):
        fnx.debug.print("member {}", fnx.lax.axis_index("i"))
        return fnx.lax.psum(x, "i")

    stream = Stream()
    monkeypatch.setattr("sys.stdout", stream)
    with fnx.config.override(cpu_devices=4):
        fnx.pmap(f, "i")(np.ones((4, 3), "float32"))
    wanted = [f"member {n}\n" for n in range(4)]
    assert sorted(text for text in stream.writes if text) == wanted
