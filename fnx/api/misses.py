"""Why a call of a jitted function was traced anew: its signature against earlier ones.

Receives the `Signature`s of calls; gives the text of `f.explain_miss()`, which names
the arguments that differ by their path, and the error of `no_recompile`.
Next on the walk: `stages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fnx import errors, tree
from fnx.api.entry import Signature
from fnx.api.static import typed
from fnx.core.types import ArrayType
from fnx.runtime.executable import compiling_forbidden

# So many of the latest signatures are looked at to find the closest.
_MOST = 256


# ---------------------------------------------------------------- the difference


def explanation(asker: str, new: Signature, earlier: Sequence[Signature]) -> str:
    """Why a signature is none of the earlier ones, oldest first."""
    if not earlier:
        return f"{asker}: no earlier call is known, so this one was traced."
    compared = [_differences(old, new) for old in reversed(earlier[-_MOST:])]
    lines = min(compared, key=len)
    many = f"the closest of {len(earlier)} earlier ones" if len(earlier) > 1 else ""
    against = many or "the one earlier call"
    if not lines:
        return (
            f"{asker}: the call is like an earlier one, whose program was not kept or "
            "not compiled: it captured a value of a function that was being traced, or "
            "ran only inside of one."
        )
    return "\n  ".join([f"{asker}: the call differs from {against}:", *lines])


def _differences(old: Signature, new: Signature) -> list[str]:
    """A line for each thing in which two signatures differ."""
    lines = list(_type_lines(old, new))
    if not lines:
        lines += _structure_lines(old, new)
    lines += _static_lines(old.statics, new.statics)
    for name, value in new.settings.items():
        if old.settings[name] != value:
            lines.append(f"{name}: {old.settings[name]} before, {value} now (setting)")
    return lines


def _type_lines(old: Signature, new: Signature) -> Iterator[str]:
    before = dict(zip(old.names, old.types, strict=True))
    now = dict(zip(new.names, new.types, strict=True))
    for name, type in now.items():
        if name not in before:
            yield f"{name}: {type}, not there before (structure)"
        elif before[name] is not type:
            what = ", ".join(_aspects(before[name], type))
            yield f"{name}: {before[name]} before, {type} now ({what})"
    for name, type in before.items():
        if name not in now:
            yield f"{name}: {type} before, not there now (structure)"


def _aspects(old: ArrayType, new: ArrayType) -> Iterator[str]:
    if old.shape != new.shape:
        yield "shape"
    if old.dtype != new.dtype:
        yield "dtype"
    if old.weak != new.weak:
        yield f"weak type: a Python number {'before' if old.weak else 'now'}"


def _structure_lines(old: Signature, new: Signature) -> Iterator[str]:
    """What differs where all leaves have the same names and types."""
    if old.in_tree == new.in_tree:
        return
    before, now = dict(old.arguments), dict(new.arguments)
    for name in now:
        if name in before and before[name] != now[name]:
            yield from (
                f"{name}: {line} (structure)"
                for line in tree.difference(
                    before[name], now[name], first="it before", second="it now"
                ).split("\n")
            )
    if old.named != new.named:
        yield f"arguments by name: {old.named} before, {new.named} now (structure)"
    for name in before.keys() ^ now.keys():
        when = "before" if name in before else "now"
        yield f"{name}: an argument without arrays, passed only {when} (structure)"


def _static_lines(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name, value in new.items():
        if name not in old:
            yield f"{name}: {_shown(value)}, not passed before (static)"
        elif typed(old[name]) != typed(value):
            yield f"{name}: {_change(old[name], value)}"
    for name, value in old.items():
        if name not in new:
            yield f"{name}: {_shown(value)} before, not passed now (static)"


def _change(old: Any, new: Any) -> str:
    before, now = _shown(old), _shown(new)
    kinds = type(old).__name__, type(new).__name__
    if kinds[0] != kinds[1]:
        before, now = f"{before} of type {kinds[0]}", f"{now} of type {kinds[1]}"
    named = getattr(old, "__qualname__", before) == getattr(new, "__qualname__", now)
    if callable(new) and named:
        return (
            f"another {getattr(new, '__qualname__', kinds[1])} than before (static): a "
            "function that is made anew for each call is a new value each time"
        )
    if before == now:
        return (
            f"another object than before, of the same text {now} (static): its class "
            "has no __eq__ and __hash__ that say so"
        )
    return f"{before} before, {now} now (static)"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---------------------------------------------------------------- no_recompile


@contextmanager
def no_recompile() -> Iterator[None]:
    """A context in which nothing is traced or compiled anew: for tests, and loops.

    A call of a jitted function that would be traced, or whose program would be
    compiled, raises `RecompileError` with the text of `f.explain_miss()`; so does
    whatever else runs compiled (`fnx.lax.scan`) for the first time. It holds for this
    thread.

    >>> import fnx
    >>> f = fnx.jit(lambda x: x + 1)
    >>> y = f(1.0)
    >>> with fnx.no_recompile():
    ...     f(2.0)
    Array(3., dtype=float32, weak_type=True)
    """
    token = compiling_forbidden.set(True)
    try:
        yield
    finally:
        compiling_forbidden.reset(token)


def traced_anew(
    asker: str, new: Signature, earlier: Sequence[Signature]
) -> errors.RecompileError:
    """The error for a call that would be traced inside of `no_recompile`."""
    text = explanation(asker, new, earlier)
    return errors.RecompileError(
        f"inside of fnx.no_recompile() a call would be traced anew.\n{text}"
    )


__all__ = ["explanation", "no_recompile", "traced_anew"]
