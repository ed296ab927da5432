"""Rows that a loop records, across branches: what is not filled is never touched.

A loop in reverse mode has memory for a million rounds. Planned memory is counted, and
so are the bytes that steps write; values are compared with the gradient of one member
after the other, which goes through no branch of a batch.
"""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax

ROWS = 2**20  # rows of a loop of which nobody has said how many there are
X = np.linspace(0.1, 1.2, 21, dtype=np.float32).reshape(7, 3)
CHOICES = np.array([0, 1, 2, 1, 5, -2, 2], np.int32)


def counted(x, most=6):
    """A loop whose rounds depend on the values: 4 to 6 of them."""

    def body(carry):
        i, y = carry
        return i + 1, fnp.sin(y) * fnp.exp(-0.1 * y) + 0.1 * x

    def test(carry):
        return (carry[0] < 4) | ((carry[1][0] > 0.45) & (carry[0] < most))

    return lax.while_loop(test, body, (0, x))[1]


def converged(x):
    """Another one, whose rows are of the same types."""

    def step(carry):
        i, y = carry
        return i + 1, 0.5 * y + fnp.cos(y) * x

    return lax.while_loop(lambda c: c[0] < 3, step, (0, x))[1]


def square(x):
    return x * x


def one(i, x):
    return lax.switch(i, [square, counted, converged], x).sum()


def nested(i, x):
    """A branch in a branch, and a function under jit in it."""

    def inner(x):
        return lax.cond(x[1] > 0.6, lambda x: fnx.jit(counted)(x * 0.9), square, x)

    return lax.switch(i, [square, inner, converged], x).sum()


def in_rounds(i, x):
    """A loop of a growing number of rounds inside of a scan in a branch."""

    def rounds(x):
        return lax.scan(lambda c, s: (counted(c * s), None), x, fnp.array([0.9, 1.1]))[
            0
        ]

    return lax.switch(i, [square, rounds, fnp.sin], x).sum()


def saved(i, x):
    """Values of the rounds are saved by a policy."""
    policy = fnx.checkpoint_policies.everything_saveable
    return fnx.checkpoint(one, policy=policy)(i, x)


def over_all(f):
    return lambda i, x: fnx.vmap(f)(i, x).sum()


def gradients(f):
    return {
        "of each": fnx.vmap(fnx.grad(f, argnums=1)),
        "of all": fnx.grad(over_all(f), argnums=1),
    }


def nbytes(plan_text):
    """The bytes that each step of a plan and of the plans in it touches."""
    return [int(n) for n in re.findall(r" (\d+) bytes$", plan_text, re.MULTILINE)]


@pytest.mark.parametrize("f", [one, nested, in_rounds, saved])
@pytest.mark.parametrize("way", ["of each", "of all"])
def test_no_step_touches_rows_that_no_round_has_filled(f, way):
    compiled = fnx.jit(gradients(f)[way])
    lowered = compiled.lower(CHOICES, X)
    found = compiled(CHOICES, X)
    alone = fnx.jit(fnx.grad(f, argnums=1))
    wanted = np.stack([alone(i, x) for i, x in zip(CHOICES, X, strict=True)])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    steps = nbytes("\n".join(lowered.as_text("plan").split("\n")[1:]))
    assert steps and max(steps) < ROWS


@pytest.mark.parametrize("way", ["of each", "of all"])
def test_memory_is_that_of_the_loops_alone(way):
    def planned(f):
        compiled = fnx.jit(gradients(f)[way]).lower(CHOICES, X).compile()
        return compiled.memory_analysis().peak_memory_in_bytes

    loops = planned(lambda i, x: counted(x).sum()) + planned(
        lambda i, x: converged(x).sum()
    )
    assert planned(one) < 1.1 * loops


# What `resource` knows is that of the process that started this one, if it was larger.
PROCESS = """
import numpy as np
import fnx
from tests.control.test_tapes import gradients, one
x = np.linspace(0.1, 1.2, 300, dtype=np.float32).reshape(100, 3)
choices = np.arange(100, dtype=np.int32) % 3
for gradient in gradients(one).values():
    print(np.abs(fnx.jit(gradient)(choices, x)).sum() > 0)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["VmHWM"].split()[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status")
def test_a_hundred_lanes_take_no_gigabytes():
    """Memory is reserved for 1.2 GB a residual, and left as it is."""
    command = [sys.executable, "-c", PROCESS]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    *ran, kilobytes = run.stdout.split()
    assert ran == ["True", "True"] and int(kilobytes) < 600_000


@pytest.mark.parametrize(
    "use, shown",
    [("fnx.jit(lambda x: f(x) + 1)", "4.0"), ("fnx.make_jaxpr(f)", "mul a 2.0")],
)
def test_a_jitted_function_is_traced_where_nothing_else_was(use, shown):
    """In a process that has loaded nothing of loops, branches and lanes."""
    code = f"import fnx\nf = fnx.jit(lambda x: x * 2)\nprint({use}(1.5))"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown in run.stdout
