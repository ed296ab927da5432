"""Loops on one of several devices, each over its parts of the carry and of the rows.

Receives a `fnx.transforms.shard.Cutter`, the equation of a loop and the parts of its
operands; gives the parts of its results. A carry that rounds cut further is cut so from
the start, so that no round moves it. Next on the walk: `while_loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.program import Eqn
from fnx.core.trace import bind
from fnx.transforms.shard import Cutter, Part


def cut_scan(cutter: Cutter, eqn: Eqn, parts: Sequence[Part]) -> list[Part]:
    """A loop over rows, of which every device has its part."""
    program, shape = eqn.params["program"], eqn.params["shape"]
    front, (consts, carry, xs) = parts[: shape.first], shape.cut(parts[shape.first :])
    xs = [cutter.moved(x, ((), *x.spec[1:])) for x in xs]
    program, specs, rows = cutter.round(
        program, _specs(consts), _specs(carry), [x.spec[1:] for x in xs]
    )
    moved = [cutter.moved(*row) for row in zip(carry, specs, strict=True)]
    values = [x.value for x in (*front, *consts, *moved, *xs)]
    results = bind(eqn.primitive, values, {"program": program, "shape": shape})
    return _parts(results, (*specs, *[((), *spec) for spec in rows]))


def cut_while(cutter: Cutter, eqn: Eqn, parts: Sequence[Part]) -> list[Part]:
    """A loop whose test is the same on all devices."""
    shape = eqn.params["shape"]
    tests, consts, carry = shape.cut(parts)
    body, specs, rows = cutter.round(eqn.params["body"], _specs(consts), _specs(carry))
    test, _ = cutter.program(eqn.params["test"], (*_specs(tests), *specs), ((),))
    moved = [cutter.moved(*row) for row in zip(carry, specs, strict=True)]
    values = [x.value for x in (*tests, *consts, *moved)]
    params = {"test": test, "body": body, "shape": shape}
    results = bind(eqn.primitive, values, params)
    number = [()] * (len(results) - len(specs) - len(rows))
    return _parts(results, (*specs, *number, *[((), *spec) for spec in rows]))


def _specs(parts: Sequence[Part]) -> list[Any]:
    return [part.spec for part in parts]


def _parts(results: Sequence[Any], specs: Sequence[Any]) -> list[Part]:
    return [Part(x, spec) for x, spec in zip(results, specs, strict=True)]
