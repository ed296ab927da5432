"""Loops: many short rounds, recurrent networks, iterations of many lanes, an ODE.

Receives whether to be quick (fewer rounds), gives cases: each loop and, where it is
differentiated in practice, its gradient. fnx and JAX run the same text, but for the
gradient of the ODE: JAX has none of a `while_loop`, so it scans over a bounded number
of steps, and skips those that come after the end. Next on the walk: `dispatch.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both, on_arguments

F32 = np.float32
STEPS, BATCH, WIDTH = 128, 32, 128
MOST_STEPS = 64


def jitted(make: Callable[[Any], Callable[..., Any]]) -> dict[str, Build]:
    """The jitted function that `make(library)` gives."""

    def build(library: Any, inputs: Inputs) -> Run:
        return on_arguments(library.jit(make(library)), inputs)

    return both(build)


def gradient(make: Callable[[Any], Callable[..., Any]]) -> dict[str, Build]:
    """The jitted gradient, by the first argument, of the sum of all that it gives."""

    def build(library: Any, inputs: Inputs) -> Run:
        return on_arguments(library.jit(slope(library, make(library))), inputs)

    return both(build)


def slope(library: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient, by the first argument, of the sum of all that a function gives."""

    def total(*args: Any) -> Any:
        leaves = library.tree.leaves(function(*args))
        return sum(leaf.sum() for leaf in leaves)

    gradient: Callable[..., Any] = library.grad(total)
    return gradient


# ---------------------------------------------------------------- short rounds


def lorenz(library: Any, rounds: int) -> Callable[..., Any]:
    """Euler steps of the Lorenz system, a carry of three scalars.

    Rho is 14: above 24.74 the system is chaotic, and outputs could not be compared.
    """

    def body(state: Any, _: Any) -> Any:
        x, y, z = state
        dt = F32(0.001)
        x_next = x + dt * F32(10) * (y - x)
        y_next = y + dt * (x * (F32(14) - z) - y)
        return (x_next, y_next, z + dt * (x * y - F32(8 / 3) * z)), None

    return lambda *state: library.lax.scan(body, state, None, rounds)[0]


def matvec(library: Any, rounds: int) -> Callable[..., Any]:
    """A 3×3 matrix applied again and again."""
    return lambda v, a: library.lax.scan(lambda v, _: (a @ v, None), v, None, rounds)[0]


def scalars(library: Any, rounds: int) -> Callable[..., Any]:
    """A carry of 50 scalars."""

    def body(carry: Any, _: Any) -> Any:
        return library.tree.map(lambda x: x * F32(0.999) + F32(0.1), carry), None

    return lambda carry: library.lax.scan(body, carry, None, rounds)[0]


def rotation(rng: np.random.Generator) -> Inputs:
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    return rng.standard_normal(3).astype(F32), turn.astype(F32)


# ---------------------------------------------------------------- recurrent networks


def rnn(library: Any) -> Callable[..., Any]:
    def run(weights: Any, series: Any) -> Any:
        w, u, b = weights

        def body(h: Any, x: Any) -> Any:
            h = library.numpy.tanh(h @ w + x @ u + b)
            return h, h

        return library.lax.scan(body, library.numpy.zeros((BATCH, WIDTH), F32), series)

    return run


def lstm(library: Any) -> Callable[..., Any]:
    def run(weights: Any, series: Any) -> Any:
        w, u, b = weights
        sigmoid, tanh = library.nn.sigmoid, library.numpy.tanh

        def body(state: Any, x: Any) -> Any:
            h, c = state
            parts = library.numpy.split(h @ w + x @ u + b, 4, axis=1)
            c = sigmoid(parts[0]) * c + sigmoid(parts[1]) * tanh(parts[2])
            h = sigmoid(parts[3]) * tanh(c)
            return (h, c), h

        zeros = library.numpy.zeros((BATCH, WIDTH), F32)
        return library.lax.scan(body, (zeros, zeros), series)

    return run


def network(gates: int) -> Callable[[np.random.Generator], Inputs]:
    def draw(rng: np.random.Generator) -> Inputs:
        def normal(*shape: int) -> Any:
            return rng.standard_normal(shape, dtype=F32) * F32(0.05)

        weights = normal(WIDTH, gates * WIDTH), normal(WIDTH, gates * WIDTH)
        series = rng.standard_normal((STEPS, BATCH, WIDTH), dtype=F32)
        return (*weights, normal(gates * WIDTH)), series

    return draw


