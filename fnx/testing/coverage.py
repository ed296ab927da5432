"""Which names of another library's interface fnx has, and with which parameters.

Receives, for each module of fnx, names and what their parameters are called; gives what
is missing and which parameters differ. `python -m fnx.testing --api FILE` prints it for
a JSON file of that form. Next on the walk: `rules.py`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fnx.records import record

Parameters = Sequence[str] | None
Wanted = Mapping[str, Mapping[str, Parameters]]


@record
class Coverage:
    """One module: the names that are there, that are not, and that differ.

    `differing` says for a function which of its parameters cannot be given alike.
    """

    module: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    differing: Mapping[str, str]

    @property
    def share(self) -> float:
        """The share of the names that are there, of 1."""
        total = len(self.present) + len(self.missing)
        return len(self.present) / total if total else 1.0


def coverage(wanted: Wanted) -> list[Coverage]:
    """What there is of each module, in the order of the mapping.

    Parameters are written as in a signature: "x" for one that is given by position or
    by name, "/x" by position only, "=x" by name only, "*x" and "**x" for any number;
    `None` where they are not to be compared.

    >>> names = {"sin": ["/x"], "tile": ["A", "times"], "sine": None}
    >>> (found,) = coverage({"fnx.numpy": names})
    >>> found.missing, found.differing
    (('sine',), {'tile': 'times is reps at position 1'})
    """
    return [_of_module(module, names) for module, names in wanted.items()]


def _of_module(name: str, names: Mapping[str, Parameters]) -> Coverage:
    try:
        module: Any = importlib.import_module(name)
    except ModuleNotFoundError:
        return Coverage(name, (), tuple(sorted(names)), {})
    present = tuple(sorted([n for n in names if hasattr(module, n)]))
    differing = {}
    for n in present:
        parameters = names[n]
        text = "" if parameters is None else difference(getattr(module, n), parameters)
        if text:
            differing[n] = text
    missing = tuple(sorted(names.keys() - set(present)))
    return Coverage(name, present, missing, differing)


def difference(function: Any, parameters: Sequence[str]) -> str:
    """How a function's parameters differ; "" if calls of the other are calls of it."""
    try:
        own = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "it has no signature"
    return "; ".join(_differences(own, parameters))


def _differences(
    own: Sequence[inspect.Parameter], parameters: Sequence[str]
) -> Iterator[str]:
    by_name = {p.name for p in own if p.kind is not p.POSITIONAL_ONLY}
    any_name = any(p.kind is p.VAR_KEYWORD for p in own)
    any_place = any(p.kind is p.VAR_POSITIONAL for p in own)
    places = [
        p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    for place, text in enumerate(parameters):
        name = text.lstrip("/=*")
        if text.startswith("**"):
            continue  # which names it takes is not to be seen
        if text.startswith("*"):
            if not any_place and len(places) <= place:
                yield f"{name} is not any number of values"
        elif text.startswith("="):
            if name not in by_name and not any_name:
                yield f"{name} is not there"
        elif place >= len(places):
            if not any_place:
                by_keyword = "only by name" if name in by_name else "not there"
                yield f"{name} is {by_keyword}"
        elif not text.startswith("/") and places[place] != name:
            yield f"{name} is {places[place]} at position {place}"


def coverage_table(wanted: Wanted) -> str:
    """The coverage as text: a line for each module, then what is not there.

    >>> print(coverage_table({"fnx.numpy": {"sin": ["/x"], "sine": None}}))
    module     there  missing    share  differing
    fnx.numpy      1        1    50.0%          0
    <BLANKLINE>
    fnx.numpy
      missing: sine
    """
    rows = coverage(wanted)
    width = max([len(row.module) for row in rows], default=0)
    lines = [f"{'module':{width}}  there  missing    share  differing"]
    for row in rows:
        counts = f"{len(row.present):7}  {len(row.missing):7}  {row.share:7.1%}"
        lines.append(f"{row.module:{width}}{counts}  {len(row.differing):9}")
    for row in rows:
        if row.missing or row.differing:
            lines += ["", row.module]
        if row.missing:
            lines.append(f"  missing: {' '.join(row.missing)}")
        lines += [f"  {name}: {text}" for name, text in row.differing.items()]
    return "\n".join(lines)
