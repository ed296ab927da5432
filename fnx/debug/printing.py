"""debug.print, debug.log, debug.callback: what a program computes, while it runs.

Receives a format or a function, and arguments; binds a `debug_callback` equation with
the arrays among the arguments, to which the others are added again when it runs.
Next on the walk: `breakpoints.py`.
"""

from __future__ import annotations

import builtins
import logging
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from fnx import errors, tree
from fnx.api.arguments import as_array, check_callable, name_of
from fnx.control.call import spread
from fnx.control.callback import Arrays, Host, Types, debug_callback
from fnx.core.array import Array
from fnx.runtime.array import from_numpy

_LOGGER = logging.getLogger("fnx.debug")


@errors.api_boundary
def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Prints `fmt.format(*args, **kwargs)`, with the values of arrays at run time.

    Once each time the program comes to it: in every round of a loop, only in the branch
    that runs, once under `grad` (when the value is computed), and under `vmap` for one
    member after the other. Mapped branches and loops whose members go different ways
    run one member at a time if they print, so a print there makes them slower.

    Arguments are anything that can be formatted; arrays in them may be traced. Prints
    and other effects keep the order of the program, `ordered` or not.

    Raises `ArgumentError` for arguments that the format does not use, or lacks. (An
    f-string would be formatted while tracing, when there are no values.)

    >>> import fnx
    >>> @fnx.jit
    ... def f(x):
    ...     fnx.debug.print("x = {x}, twice {:.2f}", 2 * x, x=x)
    ...     return x + 1
    >>> y = f(1.5)
    x = 1.5, twice 3.00
    """
    _check_format("print", fmt, args, kwargs)

    def show(*args: Any, **kwargs: Any) -> None:
        # At once, so that lines of replicas stay apart.
        builtins.print(fmt.format(*args, **kwargs) + "\n", end="")

    # Arrays of fnx print as users know them, also those in trees.
    _call("print", show, args, kwargs, from_numpy)


@errors.api_boundary
def log(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """As `fnx.debug.print`, into Python's logs: the logger "fnx.debug", at level INFO.

    The record has the file and the line of the call, and the values at run time.

    >>> import fnx, logging, sys
    >>> logger = logging.getLogger("fnx.debug")
    >>> shown = logging.StreamHandler(sys.stdout)
    >>> logger.setLevel(logging.INFO)
    >>> logger.addHandler(shown)
    >>> y = fnx.jit(lambda x: fnx.debug.log("x = {}", x))(1.5)
    x = 1.5
    >>> logger.removeHandler(shown)
    >>> logger.setLevel(logging.NOTSET)
    """
    _check_format("log", fmt, args, kwargs)
    source = errors.user_source()
    file, line = ("", 0) if source is None else (source.file, source.line)

    def show(*args: Any, **kwargs: Any) -> None:
        if _LOGGER.isEnabledFor(logging.INFO):
            text = fmt.format(*args, **kwargs)
            record = _LOGGER.makeRecord(
                _LOGGER.name, logging.INFO, file, line, "%s", (text,), None
            )
            _LOGGER.handle(record)

    _call("log", show, args, kwargs, from_numpy)


@errors.api_boundary
def callback(
    callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any
) -> None:
    """Calls `callback(*args, **kwargs)` on the host when the program runs.

    As `fnx.debug.print`, with a function of your own: arrays among the arguments, and
    in trees of them, are read-only NumPy arrays then, everything else is passed on as
    it is. What the function returns is dropped; what it raises reaches the caller.

    >>> import fnx
    >>> losses = []
    >>> @fnx.jit
    ... def f(x):
    ...     fnx.debug.callback(lambda loss: losses.append(loss.item()), x * x)
    ...     return x
    >>> y = f(3.0)
    >>> losses
    [9.0]
    """
    check_callable("debug.callback", callback)
    _call(name_of(callback), callback, args, kwargs, _unchanged)


def _unchanged(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array


def _call(
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    shown: Callable[[np.ndarray[Any, Any]], Any],
) -> None:
    """Binds a call; only arrays become operands."""
    leaves, treedef = tree.flatten((args, kwargs))
    traced = [isinstance(x, Array | np.ndarray | np.generic) for x in leaves]
    rows = list(zip(leaves, traced, strict=True))
    fixed = [None if is_array else x for x, is_array in rows]
    arrays = [as_array(x, "debug", name) for x, is_array in rows if is_array]

    def run(values: Arrays, types: Types) -> Arrays:
        given = zip(
            spread([shown(x) for x in values], traced), fixed, traced, strict=True
        )
        merged = [value if is_array else x for value, x, is_array in given]
        again, named = cast(Any, treedef.unflatten(merged))
        function(*again, **named)
        return ()

    debug_callback(*arrays, host=Host(name, run), declared=(), members=())


# ---------------------------------------------------------------- the format


class _Unformatted(string.Formatter):
    """Looks up what a format asks for, but has no values to format."""

    def __init__(self) -> None:
        self.unused: list[str] = []

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(
        self, used_args: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        places = [f"number {n}" for n in range(len(args)) if n not in used_args]
        self.unused = places + [name for name in kwargs if name not in used_args]


def _check_format(
    asker: str, fmt: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if not isinstance(fmt, str):
        raise errors.ArgumentError(
            errors.explain(
                f"debug.{asker}: fmt must be a format string, got a "
                f"{type(fmt).__name__}",
                fix=f'write fnx.debug.{asker}("{{}}", x)',
            )
        )
    formatter = _Unformatted()
    try:
        formatter.vformat(fmt, args, kwargs)
    except (IndexError, KeyError) as error:
        (missing,) = error.args
        what = "more arguments" if isinstance(error, IndexError) else repr(missing)
        raise errors.ArgumentError(
            f"debug.{asker}: the format {fmt!r} asks for {what}, which was not given."
        ) from None
    except ValueError as error:
        raise errors.ArgumentError(
            f"debug.{asker}: the format {fmt!r}: {error}"
        ) from None
    if formatter.unused:
        raise errors.ArgumentError(
            errors.explain(
                f"debug.{asker}: the format {fmt!r} does not use "
                f"{', '.join(formatter.unused)}",
                "all arguments must be shown",
                "write {} or {name} in the format, which must be no f-string",
            )
        )
