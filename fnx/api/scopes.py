"""named_scope and named_call: names for parts of a function.

A name is kept with the user's line of every operation inside, through all
transformations; programs (with their sources), plans and error texts show it.
Receives names; next on the walk: `inspect.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import ParamSpec, TypeVar

from fnx import errors
from fnx.api.arguments import check_callable, name_of
from fnx.core.trace import named

P = ParamSpec("P")
R = TypeVar("R")


class named_scope:
    """Names a part of a function: a context manager, or a decorator.

    Names nest: what is inside of `"layer1"` and `"attention"` is in
    `layer1/attention`. An fnx error that leaves the context gets a note with the name.
    Raises `ArgumentError` for a name that is no string.

    >>> import fnx, fnx.numpy as fnp
    >>> def f(x):
    ...     with fnx.named_scope("square"):
    ...         return x * x
    >>> fnx.make_jaxpr(f)(1.0).eqns[0].source.scope
    ('square',)
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            kind = type(name).__name__
            raise errors.ArgumentError(
                f"named_scope takes a name, got {name!r} of type {kind}."
            )
        self.name = name
        # One instance may be entered again while it is.
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        context = named(self.name)
        context.__enter__()
        self._entered.append(context)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered.pop().__exit__(None, None, None)
        if isinstance(error, errors.FnxError):
            error.add_note(f"in the scope {self.name!r}")

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, each call of which is in a scope of this name."""
        check_callable("named_scope", function)

        @functools.wraps(function)
        def scoped(*args: P.args, **kwargs: P.kwargs) -> R:
            with named_scope(self.name):
                return function(*args, **kwargs)

        return scoped


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """The function, in a scope of that name (by default the function's own).

    >>> import fnx
    >>> def square(x):
    ...     return x * x
    >>> fnx.make_jaxpr(fnx.named_call(square))(1.0).eqns[0].source.scope
    ('square',)
    """
    check_callable("named_call", fun)
    return named_scope(name_of(fun) if name is None else name)(fun)


__all__ = ["named_call", "named_scope"]
