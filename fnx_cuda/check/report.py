"""Rows of the check: what was asked, what was found, and what it should reach.

A question is a function that yields rows; `asked` turns one that fails, or takes too
long, into a row that says so, and the others go on. Rows go from process to process and
into files as JSON. Next on the walk: `timing.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fnx.records import record

Question = Callable[["Setting"], Iterator["Row"]]

HEAD = """\
| question | case | found | should be | others, in the same unit |
|---|---|---|---|---|"""


@record
class Setting:
    """What the check runs on: a device, and the CPU to compare with.

    With `small` everything is tiny: an emulator runs it, and its times say nothing.
    """

    device: Any
    cpu: Any
    small: bool


@record
class Row:
    """One answer: a value with its unit, and what should be reached.

    `good` says whether it was, and is `None` where nothing was asked for. `peers` are
    the same measured for other libraries.
    """

    question: str
    case: str
    value: float | None = None
    unit: str = ""
    target: str = ""
    good: bool | None = None
    note: str = ""
    peers: tuple[tuple[str, float], ...] = ()


def asked(
    question: Question, setting: Setting, seconds: float = float("inf")
) -> Iterator[Row]:
    """The answers to a question as they come; an error is an answer, too.

    Behind the first one that comes later than allowed, it is asked no more.
    """
    name = question.__name__.replace("_", " ")
    start = time.perf_counter()
    try:
        for row in question(setting):
            yield row
            if time.perf_counter() - start > seconds:
                yield Row(
                    name, "cut short", note=f"after {seconds:.0f} s: ask it alone"
                )
                break
    except Exception as error:
        text = str(error) or "no message"
        what = f"{type(error).__name__}: {text.splitlines()[0]}"
        yield Row(name, "stopped", good=False, note=what)
    took = time.perf_counter() - start
    yield Row(name, "seconds in all", round(took, 2), "s")


def line(row: Row) -> str:
    """The row as a line of a table in Markdown, whose head is `HEAD`."""
    value = "" if row.value is None else f"{row.value:.4g} {row.unit}"
    mark = {True: " ✓", False: " ✗", None: ""}[row.good]
    others = ", ".join(f"{name} {x:.4g}" for name, x in row.peers)
    found = f"{value} {row.note}".strip() + mark
    return f"| {' | '.join((row.question, row.case, found, row.target, others))} |"


def summary(rows: Sequence[Row]) -> str:
    """How many answers are as they should be, and which are not."""
    bad = [row for row in rows if row.good is False]
    good = sum(row.good is True for row in rows)
    lines = [f"{good} answers are as they should be, {len(bad)} are not."]
    return "\n".join([*lines, "", HEAD, *map(line, bad)] if bad else lines)


def as_line(message: Mapping[str, Any]) -> str:
    """A message between processes; the value of "row" is a `Row`."""
    found = dict(message)
    if "row" in found:
        found["row"] = _plain(found["row"])
    return json.dumps(found)


def from_line(text: str) -> dict[str, Any]:
    """A message that `as_line` has written; what is none is no message."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    if "row" in found:
        row = found["row"]
        found["row"] = Row(**{**row, "peers": tuple(map(tuple, row["peers"].items()))})
    return found


def as_json(rows: Sequence[Row], machine: Mapping[str, str]) -> str:
    """The machine and the rows as JSON."""
    found = {"machine": dict(machine), "rows": [_plain(row) for row in rows]}
    return json.dumps(found, indent=1)


def _plain(row: Row) -> dict[str, Any]:
    names = ("question", "case", "value", "unit", "target", "good", "note")
    good = None if row.good is None else bool(row.good)
    plain = {name: getattr(row, name) for name in names}
    return plain | {"good": good, "peers": dict(row.peers)}
