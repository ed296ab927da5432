"""Ctrl-C stops a compiled loop soon, with KeyboardInterrupt, and nothing is broken."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fnx
from fnx import lax

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX's clock")

# What each function does; all would run for minutes.
LONG = {
    "scan": "lax.scan(lambda c, _: (c * 0.5 + x, None), x, None, 2 * 10**9)[0]",
    "while": "lax.while_loop(lambda v: v > -1, lambda v: v * 0.5 + x, x)",
    "nested while": """lax.scan(
        lambda c, _: (
            lax.while_loop(lambda v: v < 2, lambda v: v + 0.001, c * 0), None),
        x, None, 10**9)[0]""",
    "rounds of unknown length": """lax.while_loop(
        lambda v: v > -1,
        lambda v: lax.fori_loop(0, (v * 0 + 10**5).astype("int32"), lambda i, w: w, v),
        x)""",
    "costly rounds": """lax.scan(
        lambda c, _: (fnp.sin(fnp.exp(-c * c)) + x, None),
        fnp.zeros(10**5), None, 10**9)[0].sum()""",
    "products": """lax.scan(
        lambda c, _: (c @ c, None), fnp.eye(64) * x, None, 10**9)[0].sum()""",
    "small loops among products": """lax.scan(
        lambda c, _: (
            c @ c + lax.fori_loop(0, 10**8, lambda i, v: v * 0.5 + x, x), None),
        fnp.eye(64) * x, None, 10**6)[0].sum()""",
    "branches": """lax.scan(
        lambda c, _: (lax.cond(c > 1, lambda v: v - 1, lambda v: v + x, c), None),
        x, None, 2 * 10**9)[0]""",
    "callbacks": """lax.scan(
        lambda c, _: (fnx.pure_callback(np.negative, x, c) + x, None),
        x, None, 10**8)[0]""",
    "native code around callbacks": """lax.scan(
        lambda c, _: (fnx.pure_callback(np.negative, x, lax.fori_loop(
            0, 10**7, lambda i, v: v * 0.5 + x, c)), None),
        x, None, 10**8)[0]""",
}

SCRIPT = """
import os, signal, sys, threading, time
import numpy as np
import fnx
import fnx.numpy as fnp
from fnx import lax

# Who was started in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
x = fnp.float32(0.5)
function = {function}
short = fnx.jit(lambda n: fnx.lax.fori_loop(0, n, lambda i, v: v + i, 0))
if hasattr(function, "lower"):
    function.lower(x).compile()
sent = 0.0

def send():
    global sent
    time.sleep(0.2)
    sent = time.perf_counter()
    os.kill(os.getpid(), signal.SIGINT)

# A signal that arrives while LLVM compiles has to wait, so there are some attempts.
delays = []
for attempt in range(6):
    thread = threading.Thread(target=send)
    thread.start()
    try:
        function(x)
    except KeyboardInterrupt:
        delays.append(time.perf_counter() - sent)
    else:
        sys.exit("it was not stopped")
    thread.join()
    # the process is as good as new
    assert short(1000).item() == 499500
    a = np.arange(512.0 * 512).reshape(512, 512).astype("float32") / 512**2
    np.testing.assert_allclose(fnp.array(a) @ a, a @ a, rtol=1e-4)
    if min(delays) < 0.2:
        break
else:
    sys.exit(f"it was stopped after {{delays}} s")
"""


def run(function):
    """Runs the script for a function of a scalar x."""
    text = textwrap.dedent(SCRIPT).format(function=function)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", LONG)
def test_a_loop_is_stopped(name):
    run(f"fnx.jit(lambda x: {LONG[name]})")


REPLICAS = {
    "all of them": "lambda x: lax.while_loop(lambda v: v > -1, lambda v: v * 0.5, x)",
    "others than the first": """lambda x: lax.while_loop(
        lambda v: (v > -1) | (lax.axis_index("i") > 0), lambda v: v * 0.5 - 2 * (
        lax.axis_index("i") == 0), x)""",
}


@pytest.mark.multi_device
@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_that_never_meet_are_stopped(name):
    """The main thread alone hears of a signal; all of them end."""
    run(f"""(lambda mapped: lambda x: mapped(np.full(3, x)))(
        setattr(fnx.config, "cpu_devices", 3) or fnx.pmap({REPLICAS[name]}, "i"))""")


@pytest.mark.multi_device
def test_a_replica_that_fails_ends_those_that_never_meet_it():
    text = """
        import numpy as np, fnx
        from fnx import lax

        def check(number):
            if number == 1:
                raise ValueError("a bad day")
            return number

        def f(x):
            kind = fnx.ShapeDtypeStruct((), "int32")
            number = fnx.pure_callback(check, kind, lax.axis_index("i"))
            return lax.while_loop(lambda v: v > number - 9, lambda v: v * 0.5, x)

        fnx.config.cpu_devices = 3
        try:
            fnx.pmap(f, "i")(np.ones(3, "float32"))
        except ValueError as error:
            print(error, *error.__notes__)
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(text)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120
    )
    assert "a bad day" in done.stdout and "replica 1 of 3" in done.stdout, done.stderr


def test_a_call_in_machine_code_is_stopped():
    """After some calls the whole call is native, and no frame of Python's is left."""
    bounded = "fnx.jit(lambda x, n: lax.fori_loop(0, n, lambda i, v: v * 0.5 + x, x))"
    run(f"""(lambda g: [g(x, 10) for _ in range(200)] and (lambda x: g(x, 2**31 - 1)))(
        {bounded})""")


def test_short_loops_do_not_look():
    def f(count):
        x = fnx.ShapeDtypeStruct((), "float32")
        body = lambda c, _: (c * 0.5 + 1, None)  # noqa: E731
        return fnx.jit(lambda x: lax.scan(body, x, None, count)[0]).lower(x)

    assert "@look" not in f(1000).as_text("llvm")
    assert "@look" in f(1_000_000).as_text("llvm")
