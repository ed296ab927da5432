"""Functions with control flow, each beside the same written out in Python.

Both take one float64 array of three elements, and give one; the plain one chooses and
loops in Python, on values that `take` reads, so that it has no control flow primitive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.tree import leaves as tree_leaves
from fnx.tree import map as tree_map

ROWS = np.arange(12.0).reshape(4, 3) * 0.1 - 0.4
X = np.array([0.5, 1.1, 1.5])


@dataclass(frozen=True)
class Flow:
    """A function with control flow; `plain(x, value)` gets the value of x, too."""

    name: str
    function: Callable[[Any], Any]
    plain: Callable[[Any, np.ndarray], Any]


def scanned(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        return fnp.sin(carry) * x + row, carry * row

    last, rows = lax.scan(body, x, ROWS)
    return last + rows.sum(0)


def scanned_plain(x: Any, value: np.ndarray) -> Any:
    carry, total = x, 0.0
    for row in ROWS:
        carry, total = fnp.sin(carry) * x + row, total + carry * row
    return carry + total


def backwards(x: Any) -> Any:
    """A carry that is a tree, one part of which never changes, and unrolled rounds."""

    def body(carry: Any, row: Any) -> Any:
        state = carry["a"] * row["r"] + carry["w"]
        return {"a": state, "w": carry["w"]}, (None, state * 2)

    begin = {"a": x, "w": fnp.cos(x)}
    last, (_, rows) = lax.scan(body, begin, {"r": ROWS}, reverse=True, unroll=3)
    return last["a"] * rows[1] + rows[3]


def backwards_plain(x: Any, value: np.ndarray) -> Any:
    state, w, rows = x, fnp.cos(x), {}
    for i in reversed(range(4)):
        state = state * ROWS[i] + w
        rows[i] = state * 2
    return state * rows[1] + rows[3]


def chosen(x: Any) -> Any:
    return lax.cond(
        x.sum() > 3.0,
        lambda y: fnp.sin(y) * y,
        lambda y: y**2 + fnp.cos(y[::-1]) * x,
        x,
    )


def chosen_plain(x: Any, value: np.ndarray) -> Any:
    if value.sum() > 3.0:
        return fnp.sin(x) * x
    return x**2 + fnp.cos(x[::-1]) * x


def switched(x: Any) -> Any:
    branches = [lambda y: fnp.sin(y), lambda y: fnp.dot(y, y) * y, lambda y: 1.0 * y]
    return lax.switch(x.sum().astype(np.int32), branches, x) * x


def switched_plain(x: Any, value: np.ndarray) -> Any:
    number = min(max(int(value.sum()), 0), 2)
    return [fnp.sin(x), fnp.dot(x, x) * x, x][number] * x


def repeated(x: Any) -> Any:
    def body(state: Any) -> Any:
        y, count = state
        return y * 1.5 + fnp.sin(y) * x, count + 1

    def goes_on(state: Any) -> Any:
        return (abs(state[0]).sum() < 20) & (state[1] < 7)

    y, _ = lax.while_loop(goes_on, body, (x, 0))
    return y * x


def repeated_plain(x: Any, value: np.ndarray) -> Any:
    y, at, count = x, value, 0
    while abs(at).sum() < 20 and count < 7:
        y, at = y * 1.5 + fnp.sin(y) * x, at * 1.5 + np.sin(at) * value
        count += 1
    return y * x


def counted(x: Any) -> Any:
    """Bounds that depend on the argument, and so a loop of unknown length."""
    upper = abs(x).sum().astype(np.int32) + 1
    return lax.fori_loop(1, upper, lambda i, v: v * x + fnp.cos(v) * i, x)


def counted_plain(x: Any, value: np.ndarray) -> Any:
    v = x
    for i in range(1, int(abs(value).sum()) + 1):
        v = v * x + fnp.cos(v) * i
    return v


def mapped(x: Any) -> Any:
    return lax.map(lambda r: fnp.sin(r) * x.sum(), x, batch_size=2)


def mapped_plain(x: Any, value: np.ndarray) -> Any:
    return fnp.sin(x) * x.sum()


def combined(x: Any) -> Any:
    return lax.associative_scan(lambda a, b: a * b, x, reverse=True)


def combined_plain(x: Any, value: np.ndarray) -> Any:
    return fnp.stack([x[0] * x[1] * x[2], x[1] * x[2], x[2]])


def nested(x: Any) -> Any:
    """A branch in a loop, and a loop in the branch."""

    def body(carry: Any, row: Any) -> Any:
        def loop(y: Any) -> Any:
            return lax.fori_loop(0, 3, lambda i, v: v + fnp.sin(v) * row, y)

        carry = lax.cond(carry.sum() > 3.0, lambda y: y * 0.5, loop, carry)
        return carry, (carry * 2).sum()

    last, rows = lax.scan(body, x, x)
    return last * rows


def nested_plain(x: Any, value: np.ndarray) -> Any:
    carry, at, rows = x, value, []
    for i in range(3):
        if at.sum() > 3.0:
            carry, at = carry * 0.5, at * 0.5
        else:
            for _ in range(3):
                carry = carry + fnp.sin(carry) * x[i]
                at = at + np.sin(at) * value[i]
        rows.append((carry * 2).sum())
    return carry * fnp.stack(rows)


def while_in_scan(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        grown = lax.while_loop(
            lambda y: abs(y).sum() < 5.0, lambda y: y * 1.7 + fnp.cos(y) * row, carry
        )
        return fnp.tanh(grown) * x, grown.sum()

    last, rows = lax.scan(body, x, ROWS)
    return last * rows.sum()


def while_in_scan_plain(x: Any, value: np.ndarray) -> Any:
    carry, at, total = x, value, 0.0
    for row in ROWS:
        while abs(at).sum() < 5.0:
            carry = carry * 1.7 + fnp.cos(carry) * row
            at = at * 1.7 + np.cos(at) * row
        total = total + carry.sum()
        carry, at = fnp.tanh(carry) * x, np.tanh(at) * value
    return carry * total


def matrix_of(x: Any) -> list[list[Any]]:
    """A matrix without symmetry, with a heavy diagonal."""
    return [
        [x[0] * x[0] + 4.0, 0.5, x[1]],
        [fnp.sin(x[2]), 5.0 + x[1] * x[1], 0.3],
        [0.2, x[0], 4.0 + fnp.cos(x[2])],
    ]


def eliminated(a: list[list[Any]], b: list[Any]) -> list[Any]:
    """The solution of a system of three equations, row by row."""
    rows = [[*row, right] for row, right in zip(a, b, strict=True)]
    for i in range(3):
        for j in range(3):
            if i != j:
                factor = rows[j][i] / rows[i][i]
                pairs = zip(rows[j], rows[i], strict=True)
                rows[j] = [p - factor * q for p, q in pairs]
    return [rows[i][3] / rows[i][i] for i in range(3)]


def relaxed(matvec: Any, b: Any) -> Any:
    """A solver for heavy diagonals, with an end that depends on the values."""

    def step(state: Any) -> Any:
        x, _, count = state
        r = tree_map(lambda p, q: p - q, b, matvec(x))
        return tree_map(lambda p, q: p + q / 6.0, x, r), r, count + 1

    def goes_on(state: Any) -> Any:
        size = sum(abs(leaf).sum() for leaf in tree_leaves(state[1]))
        return (size > 1e-14) & (state[2] < 500)

    start = tree_map(lambda leaf: leaf * 0.0, b)
    return lax.while_loop(goes_on, step, (start, b, 0))[0]


def solved(x: Any) -> Any:
    """A linear system between trees, whose matrix and right side depend on x."""

    def matvec(v: Any) -> Any:
        (first, second), (third,) = v["a"], v["b"]
        rows = matrix_of(x)
        found = [r[0] * first + r[1] * second + r[2] * third for r in rows]
        return {"a": fnp.stack(found[:2]), "b": found[2][None]}

    b = {"a": fnp.cos(x[:2]), "b": x[2:] * x[:1]}
    found = lax.custom_linear_solve(matvec, b, relaxed, relaxed)
    return fnp.concatenate([found["a"], found["b"]]) * x


def solved_plain(x: Any, value: np.ndarray) -> Any:
    b = [fnp.cos(x[0]), fnp.cos(x[1]), x[2] * x[0]]
    return fnp.stack(eliminated(matrix_of(x), b)) * x


def rooted(x: Any) -> Any:
    """A root that is found by iteration, whose equation depends on x."""

    def f(z: Any) -> Any:
        return 2.0 * z + fnp.sin(z) * x[::-1] * 0.2 - fnp.cos(x)

    def iterate(f: Any, z: Any) -> Any:
        def goes_on(state: Any) -> Any:
            return (abs(f(state[0])).sum() > 1e-15) & (state[1] < 200)

        return lax.while_loop(
            goes_on, lambda s: (s[0] - f(s[0]) / 2, s[1] + 1), (z, 0)
        )[0]

    def tangent(g: Any, y: Any) -> Any:
        return lax.custom_linear_solve(g, y, relaxed, relaxed)

    return lax.custom_root(f, x * 0.1, iterate, tangent) * x


def rooted_plain(x: Any, value: np.ndarray) -> Any:
    z = fnp.cos(x) / 2
    for _ in range(8):  # Newton's method: the equations are apart from each other
        slope = 2.0 + fnp.cos(z) * x[::-1] * 0.2
        z = z - (2.0 * z + fnp.sin(z) * x[::-1] * 0.2 - fnp.cos(x)) / slope
    return z * x


FLOWS = [
    Flow("scan", scanned, scanned_plain),
    Flow("scan backwards", backwards, backwards_plain),
    Flow("cond", chosen, chosen_plain),
    Flow("switch", switched, switched_plain),
    Flow("while_loop", repeated, repeated_plain),
    Flow("fori_loop", counted, counted_plain),
    Flow("map", mapped, mapped_plain),
    Flow("associative_scan", combined, combined_plain),
    Flow("nested", nested, nested_plain),
    Flow("while in scan", while_in_scan, while_in_scan_plain),
    Flow("custom_linear_solve", solved, solved_plain),
    Flow("custom_root", rooted, rooted_plain),
]

STACK = np.stack([X, 2 * X, -X, 0.1 * X])


def total(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A scalar function of another one's results, each with a weight of its own."""

    def scalar(x: Any) -> Any:
        y = f(x)
        return (y * np.cos(np.arange(y.size)).reshape(y.shape)).sum()

    return scalar


