"""Checks as values: a program that also says what went wrong in it, and where first.

Receives a program and the kinds of checks; gives one with more outputs: a code (0, or
the number of the site that failed first) and what each site shows. They go through
calls, branches and loops as any other values do, so that every transformation and the
compiler take them as they are; primitives that hold programs do that by their rule
`checked`. The outputs that the program had stay what they were. What users call is in
`fnx.api.checks`; next on the walk: `cond.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, tree
from fnx.control.call import call
from fnx.control.check import Message, Site
from fnx.control.held import parted
from fnx.core.faults import NAN, USER, Fault
from fnx.core.program import Eqn, Literal, Program, Var, silent
from fnx.core.trace import bind, constant, source_of
from fnx.core.types import ArrayType
from fnx.dtypes import int32
from fnx.ops.arithmetic import add, eq, select
from fnx.ops.elementwise import convert, ne
from fnx.ops.index import take
from fnx.ops.parts import and_, not_, or_
from fnx.ops.reduce import argmax, reduce_or
from fnx.ops.shape import broadcast_in_dim, reshape, scalar
from fnx.records import record
from fnx.transforms.rewrite import rewrite

Kinds = frozenset[str]

CODE = ArrayType((), int32)

_NOTHING = tree.structure(((), {}))
_VALUE = tree.structure(((), {"value": 0}))


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
        return (CODE, *shown) if self.sites else ()


def check_program(program: Program, kinds: Kinds) -> Checked:
    """The program with checks of these kinds as outputs."""
    sites: tuple[Site, ...] = ()

    def run(*args: Any) -> list[Any]:
        nonlocal sites
        found = Findings(kinds)
        outputs = found.follow(program, args)
        sites = tuple(found.sites)
        return [*outputs, *found.values()]

    return Checked(rewrite(run, program.input_types, "check", program), sites)


class Findings:
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

    def check(self, program: Program) -> Checked:
        """A held program with the same checks."""
        return check_program(program, self.kinds)

    def _apply(self, eqn: Eqn, inputs: list[Any]) -> Sequence[Any]:
        checked = eqn.primitive.checked(self, eqn, inputs)
        if checked is not None:
            return checked
        body = eqn.primitive.body(**eqn.params)
        if body is not None:
            return _beside(self, eqn, inputs, body)
        results = bind(eqn.primitive, inputs, eqn.params)
        many = results if eqn.primitive.multiple else (results,)
        self._look(eqn, inputs, many)
        return many

    def require(self, eqn: Eqn, holds: Any, message: Message, shown: Any) -> None:
        """Notes a check of the user's."""
        if USER in self.kinds:
            self.add(eqn, message, not_(holds), shown)

    def _look(self, eqn: Eqn, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Looks for what may be wrong with one operation."""
        types = [var.type for var in eqn.outputs]
        for fault in eqn.primitive.faults(inputs, types, **eqn.params):
            if fault.kind in self.kinds:
                self._note(eqn, fault)
        if NAN in self.kinds and not eqn.primitive.moves:
            made = self._nan(results)
            if made is not None:
                given = self._nan(inputs)
                occurs = made if given is None else and_(made, not_(given))
                text = f"nan generated by primitive: {eqn.primitive.name}"
                self.add(eqn, Message(text, _NOTHING), occurs, ())

    def _note(self, eqn: Eqn, fault: Fault) -> None:
        """Notes what a primitive tells."""
        occurs = any_of(fault.marks)
        if fault.values is None:
            self.add(eqn, Message(fault.text, _NOTHING), occurs, ())
        else:
            shown = _first_marked(fault.values, fault.marks)
            self.add(eqn, Message(fault.text, _VALUE), occurs, (shown,))

    def _nan(self, values: Sequence[Any]) -> Any:
        """Whether any of several arrays has a NaN; `None` where none can."""
        found = None
        for value in values:
            flag = _has_nan(value)
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
            code = behind(code, len(self.sites))
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


def _beside(
    found: Findings, eqn: Eqn, inputs: Sequence[Any], body: Program
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


def behind(code: Any, sites: int) -> Any:
    """The code of a site that is counted behind so many others."""
    moved = add(code, scalar(sites, int32))
    return select(ne(code, scalar(0, int32)), moved, scalar(0, int32))


def earliest(before: Sequence[Any], now: Sequence[Any]) -> list[Any]:
    """What an earlier round found, or else what this one does: codes, what is shown."""
    none = eq(before[0], scalar(0, int32))
    rows = zip(now, before, strict=True)
    return [select(_along(none, x.type.shape), x, y) for x, y in rows]


def _along(flag: Any, shape: tuple[int, ...]) -> Any:
    return broadcast_in_dim(flag, shape=shape, dims=()) if shape else flag


# ---------------------------------------------------------------- one operation


def _has_nan(x: Any) -> Any:
    """Whether an array has a NaN: a bool scalar, or `None` where it cannot."""
    if not dtypes.is_inexact(x.type.dtype):
        return None
    if isinstance(x, Literal):
        return scalar(bool(np.isnan(x.value)), dtypes.bool_)
    return any_of(ne(x, x))


def any_of(marks: Any) -> Any:
    """Whether any element of a bool array is true."""
    axes = tuple(range(len(marks.type.shape)))
    return reduce_or(marks, axes=axes) if axes else marks


def _first_marked(values: Any, marks: Any) -> Any:
    """The first value that is marked."""
    if not values.type.shape:
        return reshape(values, shape=())
    flat = [reshape(x, shape=(x.type.size,)) for x in (values, marks)]
    return take(flat[0], argmax(flat[1], axis=0, index_dtype=int32), 0)
