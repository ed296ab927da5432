"""What fusing elementwise operations into one loop gives, and what compiling it costs.

Receives whether to be quick (leaves out the largest arrays), gives cases: a chain of
transcendental functions, a polynomial that only the memory limits, and the time from a
new function to its first result. Next on the walk: `reductions.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Case, Inputs, Run, everywhere, namespace, normal


def chain(xp: Any) -> Any:
    return lambda x: xp.tanh(x) * xp.exp(-x * x) + 0.5 * xp.sin(x)


def polynomial(xp: Any) -> Any:
    return lambda x: (x * 2 + 1) * x


def scaled(xp: Any, factor: float) -> Any:
    return lambda x: x * factor


def scaled_chain(xp: Any, factor: float) -> Any:
    return lambda x: xp.tanh(x) * xp.exp(-x * x) + factor * xp.sin(x)


def first_call(make: Callable[[Any, float], Any]) -> Callable[[Any, Inputs], Run]:
    """Build a run that makes a new function, compiles it and calls it.

    The factor differs by a millionth from call to call, so that no cache has the
    function; outputs are compared with a tolerance above that.
    """

    def build(library: Any, inputs: Inputs) -> Run:
        (x,) = inputs

        def run() -> Any:
            function = make(namespace(library), 1 + 1e-6 * random.random())
            return library.jit(function)(x)

        return run

    return build


def forget(library: Any) -> None:
    """Empty the library's caches of compiled functions."""
    library.clear_caches()


def compiling(name: str, make: Callable[[Any, float], Any]) -> Case:
    return Case(
        name,
        normal(1000),
        dict.fromkeys(("fnx", "jax"), first_call(make)),
        tolerance=1e-4,
        once=True,
        before=forget,
    )


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    sizes = {"1e4": 10**4, "1e6": 10**6} | ({} if quick else {"1e7": 10**7})
    made = []
    for title, make in (("tanh-exp-sin chain", chain), ("(x*2+1)*x", polynomial)):
        for text, n in sizes.items():
            columns = everywhere(make)
            made.append(Case(f"{title}, {text}", normal(n), columns, moved=8 * n))
    return [
        *made,
        compiling("first call of x*2", scaled),
        compiling("first call of the chain", scaled_chain),
    ]
