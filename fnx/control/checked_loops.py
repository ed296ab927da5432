"""The rule `checked` of loops: a carry that holds what went wrong in the first round.

Receives what has been found so far, and an equation; gives its outputs, and notes what
is found in the loop. Next on the walk: `scan.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fnx.control.findings import CODE, Checked, Findings, earliest
from fnx.control.held import new_vars, parted, zeros
from fnx.core.program import Eqn, Program
from fnx.core.simplify import simplify
from fnx.core.trace import evaluate
from fnx.transforms.rewrite import rewrite


def checked_scan(found: Findings, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """A scan that carries what failed in the first round in which anything did."""
    scan, shape = eqn.primitive, eqn.params["shape"]
    checked = found.check(eqn.params["program"])
    if not checked.sites:
        results: Sequence[Any] = scan(*inputs, program=checked.program, shape=shape)
        return results
    more = len(checked.types)
    many = len(eqn.outputs) - shape.carry

    def run(*args: Any) -> list[Any]:
        consts, carry, before, rows = parted(args, shape.consts, shape.carry, more)
        results = evaluate(checked.program, [*consts, *carry, *rows])
        ends, ys, now = parted(results, shape.carry, many)
        return [*ends, *earliest(before, now), *ys]

    types = checked.program.input_types
    begin = shape.consts + shape.carry
    given = (*types[:begin], *checked.types, *types[begin:])
    place = shape.first + begin
    results = scan(
        *inputs[:place],
        *map(zeros, checked.types),
        *inputs[place:],
        program=rewrite(run, given, "check", checked.program),
        shape=replace(shape, carry=shape.carry + more),
    )
    ends, values, ys = parted(results, shape.carry, more)
    found.take([checked], values)
    return (*ends, *ys)


def checked_while(found: Findings, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """A loop that carries what failed first; its test is checked before and in it."""
    while_loop, shape = eqn.primitive, eqn.params["shape"]
    test = found.check(eqn.params["test"])
    body = found.check(eqn.params["body"])
    tests, consts, start = shape.cut(inputs)
    plain = _outputs(test)
    sites = [body, test]
    more = sum(len(part.types[1:]) for part in sites) + 1
    if not body.sites and not test.sites:
        params = {"test": plain, "body": body.program, "shape": shape}
        results: Sequence[Any] = while_loop(*inputs, **params)
        return results
    if test.sites:
        found.take([test], evaluate(test.program, [*tests, *start])[1:])
    rows = len(body.program.outputs) - len(body.types) - len(start)

    def run(*args: Any) -> list[Any]:
        asked, held, carry, before = parted(args, len(tests), len(consts), len(start))
        results = evaluate(body.program, [*held, *carry])
        ends, ys, now = parted(results, len(start), rows)
        then = evaluate(test.program, [*asked, *ends])[1:]
        both = Findings(found.kinds)
        both.take([body], now)
        both.take([test], then)
        return [*ends, *earliest(before, both.values()), *ys]

    types = body.program.input_types
    own = test.program.input_types[: len(tests)]
    held_types = types[: len(consts)]
    carried = (CODE, *body.types[1:], *test.types[1:])
    given = (*own, *held_types, *types[len(consts) :], *carried)
    results = while_loop(
        *tests,
        *[*tests, *consts],
        *[*start, *map(zeros, carried)],
        test=Program((*plain.inputs, *new_vars(carried)), plain.eqns, plain.outputs),
        body=rewrite(run, given, "check", body.program),
        shape=replace(shape, consts=len(tests) + len(consts)),
    )
    ends, values, rest = parted(results, len(start), more)
    found.take(sites, values)
    return (*ends, *rest)


def _outputs(checked: Checked) -> Program:
    """The program without the checks."""
    program = checked.program
    count = len(program.outputs) - len(checked.types)
    return simplify(Program(program.inputs, program.eqns, program.outputs[:count]))
