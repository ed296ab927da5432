"""checkify: errors as values, for functions whose arrays have no values yet.

Receives a function; gives one that also returns an `Error`, a tree of arrays that goes
through every transformation, and says outside of them what went wrong first. `check`
is how users ask for something. Next on the walk: `callbacks.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    as_array,
    call_names,
    check_callable,
    name_of,
    trace_tree,
)
from fnx.control.call import call
from fnx.control.check import Message, Site
from fnx.control.check import check as check_
from fnx.control.findings import Kinds, check_program
from fnx.control.held import parted
from fnx.core.array import Array
from fnx.core.faults import DIVISION, INDEX, KINDS, NAN, USER
from fnx.core.trace import Tracer
from fnx.ops.elementwise import ne
from fnx.ops.shape import scalar
from fnx.tree_nodes import register_pytree_node_class

user_checks: Kinds = frozenset({USER})
nan_checks: Kinds = frozenset({NAN})
index_checks: Kinds = frozenset({INDEX})
div_checks: Kinds = frozenset({DIVISION})
float_checks: Kinds = nan_checks | div_checks
automatic_checks: Kinds = float_checks | index_checks
all_checks: Kinds = automatic_checks | user_checks

_MOST_LANES = 8


@register_pytree_node_class
class Error:
    """What went wrong first, if anything did: a tree of arrays.

    After `vmap` it has a leading axis, and each member an error of its own.
    """

    __slots__ = ("_code", "_shown", "_sites")

    def __init__(
        self, code: Any, shown: tuple[Any, ...], sites: tuple[Site, ...]
    ) -> None:
        self._code = code
        self._shown = shown
        self._sites = sites

    def tree_flatten(self) -> tuple[Any, Any]:
        """The code and what the sites show are children."""
        return (self._code, self._shown), self._sites

    @classmethod
    def tree_unflatten(cls, sites: tuple[Site, ...], children: Any) -> Error:
        """An error of whatever stands for the arrays."""
        code, shown = children
        return cls(code, shown, sites)

    def get(self) -> str | None:
        """What went wrong, or `None`; a line for each member that failed, up to 8.

        Raises `TracerValueError` inside a transformation, where that is not known.
        """
        if not self._sites:
            return None
        codes = np.asarray(self._code)
        if not codes.ndim:
            return self._text((), int(codes)) if codes else None
        failed = np.argwhere(codes)
        lines = []
        for place in [tuple(map(int, row)) for row in failed[:_MOST_LANES]]:
            where = ", ".join(map(str, place))
            text = self._text(place, int(codes[place]))
            lines.append(f"at mapped index {where}: {text}")
        if len(failed) > _MOST_LANES:
            lines.append(f"and {len(failed) - _MOST_LANES} more")
        return "\n".join(lines) or None

    def _text(self, place: tuple[int, ...], code: int) -> str:
        """What the site of a code says of one member."""
        start = 0
        for site in self._sites[: code - 1]:
            start += len(site.types)
        site = self._sites[code - 1]
        arrays = self._shown[start : start + len(site.types)]
        return site.shown([np.asarray(x)[place] for x in arrays])

    def throw(self) -> None:
        """Raises `CheckError` if anything went wrong."""
        text = self.get()
        if text is not None:
            raise errors.CheckError(text)

    def __repr__(self) -> str:
        if not isinstance(self._code, Array) or isinstance(self._code, Tracer):
            return f"Error({self._code!r})"
        return f"Error({self.get()})"


@errors.api_boundary
def check(
    pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any
) -> None:
    """Says that something must hold, in code that may be traced.

    `pred` is a bool scalar. `msg` is a format for the other arguments, which are
    arrays. Under `checkify` the returned error has the message of the first check that
    failed. Elsewhere a check that fails raises `CheckError` when the program runs,
    unless it is a `debug` check, which then is not looked at. Under `vmap` the first
    member that fails is named.

    Raises `ShapeError` or `DTypeError` for a `pred` that is no bool scalar.

    >>> import fnx
    >>> def root(x):
    ...     fnx.checkify.check(x >= 0, "negative: {x}", x=x)
    ...     return fnx.numpy.sqrt(x)
    >>> error, y = fnx.jit(fnx.checkify.checkify(root))(-4.0)
    >>> print(error.get().splitlines()[0])
    negative: -4.0
    """
    if not isinstance(msg, str):
        kind = type(msg).__name__
        raise errors.ArgumentError(f"check: msg must be a format string, got a {kind}")
    holds = as_array(pred, "check", "pred")
    if holds.shape:
        fix = "reduce it with all()"
        raise errors.ShapeError(
            errors.explain("check: pred must be a scalar", f"it is {holds.type}", fix)
        )
    if not dtypes.is_bool(holds.dtype):
        raise errors.DTypeError(
            errors.explain("check: pred must be a bool", f"it is {holds.type}")
        )
    leaves, treedef = tree.flatten((fmt_args, fmt_kwargs))
    fix = "format what is no array into the message"
    arrays = [as_array(leaf, "check", "an argument", fix) for leaf in leaves]
    check_(holds, *arrays, message=Message(msg, treedef, 0, bool(debug)))


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """A `check` that costs nothing, and does nothing, without `checkify`.

    >>> import fnx
    >>> fnx.checkify.debug_check(False, "never seen")
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


