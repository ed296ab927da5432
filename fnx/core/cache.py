"""How results that belong to a program are remembered.

Receives a function of a program and hashable arguments; gives one that computes each
result once. Most programs are equal whenever their structure is, and share one bounded
table. A *personal* program holds something that is equal only to itself (a user's
derivative rule, an array), so no other program will ever ask for its results: they are
kept with the program, and go when it goes. Next on the walk: `fnx.transforms`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

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
    """Decorates a function of a program, whose results are computed once."""
    shared = functools.lru_cache(maxsize=1024)(function)
    _shared.append(shared.cache_clear)

    @functools.wraps(function)
    def lookup(program: Program, *args: P.args, **kwargs: P.kwargs) -> R:
        if not program.personal:
            return shared(program, *args, **kwargs)  # type: ignore[arg-type]
        key = (function, args, tuple(kwargs.items()))
        if key not in program.derived:
            program.derived[key] = function(program, *args, **kwargs)
        result: R = program.derived[key]
        return result

    return lookup
