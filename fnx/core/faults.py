"""What can be wrong with one operation while a program runs, as primitives tell it.

`Primitive.faults` gives `Fault`s, made of traced arrays; `fnx.checkify` and
`fnx.debug.checks` have them looked at. Next on the walk: `primitive.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

USER, NAN, INDEX, DIVISION = "user", "nan", "index", "division"
KINDS = (USER, NAN, INDEX, DIVISION)


class Fault(NamedTuple):
    """What would be said, and where it is so.

    `marks` is a bool array, true where something is wrong. `text` is a format; if there
    are `values`, an array of the shape of `marks`, it shows the first that is marked,
    by the name `value`.
    """

    kind: str
    text: str
    marks: Any
    values: Any = None
