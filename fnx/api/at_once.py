"""Eager functions that NumPy computes in one go: what would be many operations.

Receives a public function (`fnx.numpy.bincount`) and what gives the same results for
NumPy arrays; gives a function that does the latter where it may. Many small operations
on a small array cost far more than the arithmetic; compiled code never comes here.
Next on the walk: `promote.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fnx.core.hooks import busy
from fnx.runtime import array as making
from fnx.runtime.array import ConcreteArray
from fnx.runtime.eager import ignore_errors, restore_errors

P = ParamSpec("P")
R = TypeVar("R")


def at_once(on_numpy: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function of arrays that is to be computed by NumPy eagerly.

    `on_numpy` gets the same arguments, arrays as NumPy arrays (which it may not write
    to), and gives an array, or a tuple of them, in memory of its own: what compiled
    code gives, up to the error of its sums. It gives `NotImplemented` for whatever it
    has no short way for, or fails: then the function itself is asked, which says what
    is wrong.

    Arrays of weak dtypes, on devices and under checks take the function's own way.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Any:
            if busy:
                return function(*args, **kwargs)
            token = ignore_errors()
            try:
                if kwargs:
                    named: Any = {name: _data(x) for name, x in kwargs.items()}
                    found = on_numpy(*map(_data, args), **named)
                else:
                    found = on_numpy(*map(_data, args))
            except (IndexError, TypeError, ValueError):
                found = NotImplemented
            finally:
                restore_errors(token)
            if found is NotImplemented:
                return function(*args, **kwargs)
            if type(found) is tuple:
                return tuple([making.from_numpy(x) for x in found])
            return making.from_numpy(found)

        return called

    return decorate


def _data(x: Any) -> Any:
    """The memory of an array of strong dtype on the host; anything else as it is."""
    if type(x) is ConcreteArray and not x.type.weak:
        return x._data
    return x


# Those of NumPy's own in which it computes as we do; not float16, which it rounds
# after each operation.
_DTYPES = frozenset(
    [np.dtype(c) for c in ("?", *np.typecodes["AllInteger"], "float32", "float64")]
)


def plain(*arrays: Any) -> bool:
    """Whether these are NumPy arrays of booleans, integers, float32 or float64."""
    for x in arrays:
        if type(x) is not np.ndarray or x.dtype not in _DTYPES:
            return False
    return True
