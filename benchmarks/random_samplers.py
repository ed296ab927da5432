"""Random samples: plain ones, and those that are drawn until they are accepted.

Receives whether to be quick (smaller arrays), gives cases: a sampler compiled for a big
array, and mapped over many keys. fnx and JAX draw the same numbers. Next on the walk:
`reductions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both, on_arguments


@dataclass(frozen=True)
class Sampler:
    """A sampler, and the values of its parameters, which become whole arrays."""

    name: str
    values: tuple[float, ...] = ()
    label: str = ""
    tolerance: float = 1e-3


# Of 10 000 counts a few are others: where JAX accepts by its rounding (poisson), or by
# a tail of Stirling's formula that it takes at 9 for all that is larger (binomial).
LOOSE = 1.0


SAMPLERS = [
    Sampler("uniform"),
    Sampler("normal"),
    Sampler("gamma", (2.5,)),
    Sampler("gamma", (0.1,), "a=0.1"),
    Sampler("beta", (0.5, 2.0)),
    Sampler("poisson", (3.0,), "3"),
    Sampler("poisson", (20.0,), "20", LOOSE),
    Sampler("binomial", (20.0, 0.2), "n=20"),
    Sampler("binomial", (60.0, 0.3), "n=60", LOOSE),
]


def whole(sampler: Sampler, count: int) -> Build:
    """One key for an array of parameters."""

    def build(library: Any, inputs: Inputs) -> Run:
        draw = getattr(library.random, sampler.name)

        def sample(key: Any, *parameters: Any) -> Any:
            return draw(key, *parameters, shape=(count,))

        key = library.random.PRNGKey(0)
        return on_arguments(library.jit(sample), (key, *inputs))

    return build


def mapped(sampler: Sampler, keys: int, count: int) -> Build:
    """`vmap` over keys, each for a few samples."""

    def build(library: Any, inputs: Inputs) -> Run:
        draw = getattr(library.random, sampler.name)

        def sample(key: Any) -> Any:
            return draw(key, *sampler.values, shape=(count,))

        many = library.random.split(library.random.PRNGKey(0), keys)
        return on_arguments(library.jit(library.vmap(sample)), (many,))

    return build


def parameters(sampler: Sampler, count: int) -> Callable[..., Inputs]:
    """The parameters as arrays."""
    arrays = [np.full(count, value, np.float32) for value in sampler.values]
    return lambda rng: tuple(arrays)


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    count, keys = (1 << 16, 1 << 10) if quick else (1 << 20, 1 << 14)
    found = []
    for sampler in SAMPLERS:
        title = f"{sampler.name} {sampler.label}".strip()
        found += [
            Case(
                f"{title}, {count}",
                parameters(sampler, count),
                both(whole(sampler, count)),
                tolerance=sampler.tolerance,
                moved=4 * count,
            ),
            Case(
                f"{title}, vmap of {keys} keys, 16 each",
                lambda rng: (),
                both(mapped(sampler, keys, 16)),
                tolerance=sampler.tolerance,
                moved=64 * keys,
            ),
        ]
    return found