@errors.api_boundary
def check_error(error: Error) -> None:
    """Raises `CheckError` for an error that has occurred; or checks it, while tracing.

    Under one more `checkify` it is part of that one's error.

    >>> import fnx
    >>> error, y = fnx.checkify.checkify(lambda x: x + 1)(1.0)
    >>> fnx.checkify.check_error(error)
    """
    if not isinstance(error, Error):
        kind = type(error).__name__
        raise errors.ArgumentError(f"check_error takes an Error, got a {kind}")
    (code, shown), sites = error.tree_flatten()
    for number, site in enumerate(sites, start=1):
        own, shown = parted(shown, len(site.types))
        code = as_array(code, "check_error", "the code")
        if code.shape:
            raise errors.ShapeError(
                errors.explain(
                    "check_error takes the error of one call",
                    f"this is one of {code.shape} members",
                    "call error.throw() outside of transformations",
                )
            )
        check_(ne(code, scalar(number, dtypes.int32)), *own, message=site.message)


def checkify(
    f: Callable[..., Any], errors: Iterable[str] = user_checks
) -> Callable[..., tuple[Error, Any]]:
    """A function that returns `(error, out)` where `f` returns `out`.

    `errors` are the kinds of checks, sets that can be united with `|`: `user_checks`
    (those of `check`), `nan_checks` (an operation made a NaN from operands without
    one), `div_checks` (a division by zero), `index_checks` (an index out of bounds);
    `float_checks`, `automatic_checks` and `all_checks` unite them. `out` is what it is
    without checks. `error.get()` is a text, or `None`; `error.throw()` raises it.

    Checks go through `jit`, loops, branches and derivatives; of all that fail, the
    first counts. To have an error for each member, put `vmap` outside: where a `vmap`
    inside of `f` meets a branch, members that did not choose it may be looked at.

    Raises `OptionError` for a kind that there is not.

    >>> import fnx
    >>> error, y = fnx.checkify.checkify(
    ...     lambda x: fnx.numpy.log(x), errors=fnx.checkify.nan_checks
    ... )(-1.0)
    >>> print(error.get().splitlines()[0])
    nan generated by primitive: log
    """
    check_callable("checkify", f)
    kinds = kinds_of("checkify", errors)

    def checked_function(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        leaves, in_tree = tree.flatten((args, kwargs))
        names = call_names(f, args, kwargs)
        rows = zip(leaves, names, strict=True)
        arrays = [as_array(leaf, "checkify", name) for leaf, name in rows]

        def run(members: Sequence[Any]) -> Any:
            given, named = in_tree.unflatten(members)
            return f(*given, **named)

        types = [x.type for x in arrays]
        traced = trace_tree(run, types, asker="checkify", names=names)
        checked = check_program(traced.program, kinds)
        results = call(
            *traced.captured,
            *arrays,
            program=checked.program,
            name=f"checkify of {name_of(f)}",
        )
        found, values = parted(results, traced.out_tree.num_leaves)
        out = traced.out_tree.unflatten(found)
        code, shown = (values[0], values[1:]) if values else (0, ())
        return Error(code, shown, checked.sites), out

    return _boundary(functools.wraps(f)(checked_function))


_boundary = errors.api_boundary


def kinds_of(asker: str, kinds: Iterable[str]) -> Kinds:
    """Kinds of checks, after a look at their names."""
    found = frozenset([kinds] if isinstance(kinds, str) else kinds)
    for kind in found:
        if kind not in KINDS:
            raise errors.OptionError(
                f"{asker}: {kind!r} is no kind of check: there are {', '.join(KINDS)}"
            )
    return found