# ---------------------------------------------------------------- iterations


def newton(library: Any) -> Callable[..., Any]:
    """Square roots of many lanes, each until it has converged."""

    def root(a: Any) -> Any:
        def goes_on(state: Any) -> Any:
            x, before = state
            return library.numpy.abs(x - before) > F32(1e-6) * x

        def body(state: Any) -> Any:
            x, _ = state
            return F32(0.5) * (x + a / x), x

        return library.lax.while_loop(goes_on, body, (a, a * 2))[0]

    return library.vmap(root)


# ---------------------------------------------------------------- ODE


def runge_kutta(library: Any, bounded: bool) -> Callable[..., Any]:
    """Van der Pol's oscillator by Heun-Euler steps of adaptive size (order 2 and 1)."""
    fnp, lax = library.numpy, library.lax

    def field(y: Any, mu: Any) -> Any:
        return fnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    def goes_on(state: Any) -> Any:
        return state[0] < F32(1.0)

    def run(mu: Any, y: Any) -> Any:
        def step(state: Any) -> Any:
            t, h, y = state
            h = fnp.minimum(h, F32(1.0) - t)
            first = field(y, mu)
            euler = y + h * first
            heun = y + h / 2 * (first + field(euler, mu))
            error = fnp.max(fnp.abs(heun - euler)) + F32(1e-9)
            accepted = error <= F32(1e-3)
            factor = fnp.clip(F32(0.9) * fnp.sqrt(F32(1e-3) / error), 0.2, 5.0)
            return (
                fnp.where(accepted, t + h, t),
                h * factor,
                fnp.where(accepted, heun, y),
            )

        start = (F32(0), F32(0.05), y)
        if not bounded:
            return lax.while_loop(goes_on, step, start)[2]

        def body(state: Any, _: Any) -> Any:
            return lax.cond(goes_on(state), step, lambda s: s, state), None

        return lax.scan(body, start, None, MOST_STEPS)[0][2]

    return run


def ode(rng: np.random.Generator) -> Inputs:
    return F32(1 + 0.1 * rng.random()), np.array([2.0, 0.0], F32)


def ode_gradient() -> dict[str, Build]:
    fnx_way = gradient(lambda library: runge_kutta(library, bounded=False))["fnx"]
    jax_way = gradient(lambda library: runge_kutta(library, bounded=True))["jax"]
    return {"fnx": fnx_way, "jax": jax_way}


# ---------------------------------------------------------------- cases


def three(rng: np.random.Generator) -> Inputs:
    """Scalars near 1."""
    return tuple(F32(1 + rng.random() / 10) for _ in range(3))


def fifty(rng: np.random.Generator) -> Inputs:
    """A list of scalars."""
    return ([F32(x) for x in rng.random(50)],)


def lanes(rng: np.random.Generator) -> Inputs:
    """Numbers from 1 to 101."""
    return (rng.random(10**4, dtype=F32) * F32(100) + F32(1),)


def cases(quick: bool) -> list[Case]:
    """The cases, some with their gradients."""
    long, short = (10**4, 10**3) if quick else (10**6, 10**5)

    def a_matvec(library: Any) -> Callable[..., Any]:
        return matvec(library, long)

    def a_carry(library: Any) -> Callable[..., Any]:
        return scalars(library, long)

    loose = {"tolerance": 1e-3}
    return [
        Case(
            f"Lorenz, {short} steps",
            three,
            jitted(lambda library: lorenz(library, short)),
            **loose,
        ),
        Case(f"3x3 product, {long} rounds", rotation, jitted(a_matvec), **loose),
        Case("  gradient", rotation, gradient(a_matvec), **loose),
        Case(f"50 scalars, {long} rounds", fifty, jitted(a_carry), **loose),
        Case("  gradient", fifty, gradient(a_carry), **loose),
        Case("Newton, 10000 lanes", lanes, jitted(newton), **loose),
        Case("RNN", network(1), jitted(rnn), **loose),
        Case("  gradient", network(1), gradient(rnn), **loose),
        Case("LSTM", network(4), jitted(lstm), **loose),
        Case("  gradient", network(4), gradient(lstm), **loose),
        Case(
            "adaptive Runge-Kutta",
            ode,
            jitted(lambda library: runge_kutta(library, bounded=False)),
            **loose,
        ),
        Case("  gradient", ode, ode_gradient(), **loose),
    ]
