"""Which arguments of a jitted function are static, and which are donated.

Receives the options of `jit` and the function's signature; gives `Options`, which
divides a call in a tree of dynamic arguments and the static values, and a key in which
equal static values of different types differ (1, 1.0 and True; 0.0 and -0.0).
Next on the walk: `inspect.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fnx import errors, tree
from fnx.api.arguments import indices, name_of
from fnx.records import record

Nums = int | Sequence[int] | None
Names = str | Sequence[str] | None


class Divided(NamedTuple):
    """A call: its dynamic part (a tree), and what is static, with a key for it."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    statics: tuple[tuple[int | str, Any], ...]
    key: Hashable

    def joined(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """All arguments again, from (other) dynamic ones."""
        full, named = list(args), dict(kwargs)
        for where, value in self.statics:
            if isinstance(where, int):
                full.insert(where, value)
            else:
                named[where] = value
        return full, named

    def shown(self) -> Any:
        """All arguments, with None (which has no leaves) for the static ones."""
        bare = tuple([(where, None) for where, _ in self.statics])
        return self._replace(statics=bare).joined(self.args, self.kwargs)


@record
class Options:
    """The static and donated arguments, by number and by name."""

    static_nums: frozenset[int]
    static_names: frozenset[str]
    donate_nums: frozenset[int]
    donate_names: frozenset[str]

    def divide(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Divided:
        """A call in its dynamic and its static part."""
        if not self.static_nums and not self.static_names:
            return Divided(args, kwargs, (), ())
        nums, names = self.static_nums, self.static_names
        statics: list[tuple[int | str, Any]] = [
            (i, x) for i, x in enumerate(args) if i in nums
        ]
        statics += [(name, kwargs[name]) for name in sorted(kwargs) if name in names]
        key = tuple([(where, typed(value)) for where, value in statics])
        rest = tuple([x for i, x in enumerate(args) if i not in nums])
        named = {name: x for name, x in kwargs.items() if name not in names}
        return Divided(rest, named, tuple(statics), key)

    def donated(self, call: Divided) -> tuple[bool, ...]:
        """Which leaves of the dynamic arguments are donated."""
        static = {where for where, _ in call.statics}
        total = len(call.args) + len(static)
        numbers = [i for i in range(total) if i not in static]
        flags: list[bool] = []
        for number, value in zip(numbers, call.args, strict=False):
            flags += [number in self.donate_nums] * len(tree.leaves(value))
        for name in sorted(call.kwargs):
            leaves = tree.leaves(call.kwargs[name])
            flags += [name in self.donate_names] * len(leaves)
        return tuple(flags)


def typed(value: Any) -> Hashable:
    """A key for a static value that tells equal values of different types apart."""
    kind = value.__class__
    if kind is tuple:
        return (tuple, tuple([typed(item) for item in value]))
    if kind is float or kind is complex:
        return (kind, repr(value))  # a NaN is itself, and -0.0 is not 0.0
    return (kind, value)


def check_hashable(asker: str, call: Divided) -> None:
    """Raises for the static argument that cannot be hashed."""
    for where, value in call.statics:
        try:
            hash(value)
        except TypeError:
            shown = f"argument {where}" if isinstance(where, int) else where
            raise errors.ArgumentError(
                errors.explain(
                    f"{asker}: the static {shown} is of type {type(value).__name__}",
                    "static values must be hashable, since each has its own program",
                    "pass a tuple or a frozen dataclass, or do not make it static",
                )
            ) from None


def read_options(
    asker: str,
    function: Callable[..., Any],
    static_argnums: Nums = None,
    static_argnames: Names = None,
    donate_argnums: Nums = None,
    donate_argnames: Names = None,
) -> Options:
    """The options of `jit` for a function, checked against its signature."""
    parameters = _parameters(function)
    static = _chosen(asker, "static", parameters, static_argnums, static_argnames)
    donate = _chosen(asker, "donate", parameters, donate_argnums, donate_argnames)
    both = sorted({*static[0] & donate[0]} | {*static[1] & donate[1]}, key=str)
    if both:
        raise errors.OptionError(
            errors.explain(
                f"{asker} of {name_of(function)}: argument {both[-1]!r} is static and "
                "donated",
                "a static argument has no memory to give away",
                "name it in one of the two options only",
            )
        )
    return Options(*static, *donate)


Parameters = list[inspect.Parameter] | None


def _parameters(function: Callable[..., Any]) -> Parameters:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins without a signature
        return None


def _chosen(
    asker: str, kind: str, parameters: Parameters, argnums: Nums, argnames: Names
) -> tuple[frozenset[int], frozenset[str]]:
    """Numbers and names of the chosen arguments; each also by the other, if it has."""
    option = f"{kind}_argnums"
    nums = () if argnums is None else indices(asker, option, argnums)
    names = _names(asker, f"{kind}_argnames", argnames)
    if parameters is None:
        return frozenset(nums), frozenset(names)
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = any(p.kind is p.VAR_KEYWORD for p in parameters)
    positional = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    count = len(positional)
    for number in nums:
        if number < -count or (number >= count and not variadic):
            raise errors.OptionError(
                f"{asker}: {option}={number} is out of range: the function takes "
                f"{count} positional argument{'s' * (count != 1)}."
            )
    nums = tuple([n + count if n < 0 else n for n in nums])
    known = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
    for name in names:
        if name not in known and not keywords:
            raise errors.OptionError(
                f"{asker}: {kind}_argnames has {name!r}, and the function has no "
                f"argument of that name; it takes {', '.join(known) or 'none by name'}."
            )
    by_name = [i for i, p in enumerate(positional) if p.name in names]
    by_num = [p.name for i, p in enumerate(positional) if i in nums]
    return frozenset((*nums, *by_name)), frozenset((*names, *by_num))


def _names(asker: str, option: str, value: Names) -> tuple[str, ...]:
    if value is None:
        return ()
    several = isinstance(value, Iterable) and not isinstance(value, str)
    many: tuple[Any, ...] = tuple(value) if several else (value,)
    if not all(isinstance(name, str) for name in many):
        raise errors.ArgumentError(
            f"{asker}: {option} takes a name or several, got {value!r}."
        )
    return many
