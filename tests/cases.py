"""Generators of inputs for every primitive: what `test_primitives.py` runs over.

A `Case` is one valid call of a primitive, a `BadCase` one that must raise. Each file
`cases_*.py` beside this one registers the cases of one module of `fnx/ops`; a primitive
without cases fails the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One valid call: `args(rng)` makes the NumPy arrays (or Python scalars).

    `smooth` lists the arguments at which the primitive is differentiable near these
    inputs (checked against differences); `linear` sets of arguments in which it is
    linear with the others fixed (checked by the adjoint identity). `ulp` bounds the
    compiled result's distance from the reference.
    """

    primitive: str
    label: str
    args: Callable[[np.random.Generator], Arrays]
    params: Mapping[str, Any] = field(default_factory=dict)
    smooth: tuple[int, ...] = ()
    linear: tuple[tuple[int, ...], ...] = ()
    ulp: float = 4
    oracle: Callable[..., Any] | None = None

    @property
    def id(self) -> str:
        """The name of the case in test reports."""
        return f"{self.primitive}-{self.label}"


@dataclass(frozen=True)
class BadCase:
    """One invalid call, the error that it must raise and a pattern of its message."""

    primitive: str
    label: str
    args: Callable[[np.random.Generator], Arrays]
    error: type[Exception]
    match: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name of the case in test reports."""
        return f"{self.primitive}-{self.label}"


CASES: list[Case] = []
BAD_CASES: list[BadCase] = []
