"""debug.checks: a context in which what goes wrong raises.

Next on the walk: `keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fnx.api.checks import all_checks, kinds_of
from fnx.runtime.checks import checks_on


@contextmanager
def checks(*kinds: str) -> Iterator[None]:
    """A context in which operations and jitted functions are checked, and raise.

    `kinds` are of "index" (an index out of bounds), "division" (by zero), "nan" (one
    that was made of operands without one) and "user" (`fnx.checkify.check`, which
    raises in any case); all of them by default. `CheckError` says what went wrong
    first, and names the line. What is computed runs twice for this; to have errors as
    values, use `fnx.checkify.checkify`.

    Raises `OptionError` for a kind that there is not.

    >>> import fnx
    >>> import fnx.numpy as fnp
    >>> with fnx.debug.checks("index"):
    ...     fnx.jit(lambda x, i: x[i])(fnp.arange(3), 7)
    Traceback (most recent call last):
    fnx.errors.CheckError: jit of <lambda>: index 7 is out of bounds for axis 0 with ...
    """
    with checks_on(kinds_of("debug.checks", kinds or all_checks)):
        yield
