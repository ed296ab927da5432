"""Arrays of keys in functions that move elements about, whatever these are.

`fnx.random.Key` is a tree, not an array. Receives functions of arrays such as `stack`
and `take`; gives functions that take keys, too: each key becomes one number of 64 bits,
the function moves the numbers, and they become keys again. Next on the walk:
`promote.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fnx import dtypes, tree
from fnx.core.array import Array
from fnx.ops.widths import with_width

P = ParamSpec("P")
R = TypeVar("R")

# The class of keys, whose attribute `words` is an array of uint32; `fnx.random` notes
# it. Without it there are no keys.
classes: list[type[Any]] = []


def takes_keys(*alike: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that moves elements about, and does not compute with them.

    `alike` are the places of the arguments that must hold keys alone if one of them
    holds a key; numbers among them are the mistake that they are without keys.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception:
                # Only here, so that other calls need not look for keys.
                if not classes or not _only_keys(args, kwargs, alike):
                    raise
            return on_words(function, *args, **kwargs)

        return called

    return decorate


def on_words(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function of arrays gives, whose arguments and results may be keys."""
    args, kwargs = tree.map(_packed, (args, kwargs), is_leaf=is_key)
    return tree.map(_unpacked, function(*args, **kwargs))


def axes_of_words(axes: list[int | None], of: Any) -> list[int | None]:
    """The axes of a tree's leaves, those of keys counted in the arrays of their words.

    These have one axis more, the last, which counts where one counts from the end.
    """
    if not classes or all(axis is None or axis >= 0 for axis in axes):
        return axes
    leaves = tree.leaves(of, is_leaf=is_key)
    pairs = zip(axes, leaves, strict=True)
    return [
        axis - 1 if axis is not None and axis < 0 and is_key(x) else axis
        for axis, x in pairs
    ]


def is_key(x: Any) -> bool:
    """Whether it is an array of keys, or a key."""
    return isinstance(x, tuple(classes))


def _only_keys(
    args: tuple[Any, ...], kwargs: dict[str, Any], alike: tuple[int, ...]
) -> bool:
    """Whether there are keys, and nothing else where all must be."""
    leaves = tree.leaves((args, kwargs), is_leaf=is_key)
    beside = [args[place] for place in alike if place < len(args)]
    others = tree.leaves(beside, is_leaf=is_key)
    return any(map(is_key, leaves)) and len({is_key(x) for x in others}) < 2


def _packed(x: Any) -> Any:
    return with_width(x.words, dtypes.uint64) if is_key(x) else x


def _unpacked(x: Any) -> Any:
    is_key = isinstance(x, Array) and x.type.dtype == dtypes.uint64
    return classes[0](with_width(x, dtypes.uint32)) if is_key else x
