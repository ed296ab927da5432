"""From a new function to its first result: tracing, transforming and compiling.

Receives whether to be quick (smaller models, shorter loops), gives cases: first calls
of small functions, of training steps, of `scan` and `while_loop`, and of Python loops
that a trace unrolls; then the exponents with which the time grows with a loop's length.
No cache helps: every call is of a new function with a new constant, after the library's
caches were emptied. Next on the walk: `process.py`.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import control, gpt, mlp
from benchmarks.harness import Build, Case, Inputs, Row, Run, both, normal, normals

# makes a new function of the library, of a number that is nearly 1
Make = Callable[[Any, float], Callable[..., Any]]


def first_call(make: Make, prepare: Any = lambda library, inputs: inputs) -> Build:
    """Build a run that makes a new function, compiles it and calls it.

    The number differs by a millionth from call to call; outputs are compared with a
    tolerance above that. `prepare(library, inputs)` gives the arguments.
    """

    def build(library: Any, inputs: Inputs) -> Run:
        arguments = prepare(library, inputs)

        def run() -> Any:
            function = make(library, 1 + 1e-6 * random.random())
            return library.jit(function)(*arguments)

        return run

    return build


def forget(library: Any) -> None:
    """Empty the library's caches; those on disk are off, see `__main__.py`."""
    library.clear_caches()


def compiling(name: str, inputs: Any, build: Build) -> Case:
    # Adam's first step divides gradients by their size, also those that are noise.
    return Case(name, inputs, both(build), tolerance=1e-2, once=True, before=forget)


# ---------------------------------------------------------------- functions


def scaled(library: Any, factor: float) -> Any:
    return lambda x: x * factor


def chain(library: Any, factor: float) -> Any:
    xp = library.numpy
    return lambda x: xp.tanh(x) * xp.exp(-x * x) + factor * xp.sin(x)


def training_step(loss_function: Any) -> Make:
    """A function that makes the Adam step of a model; it gives the loss alone."""

    def make(library: Any, factor: float) -> Any:
        update = functools.partial(mlp.adam, rate=mlp.RATE * factor)
        return mlp.step(library, loss_function(library), update)

    return make


def with_state(library: Any, inputs: Inputs) -> Inputs:
    params, *batch = inputs
    return params, mlp.initial_state(library, params), *batch


# ---------------------------------------------------------------- scan, while_loop

# A loop's rounds take no part: there are few, and the first call runs them.
ROUNDS = 100


def factored(make: Callable[[Any], Callable[..., Any]], gradient: bool = False) -> Make:
    """A function that makes a loop, or its gradient, times a number."""

    def made(library: Any, factor: float) -> Callable[..., Any]:
        function = make(library)
        if gradient:
            function = control.slope(library, function)
        return lambda *args: library.tree.map(lambda y: y * factor, function(*args))

    return made


def scan_cases() -> list[Case]:
    """The loops of `control.py`, and their gradients."""
    loops: list[tuple[str, Any, Any, Any]] = [
        ("scan: Lorenz", control.three, lambda f: control.lorenz(f, ROUNDS), None),
        ("scan: 50 scalars", control.fifty, lambda f: control.scalars(f, ROUNDS), None),
        ("scan: RNN", control.network(1), control.rnn, control.rnn),
        ("scan: LSTM", control.network(4), control.lstm, control.lstm),
        ("while_loop: Newton", control.lanes, control.newton, None),
        (
            "while_loop: Runge-Kutta",
            control.ode,
            lambda library: control.runge_kutta(library, bounded=False),
            # JAX has no reverse mode of a while_loop.
            lambda library: control.runge_kutta(
                library, bounded=library.__name__ == "jax"
            ),
        ),
    ]
    cases = []
    for name, inputs, make, differentiated in loops:
        cases.append(compiling(name, inputs, first_call(factored(make))))
        if differentiated is not None:
            slope = first_call(factored(differentiated, gradient=True))
            cases.append(compiling(f"{name}, gradient", inputs, slope))
    return cases


# ---------------------------------------------------------------- loops


def elementwise(library: Any, x: Any, w: Any) -> Any:
    return library.numpy.sin(x) * w


def product(library: Any, x: Any, w: Any) -> Any:
    return library.numpy.sin(x @ w)


BODIES = {"sin(x) * w + i": elementwise, "sin(x @ w) + i": product}


def loop(body: Any, length: int, gradient: bool) -> Make:
    """A function that makes an unrolled loop, or its gradient by w."""

    def make(library: Any, factor: float) -> Any:
        def function(x: Any, w: Any) -> Any:
            for i in range(length):
                x = body(library, x, w) * factor + 0.01 * i
            return x.sum()

        return library.grad(function, argnums=1) if gradient else function

    return make


def loop_name(body: str, gradient: bool, length: int) -> str:
    return f"{'gradient of ' if gradient else ''}{body}, {length} times"


def contracting(rng: np.random.Generator) -> Inputs:
    """Small matrices with which both bodies forget errors instead of growing them."""
    x, w = normals((8, 8), (8, 8))(rng)
    return x, w / 8


def loop_case(name: str, gradient: bool, length: int) -> Case:
    made = compiling(
        loop_name(name, gradient, length),
        contracting,
        first_call(loop(BODIES[name], length, gradient)),
    )
    columns = dict(made.columns)
    if gradient and length >= SLOW and BODIES[name] is product:
        del columns["jax"]  # takes a minute
    return replace(made, columns=columns, single=length >= SLOW)


LENGTHS = (10, 100, 1000)
SLOW = 1000


def remarks(rows: Sequence[Row]) -> list[str]:
    """The exponents p of time ~ length ** p, fitted to the loops of a body."""
    measured = {row.name: row for row in rows}
    said = []
    for body, gradient in itertools.product(BODIES, (False, True)):
        exponents = []
        for column in ("fnx", "jax"):
            points = [
                (math.log(length), math.log(seconds))
                for length in LENGTHS
                if (row := measured.get(loop_name(body, gradient, length)))
                and (seconds := row.median(column))
            ]
            if len(points) > 1:
                lengths, times = zip(*points, strict=True)
                slope = np.polyfit(lengths, times, 1)[0]
                exponents.append(f"{column} length^{slope:.2f}")
        name = loop_name(body, gradient, LENGTHS[0]).rpartition(",")[0]
        said.append(f"{name}: time grows as {', '.join(exponents)}")
    return said


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    steps = (
        ("MLP Adam step", mlp.data, mlp.loss_function),
        ("GPT Adam step", gpt.data(*gpt.size(quick)), gpt.loss_function),
    )
    return [
        compiling("x * 2", normal(1000), first_call(scaled)),
        compiling("tanh-exp-sin chain", normal(1000), first_call(chain)),
        *(
            compiling(name, data, first_call(training_step(loss), with_state))
            for name, data, loss in steps
        ),
        *scan_cases(),
        *itertools.starmap(
            loop_case,
            itertools.product(BODIES, (False, True), LENGTHS[:2] if quick else LENGTHS),
        ),
    ]
