"""Carries of a scan that go the same way become one: a vector in the place of scalars.

A loop over a tree of small arrays does the same to each of them, one instruction after
the other. Where the programs of several carries are equal but for their operands, the
carries are stacked along a new axis, and the program is batched over it, so that one
instruction serves many. Receives the equation of a scan; gives equations that do the
same, or `None`. Next on the walk: `while_loop.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from fnx.control.call import call
from fnx.control.held import parted
from fnx.core.primitive import MappedAxis
from fnx.core.program import Atom, Eqn, Literal, Program, Var, params_key
from fnx.core.simplify import simplify
from fnx.core.trace import bind, evaluate
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import reshape
from fnx.records import record
from fnx.sizes import surely_at_most
from fnx.transforms.batch import batch_program
from fnx.transforms.rewrite import rewrite

_FEWEST = 4
"""Fewer carries are not worth a vector."""

_LARGEST = 16
"""Elements of a carry that is packed: more of them fill vectors alone."""

_LONGEST = 100
"""Values that a packed carry depends on: a longer way is work enough for one."""


@record
class _Way:
    """How a carry comes from round to round.

    `key` is equal for programs that differ in their operands only, which are `leaves`,
    in the same order.
    """

    key: Hashable
    leaves: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    end: Var


def packed_carries(eqn: Eqn) -> Sequence[Eqn] | None:
    """A scan in which carries that go the same way are one."""
    shape, program = eqn.params["shape"], eqn.params["program"]
    if shape.carry < _FEWEST:
        return None
    ways = _ways(program, shape.consts, shape.carry)
    groups: dict[Hashable, list[int]] = {}
    for number, way in ways.items():
        groups.setdefault(way.key, []).append(number)
    packs = [numbers for numbers in groups.values() if len(numbers) >= _FEWEST]
    if not packs:
        return None
    packing = _Packing(eqn, ways, packs)
    types = [atom.type for atom in eqn.inputs]
    whole = rewrite(packing.run, types, "packing", program)
    params = {"program": whole, "name": "packed"}
    return [Eqn(call, eqn.inputs, eqn.outputs, params, eqn.source)]


def _ways(program: Program, consts: int, carry: int) -> dict[int, _Way]:
    """The ways of the small carries that nothing else depends on."""
    before = program.inputs[consts : consts + carry]
    makers = {var: eqn for eqn in program.eqns for var in eqn.outputs}
    rows = _needs(program.outputs[carry:], makers)
    needs = [_needs([end], makers) for end in program.outputs[:carry]]
    kinds = dict.fromkeys(program.inputs[:consts], "const")
    kinds |= dict.fromkeys(program.inputs[consts + carry :], "row")
    found = {}
    for number, var in enumerate(before):
        end = program.outputs[number]
        own = needs[number]
        alone = var not in rows and not any(
            var in other for n, other in enumerate(needs) if n != number
        )
        apart = own.isdisjoint(set(before) - {var})
        small = surely_at_most(var.type.size, _LARGEST) and len(own) <= _LONGEST
        if small and alone and apart and var in own and end in makers:
            way = _way(end, makers, kinds | {var: "carry"})
            if way is not None:
                found[number] = way
    return found


def _needs(ends: Sequence[Atom], makers: dict[Var, Eqn]) -> set[Atom]:
    """All values that some values depend on, and they themselves."""
    seen: set[Atom] = set()
    pending = list(ends)
    while pending:
        atom = pending.pop()
        if isinstance(atom, Literal) or atom in seen:
            continue
        seen.add(atom)
        if atom in makers:
            pending += makers[atom].inputs
    return seen


def _way(end: Any, makers: dict[Var, Eqn], kinds: dict[Var, str]) -> _Way | None:
    """The equations that make a value, in order, and how they are to be compared.

    Operands of different `kinds` are not alike, whatever their types are.
    """
    numbers: dict[Atom, int] = {}
    leaves: list[Var] = []
    eqns: list[Eqn] = []
    rows: list[Any] = []

    def visit(atom: Atom) -> Any:
        if isinstance(atom, Literal):
            return atom
        if atom not in numbers:
            eqn = makers.get(atom)
            if eqn is None:
                leaves.append(atom)
            else:
                inputs = tuple([visit(a) for a in eqn.inputs])
                types = tuple([var.type for var in eqn.outputs])
                place = eqn.outputs.index(atom)
                rows.append(
                    (eqn.primitive, inputs, types, place, params_key(eqn.params))
                )
                eqns.append(eqn)
            numbers[atom] = len(numbers)
            if eqn is None:
                rows.append((kinds[atom], atom.type))
        return numbers[atom]

    visit(end)
    if any(eqn.primitive.effect or eqn.primitive.multiple for eqn in eqns):
        return None
    return _Way(tuple(rows), tuple(leaves), tuple(eqns), end)


class _Packing:
    """The scan with packed carries, as a function of the operands of the old one."""

    def __init__(self, eqn: Eqn, ways: dict[int, _Way], packs: list[list[int]]) -> None:
        self.eqn = eqn
        self.shape, self.program = eqn.params["shape"], eqn.params["program"]
        self.packs = [[ways[number] for number in numbers] for numbers in packs]
        self.numbers = packs
        packed = {number for numbers in packs for number in numbers}
        self.kept = [n for n in range(self.shape.carry) if n not in packed]
        begin = self.shape.consts
        self.before = self.program.inputs[begin : begin + self.shape.carry]

    def run(self, *operands: Any) -> list[Any]:
        """Stacks, scans, and takes the stacks apart."""
        count = operands[: self.shape.first]
        given = operands[self.shape.first :]
        consts, carry, rows = self.shape.cut(given)
        values = dict(zip(self.program.inputs, given, strict=True))
        extra_consts: list[Any] = []
        extra_rows: list[Any] = []
        stacks, parts = [], []
        of_rows = set(self.program.inputs[len(consts) + len(carry) :])
        for ways in self.packs:
            stacks.append(_stack([values[self._own(way)] for way in ways], 0))
            part = _Pack.of(ways, self._own(ways[0]), of_rows)
            for leaves in part.stacked_consts:
                extra_consts.append(_stack([values[leaf] for leaf in leaves], 0))
            for leaves in part.stacked_rows:
                extra_rows.append(_stack([values[leaf] for leaf in leaves], 1))
            parts.append(part)
        kept = [carry[n] for n in self.kept]
        operands = (*consts, *extra_consts, *kept, *stacks, *rows, *extra_rows)
        shape = replace(
            self.shape,
            consts=len(consts) + len(extra_consts),
            carry=len(kept) + len(stacks),
        )
        body = self._body(parts, [x.type for x in (*extra_consts, *stacks)], extra_rows)
        params = {"program": body, "shape": shape}
        results = bind(self.eqn.primitive, [*count, *operands], params)
        kept_ends, stack_ends, ys = parted(results, len(kept), len(stacks))
        ends = dict(zip(self.kept, kept_ends, strict=True))
        for numbers, stack in zip(self.numbers, stack_ends, strict=True):
            for place, number in enumerate(numbers):
                end = part_of(stack, 0, place, place + 1)
                ends[number] = reshape(end, shape=stack.shape[1:])
        return [*[ends[n] for n in range(self.shape.carry)], *ys]

    def _own(self, way: _Way) -> Var:
        """The carry that goes this way."""
        return next(leaf for leaf in way.leaves if leaf in self.before)

    def _body(self, parts: Sequence[_Pack], types: Any, extra_rows: Any) -> Program:
        """The program of a round."""
        old = self.program.input_types
        consts, carry, rows = parted(old, self.shape.consts, self.shape.carry)
        many = len(types) - len(parts)
        own = [carry[n] for n in self.kept]
        fresh = [x.type.with_shape((*x.type.shape[1:],)) for x in extra_rows]
        inputs = (*consts, *types[:many], *own, *types[many:], *rows, *fresh)

        def run(*args: Any) -> list[Any]:
            fixed, extra, kept, stacks, row, more = parted(
                args, len(consts), many, len(own), len(parts), len(rows)
            )
            known = dict(zip(self.program.inputs[: len(consts)], fixed, strict=True))
            known |= zip([self.before[n] for n in self.kept], kept, strict=True)
            last = self.program.inputs[len(consts) + len(carry) :]
            known |= zip(last, row, strict=True)
            ends = [self.program.outputs[n] for n in self.kept]
            ends += self.program.outputs[len(carry) :]
            rest = _restricted(self.program, ends, list(known))
            results = evaluate(rest, list(known.values()))
            given, streams = list(extra), list(more)
            packed = []
            for part, stack in zip(parts, stacks, strict=True):
                packed.append(part.run(known, stack, given, streams))
            return [*results[: len(own)], *packed, *results[len(own) :]]

        return rewrite(run, inputs, "packing", self.program)


@record
class _Pack:
    """The batched program of several ways, and where it finds its operands.

    `sources` has an entry for each leaf: "carry", "const" or "row" of a stack, or the
    variable that all ways share.
    """

    program: Program
    sources: tuple[Any, ...]
    stacked_consts: tuple[tuple[Var, ...], ...]
    stacked_rows: tuple[tuple[Var, ...], ...]

    @staticmethod
    def of(ways: Sequence[_Way], own: Var, rows: set[Any]) -> _Pack:
        """The pack of ways of one key; `own` is the carry of the first."""
        first = ways[0]
        sources: list[Any] = []
        consts, streams = [], []
        for place, leaf in enumerate(first.leaves):
            column = tuple([way.leaves[place] for way in ways])
            if leaf is own:
                sources.append("carry")
            elif len(set(column)) == 1:
                sources.append(leaf)
            elif all(var in rows for var in column):
                sources.append("row")
                streams.append(column)
            else:
                sources.append("const")
                consts.append(column)
        single = simplify(Program(first.leaves, first.eqns, (first.end,)))
        mapped = tuple([isinstance(source, str) for source in sources])
        lifted, _ = batch_program(single, MappedAxis(None, len(ways)), mapped)
        return _Pack(lifted, tuple(sources), tuple(consts), tuple(streams))

    def run(self, known: dict[Any, Any], stack: Any, consts: Any, rows: Any) -> Any:
        """The next stack; stacked operands are taken from the lists in order."""
        args = []
        for source in self.sources:
            if source == "carry":
                args.append(stack)
            elif source == "const":
                args.append(consts.pop(0))
            elif source == "row":
                args.append(rows.pop(0))
            else:
                args.append(known[source])
        (end,) = evaluate(self.program, args)
        return end


def _restricted(program: Program, ends: Sequence[Atom], inputs: list[Any]) -> Program:
    """The program of some outputs, over those inputs that they need."""
    return simplify(Program(tuple(inputs), program.eqns, tuple(ends)))


def _stack(values: Sequence[Any], axis: int) -> Any:
    """Arrays stacked along a new axis."""
    rows = []
    for x in values:
        shape = x.type.shape
        rows.append(reshape(x, shape=(*shape[:axis], 1, *shape[axis:])))
    return concatenate(*rows, axis=axis)
