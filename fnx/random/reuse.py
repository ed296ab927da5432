"""Which random keys have been used up, while `fnx.debug.key_reuse` watches.

Receives the words of keys from `keys.py`: where they come from, and who uses them up.
A key is known by where it comes from: an array of its own, a part of an array of keys,
or what `fold_in` made of another key and a number. Next on the walk: `stream.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fnx import errors
from fnx.core.trace import Tracer
from fnx.errors import Source, user_source

Name = tuple[Any, ...]
"""What a key is known by: the array that it comes from, and the steps from there."""


class Watch:
    """The keys that have been used up, and by which lines."""

    def __init__(self) -> None:
        # Arrays are kept, so that the id of each stays its own.
        self._kept: list[Any] = []
        self._names: dict[Any, Name] = {}
        self._used: dict[Name, tuple[str, Source | None]] = {}

    def name(self, words: Any) -> Name:
        """What the key with these words is known by."""
        identity = _identity(words)
        found = self._names.get(identity)
        if found is None:
            self._kept.append(words)
            found = self._names[identity] = (("array", *identity),)
        return found

    def derive(self, words: Any, parent: Any, steps: Sequence[Any]) -> None:
        """Notes that words are those of another key, some steps further."""
        self._kept.append(words)
        self._names[_identity(words)] = (*self.name(parent), *steps)

    def use(self, sampler: str, words: Any) -> None:
        """Notes that a sampler uses a key up; raises if that has happened before."""
        name, source = self.name(words), user_source()
        for other, (before, line) in self._used.items():
            if _overlap(name, other):
                raise errors.KeyReuseError(
                    errors.explain(
                        f"the key that {sampler} is given has been used",
                        f"by {before}\n    at {line}\n  and now by {sampler}\n"
                        f"    at {source}\n"
                        "  so the numbers are not independent",
                        "split the key first, with fnx.random.split; or say that it "
                        "is meant, with fnx.random.clone",
                    )
                )
        self._used[name] = sampler, source


_watch: ContextVar[Watch | None] = ContextVar("fnx_key_reuse", default=None)

_HARMLESS = ("fold_in",)
"""What reads a key without using it up: another number gives another key."""


def used(sampler: str, words: Any) -> None:
    """Called by all that takes a key."""
    watch = _watch.get()
    if watch is not None and sampler not in _HARMLESS:
        watch.use(sampler, words)


def derived(words: Any, parent: Any, *steps: Any) -> None:
    """Called by all that makes a key of another one, which it is a part or fold of."""
    watch = _watch.get()
    if watch is not None:
        watch.derive(words, parent, steps)


def watching() -> bool:
    """Whether anybody wants to know."""
    return _watch.get() is not None


@contextmanager
def watched(enable: bool = True) -> Iterator[None]:
    """A context in which a key may be used once; again as often as one likes."""
    token = _watch.set(Watch() if enable else None)
    try:
        yield
    finally:
        _watch.reset(token)


def _identity(words: Any) -> tuple[int, ...]:
    """Arrays by themselves, and so tracers that stand for one; others by their atom."""
    while isinstance(words, Tracer):
        atom: Any = words.atom
        value = words.builder.values.get(atom)
        if value is not None:
            words = value
            continue
        return id(words.builder), id(words.atom)
    return (id(words),)


def _overlap(one: Name, other: Name) -> bool:
    """Whether two keys share one: they are the same, or one is a part of the other.

    What was folded in made another key, which shares nothing.
    """
    shorter, longer = sorted((one, other), key=len)
    if longer[: len(shorter)] != shorter:
        return False
    return all(step[0] == "part" for step in longer[len(shorter) :])
