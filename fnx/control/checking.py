"""Checks as values: a program that also says what went wrong in it, and where first.

Receives a program and the kinds of checks; gives one with more outputs: a code (0, or
the number of the site that failed first) and what each site shows. They go through
calls, branches and loops as any other values do, so that every transformation and the
compiler take them as they are. The outputs that the program had stay what they were.
What users call is in `fnx.api.checks`; next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fnx.control.call import call
from fnx.control.check import Message, Site, check
from fnx.control.cond import cond
from fnx.control.faults import (
    DIVISION,
    INDEX,
    NAN,
    USER,
    divisions,
    has_nan,
    indices,
    nan_message,
)
from fnx.control.held import new_vars, parted, zeros
from fnx.control.scan import Shape, scan
from fnx.control.while_loop import Rounds, while_loop
from fnx.core.program import Eqn, Program, Var, silent
from fnx.core.simplify import simplify
from fnx.core.trace import bind, constant, evaluate, source_of
from fnx.core.types import ArrayType
from fnx.dtypes import int32
from fnx.ops.arithmetic import add, eq, select
from fnx.ops.elementwise import convert, ne
from fnx.ops.parts import and_, not_, or_
from fnx.ops.rearrange import Rearrangement
from fnx.ops.shape import broadcast_in_dim, scalar
from fnx.records import record
from fnx.transforms.rewrite import rewrite

Kinds = frozenset[str]

_CODE = ArrayType((), int32)


@record(eq=False)
class Checked:
    """A program whose outputs are followed by a code and what the sites show.

    If there are no sites, there is no code either.
    """

    program: Program
    sites: tuple[Site, ...]

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """The types of what the sites show, and of the code before it."""
        shown = [type for site in self.sites for type in site.types]
        return (_CODE, *shown) if self.sites else ()


def check_program(program: Program, kinds: Kinds) -> Checked:
    """The program with checks of these kinds as outputs."""
    sites: tuple[Site, ...] = ()

    def run(*args: Any) -> list[Any]:
        nonlocal sites
        found = _Findings(kinds)
        outputs = found.follow(program, args)
        sites = tuple(found.sites)
        return [*outputs, *found.values()]

    return Checked(rewrite(run, program.input_types, "check", program), sites)


class _Findings:
    """What has been found so far, while a program is written anew."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.sites: list[Site] = []
        self.code: Any = scalar(0, int32)
        self.shown: list[Any] = []

    def values(self) -> list[Any]:
        """The code, and what the sites show."""
        if not self.sites:
            return []
        return [self.code, *self.shown]

    def follow(self, program: Program, args: Sequence[Any]) -> list[Any]:
        """The outputs of a program, whose equations are looked at one by one."""
        env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
        for eqn in program.eqns:
            inputs = [env[a] if isinstance(a, Var) else a for a in eqn.inputs]
            with source_of(eqn):
                results = self._apply(eqn, inputs)
            env.update(zip(eqn.outputs, results, strict=True))
        return [env[a] if isinstance(a, Var) else constant(a) for a in program.outputs]

    def _apply(self, eqn: Eqn, inputs: list[Any]) -> Sequence[Any]:
        held = _HELD.get(eqn.primitive.name)
        if held is not None:
            return held(self, eqn, inputs)
        if eqn.primitive is check:
            self._check(eqn, inputs)
            return ()
        body = eqn.primitive.body(**eqn.params)
        if body is not None:
            return _beside(self, eqn, inputs, body)
        results = bind(eqn.primitive, inputs, eqn.params)
        many = results if eqn.primitive.multiple else (results,)
        self._look(eqn, inputs, many)
        return many

    def _check(self, eqn: Eqn, inputs: Sequence[Any]) -> None:
        if USER in self.kinds:
            holds, *shown = inputs
            self.add(eqn, eqn.params["message"], not_(holds), shown)

    def _look(self, eqn: Eqn, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Looks for what may be wrong with one operation."""
        looking = [(INDEX, indices), (DIVISION, divisions)]
        for kind, look in looking:
            if kind in self.kinds:
                for fault in look(eqn, inputs):
                    self.add(eqn, fault.message, fault.occurs, fault.shown)
        if NAN in self.kinds and not isinstance(eqn.primitive, Rearrangement):
            made = self._nan(results)
            if made is not None:
                given = self._nan(inputs)
                occurs = made if given is None else and_(made, not_(given))
                self.add(eqn, nan_message(eqn), occurs, ())

    def _nan(self, values: Sequence[Any]) -> Any:
        """Whether any of several arrays has a NaN; `None` where none can."""
        found = None
        for value in values:
            flag = has_nan(value)
            if flag is not None:
                found = flag if found is None else or_(found, flag)
        return found

    def add(
        self, eqn: Eqn, message: Message, occurs: Any, shown: Sequence[Any]
    ) -> None:
        """Notes one more site."""
        arrays = [_strong(x) for x in shown]
        types = tuple([x.type for x in arrays])
        number = scalar(len(self.sites) + 1, int32)
        site = Site(message, types, eqn.source)
        self._join(select(occurs, number, scalar(0, int32)), [site], arrays)

    def take(self, checked: Sequence[Checked], values: Sequence[Any]) -> None:
        """Notes the sites of programs that an equation holds.

        `values` are their common code, which counts them all, and what they show.
        """
        if not values:
            return
        code, *shown = values
        if self.sites:
            moved = add(code, scalar(len(self.sites), int32))
            code = select(ne(code, scalar(0, int32)), moved, scalar(0, int32))
        self._join(code, [site for part in checked for site in part.sites], shown)

    def _join(self, code: Any, sites: Sequence[Site], shown: Sequence[Any]) -> None:
        """The first that failed is the one that counts."""
        if self.sites:
            none = eq(self.code, scalar(0, int32))
            code = select(none, code, self.code)
        self.code = code
        self.sites += sites
        self.shown += shown


def _strong(x: Any) -> Any:
    """An array that is not weak, as loops want what they carry."""
    return convert(x, dtype=x.type.dtype) if x.type.weak else x


# ---------------------------------------------------------------- held programs


def _beside(
    found: _Findings, eqn: Eqn, inputs: Sequence[Any], body: Program
) -> Sequence[Any]:
    """An equation as it is, since it has rules of its own; the checks beside it.

    Equal parts of both are computed once when they are compiled. But where a result
    needs an effect, which must happen once, the body stands for the equation.
    """
    checked = check_program(body, found.kinds)
    quiet = silent(eqn)
    if not checked.sites and not eqn.effect:
        return tuple(bind(eqn.primitive, inputs, eqn.params))
    name = str(eqn.params.get("name", eqn.primitive.name))
    results = call(*inputs, program=checked.program, name=name)
    outputs, values = parted(results, len(eqn.outputs))
    found.take([checked], values)
    if quiet.effect:
        return outputs
    return tuple(bind(eqn.primitive, inputs, quiet.params))


def _call(found: _Findings, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """The call of a checked program."""
    checked = check_program(eqn.params["program"], found.kinds)
    results = call(*inputs, program=checked.program, name=eqn.params["name"])
    outputs, values = parted(results, len(eqn.outputs))
    found.take([checked], values)
    return outputs


def _cond(found: _Findings, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """Branches with the codes of their own sites, and zeros for other sites."""
    branches: tuple[Program, ...] = eqn.params["branches"]
    checked = [check_program(branch, found.kinds) for branch in branches]
    agreed = tuple([_agreed(checked, number) for number in range(len(branches))])
    results = cond(*inputs, branches=agreed)
    outputs, values = parted(results, len(eqn.outputs))
    found.take(checked, values)
    return outputs


def _agreed(checked: Sequence[Checked], number: int) -> Program:
    """One of several branches, with the sites of all of them."""
    own = checked[number]
    if not any(part.sites for part in checked):
        return own.program
    count = len(own.program.outputs) - len(own.types)
    before = sum(len(part.sites) for part in checked[:number])

    def run(*args: Any) -> list[Any]:
        outputs, values = parted(evaluate(own.program, args), count)
        code: Any = scalar(0, int32)
        if values:
            moved = add(values[0], scalar(before, int32))
            code = select(ne(values[0], scalar(0, int32)), moved, scalar(0, int32))
        shown: list[Any] = []
        for part in checked:
            shown += values[1:] if part is own else map(zeros, part.types[1:])
        return [*outputs, code, *shown]

    return rewrite(run, own.program.input_types, "check", own.program)


def _first(before: Sequence[Any], now: Sequence[Any]) -> list[Any]:
    """What an earlier round found, or else what this one does."""
    none = eq(before[0], scalar(0, int32))
    rows = zip(now, before, strict=True)
    return [select(_along(none, x.type.shape), x, y) for x, y in rows]


def _along(flag: Any, shape: tuple[int, ...]) -> Any:
    return broadcast_in_dim(flag, shape=shape, dims=()) if shape else flag


def _scan(found: _Findings, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """A scan that carries what failed in the first round in which anything did."""
    shape: Shape = eqn.params["shape"]
    checked = check_program(eqn.params["program"], found.kinds)
    if not checked.sites:
        return scan(*inputs, program=checked.program, shape=shape)
    more = len(checked.types)
    many = len(eqn.outputs) - shape.carry

    def run(*args: Any) -> list[Any]:
        consts, carry, before, rows = parted(args, shape.consts, shape.carry, more)
        results = evaluate(checked.program, [*consts, *carry, *rows])
        ends, ys, now = parted(results, shape.carry, many)
        return [*ends, *_first(before, now), *ys]

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


def _while(found: _Findings, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
    """A loop that carries what failed first; its test is checked before and in it."""
    shape: Rounds = eqn.params["shape"]
    test = check_program(eqn.params["test"], found.kinds)
    body = check_program(eqn.params["body"], found.kinds)
    tests, consts, start = shape.cut(inputs)
    plain = _outputs(test)
    sites = [body, test]
    more = sum(len(part.types[1:]) for part in sites) + 1
    if not body.sites and not test.sites:
        params = {"test": plain, "body": body.program, "shape": shape}
        return while_loop(*inputs, **params)
    if test.sites:
        found.take([test], evaluate(test.program, [*tests, *start])[1:])
    rows = len(body.program.outputs) - len(body.types) - len(start)

    def run(*args: Any) -> list[Any]:
        asked, held, carry, before = parted(args, len(tests), len(consts), len(start))
        results = evaluate(body.program, [*held, *carry])
        ends, ys, now = parted(results, len(start), rows)
        then = evaluate(test.program, [*asked, *ends])[1:]
        both = _Findings(found.kinds)
        both.take([body], now)
        both.take([test], then)
        return [*ends, *_first(before, both.values()), *ys]

    types = body.program.input_types
    own = test.program.input_types[: len(tests)]
    held_types = types[: len(consts)]
    carried = (_CODE, *body.types[1:], *test.types[1:])
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


_HELD: dict[str, Callable[..., Sequence[Any]]] = {
    "call": _call,
    "cond": _cond,
    "scan": _scan,
    "while_loop": _while,
}
