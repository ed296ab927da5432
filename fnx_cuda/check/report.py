"""Rows of the check: what was asked, what was found, and what it should reach.

A question is a function that yields rows; `asked` turns one that fails into a row with
its error, so that the others go on. Next on the walk: `timing.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fnx.records import record

Question = Callable[["Setting"], Iterator["Row"]]


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


def asked(question: Question, setting: Setting) -> list[Row]:
    """The answers to a question; an error is an answer, too."""
    name = question.__name__.replace("_", " ")
    rows: list[Row] = []
    start = time.perf_counter()
    try:
        rows += question(setting)
    except Exception as error:
        what = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        rows.append(Row(name, "stopped", good=False, note=what))
    took = time.perf_counter() - start
    return [*rows, Row(name, "seconds in all", round(took, 2), "s")]


def table(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown."""
    lines = [
        "| question | case | found | should be | others |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        value = "" if row.value is None else f"{row.value:.4g} {row.unit}"
        mark = {True: " ✓", False: " ✗", None: ""}[row.good]
        others = ", ".join(f"{name} {x:.4g}" for name, x in row.peers)
        found = f"{value} {row.note}".strip() + mark
        cells = row.question, row.case, found, row.target, others
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> str:
    """The rows as JSON."""
    names = ("question", "case", "value", "unit", "target", "good", "note")
    found = [
        {name: getattr(row, name) for name in names} | {"peers": dict(row.peers)}
        for row in rows
    ]
    return json.dumps(found, indent=1)