# A name, what it makes of a function of one member, and whether it maps a stack.
TRANSFORMS: dict[str, tuple[Callable[[Callable[[Any], Any]], Any], bool]] = {
    "plain": (lambda f: f, False),
    "jit": (fnx.jit, False),
    "jvp": (lambda f: lambda x: fnx.jvp(f, (x,), (x * x + 1,))[1], False),
    "grad": (lambda f: fnx.grad(total(f)), False),
    "jacfwd": (fnx.jacfwd, False),
    "jacrev": (fnx.jacrev, False),
    "hessian": (lambda f: fnx.hessian(total(f)), False),
    "grad of grad": (lambda f: fnx.grad(total(fnx.grad(total(f)))), False),
    "jit of grad": (lambda f: fnx.jit(fnx.grad(total(f))), False),
    "grad of jit": (lambda f: fnx.grad(total(fnx.jit(f))), False),
    "jvp of grad of jvp": (
        lambda f: (
            lambda x: fnx.jvp(
                fnx.grad(total(lambda y: fnx.jvp(f, (y,), (y * y,))[1])), (x,), (x + 1,)
            )[1]
        ),
        False,
    ),
    "vmap": (lambda f: f, True),
    "vmap of grad": (lambda f: fnx.grad(total(f)), True),
    "vmap of jvp": (lambda f: lambda x: fnx.jvp(f, (x,), (x * x + 1,))[1], True),
    "vmap of grad of grad": (lambda f: fnx.grad(total(fnx.grad(total(f)))), True),
}
