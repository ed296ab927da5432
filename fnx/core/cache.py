"""How results that belong to a program are remembered.

Receives a function of a program and hashable arguments; gives one that computes each
result once. Most programs are equal whenever their structure is, and share one bounded
table. A *personal* program holds something that is equal only to itself (a user's
derivative rule, an array), so no other program will ever ask for its results: they are
kept with the program, and go when it goes. Next on the walk: `fnx.transforms`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from fnx.core.program import Program

P = ParamSpec("P")
R = TypeVar("R")


_shared: list[Callable[[], None]] = []


def clear_programs() -> None:
    """Forgets every transformed and compiled program."""
    for clear in _shared:
        clear()


def cached(
    function: Callable[Concatenate[Program, P], R],
) -> Callable[Concatenate[Program, P], R]:
    """Decorates a transformation, whose results are computed once.

    Programs share one if they are equal and come from the same lines: what is made of
    a program tells where it came from.
    """

    def at_lines(
        program: Program, lines: Any, /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        return function(program, *args, **kwargs)

    shared = functools.lru_cache(maxsize=1024)(at_lines)
    _shared.append(shared.cache_clear)

    @functools.wraps(function)
    def lookup(program: Program, *args: P.args, **kwargs: P.kwargs) -> R:
        if program.personal:
            return _kept(function, program, args, kwargs)
        return shared(program, program.lines, *args, **kwargs)  # type: ignore[arg-type]

    return lookup


def cached_by_structure(
    function: Callable[Concatenate[Program, P], R],
) -> Callable[Concatenate[Program, P], R]:
    """Decorates a function of a program that equal programs share the results of."""
    shared = functools.lru_cache(maxsize=1024)(function)
    _shared.append(shared.cache_clear)

    @functools.wraps(function)
    def lookup(program: Program, *args: P.args, **kwargs: P.kwargs) -> R:
        if program.personal:
            return _kept(function, program, args, kwargs)
        return shared(program, *args, **kwargs)  # type: ignore[arg-type]

    return lookup


def _kept(
    function: Callable[..., R], program: Program, args: Any, kwargs: Mapping[str, Any]
) -> R:
    """What a personal program remembers of a function of it."""
    key = (function, args, tuple(kwargs.items()))
    if key not in program.derived:
        program.derived[key] = function(program, *args, **kwargs)
    result: R = program.derived[key]
    return result
