"""What a scan need not do row by row: products of rows, before the loop or after it.

A product that depends on the rows alone, not on the carry, is one large product over
all rows before the loop; one on which no carry depends is made after it. Products of
which the carry is the sum (the gradients of
weights) are one product after the loop, over rows that the loop stacks. Large products
are shared by threads, and read memory once for many rows.
Receives the equation of a scan; gives equations that do the same, or `None`.
Next on the walk: `while_loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fnx.control.call import call
from fnx.control.held import new_vars
from fnx.control.rounds import stacked
from fnx.core.primitive import MappedAxis
from fnx.core.program import Atom, Eqn, Program, Var, sub_programs
from fnx.core.simplify import simplify
from fnx.ops.arithmetic import add
from fnx.sizes import usual
from fnx.transforms.batch import batch_program

_MOST = 2**28
"""Bytes that may be stacked so that products are made at once."""


def products_before(eqn: Eqn) -> list[Eqn] | None:
    """A scan whose products of rows are made before it."""
    shape, program = eqn.params["shape"], eqn.params["program"]
    if shape.counted or usual(shape.length) < 2:
        return None
    consts = program.inputs[: shape.consts]
    rows = program.inputs[shape.consts + shape.carry :]
    early = _of_rows(program, consts, rows)
    products = {id(e) for e in early if e.primitive.gathers}
    late = [e for e in program.eqns if id(e) not in products]
    read = _read(late, program.outputs)
    wanted = [v for e in early if id(e) in products for v in e.outputs if v in read]
    if not wanted or not _fits(wanted, shape.length):
        return None
    first = simplify(Program((*consts, *rows), tuple(early), tuple(wanted)))
    mapped = (False,) * len(consts) + (True,) * len(rows)
    lifted, _ = batch_program(first, MappedAxis(None, shape.length), mapped)
    stacks = new_vars(lifted.output_types)
    given = (*eqn.inputs[: shape.consts], *eqn.inputs[shape.consts + shape.carry :])
    params = {"program": lifted, "name": "products of rows"}
    before = Eqn(call, given, stacks, params, eqn.source)
    rest = Program((*program.inputs, *wanted), tuple(late), program.outputs)
    inputs = (*eqn.inputs, *stacks)
    after = {"program": simplify(rest), "shape": shape}
    return [before, Eqn(eqn.primitive, inputs, eqn.outputs, after, eqn.source)]


def _read(eqns: Sequence[Eqn], outputs: Sequence[Atom]) -> set[Atom]:
    """What equations read that the outputs need, and the outputs."""
    needed = set(outputs)
    for eqn in reversed(eqns):
        if eqn.effect or not needed.isdisjoint(eqn.outputs):
            needed.update(eqn.inputs)
    return needed


def _of_rows(program: Program, consts: Sequence[Var], rows: Sequence[Var]) -> list[Eqn]:
    """The equations that depend on rows, but not on the carry."""
    known, of_rows = {*consts, *rows}, set(rows)
    found = []
    for eqn in program.eqns:
        inputs = [atom for atom in eqn.inputs if isinstance(atom, Var)]
        if eqn.effect or _is_personal(eqn) or not known.issuperset(inputs):
            continue
        if inputs and of_rows.isdisjoint(inputs):
            continue
        found.append(eqn)
        known.update(eqn.outputs)
        of_rows.update(eqn.outputs if inputs else ())
    return found


def _is_personal(eqn: Eqn) -> bool:
    """Whether it may call a function of the user's, which may know single rows only."""
    inner = any(program.personal for program in sub_programs(eqn))
    return eqn.primitive.personal or inner


def _fits(values: Sequence[Atom], length: int) -> bool:
    """Whether stacks of these values are small enough."""
    sizes = [x.type.size * x.type.dtype.itemsize for x in values]
    return bool(usual(sum(sizes) * length) <= _MOST)


# ---------------------------------------------------------------- results


def products_after(eqn: Eqn) -> list[Eqn] | None:
    """A scan whose products that no later round needs are made after it."""
    shape, program = eqn.params["shape"], eqn.params["program"]
    if shape.counted or usual(shape.length) < 2:
        return None
    late = _of_results(program, shape.carry)
    made = {var for e in late for var in e.outputs}
    ends = [(n, a) for n, a in enumerate(program.outputs) if a in made]
    begin = shape.consts + shape.carry
    consts, rows = program.inputs[: shape.consts], program.inputs[begin:]
    read = dict.fromkeys(a for e in late for a in e.inputs if isinstance(a, Var))
    stacks = [a for a in read if a not in made and a not in {*consts, *rows}]
    if not late or not _fits(stacks, shape.length):
        return None
    kept = [n for n, a in enumerate(program.outputs) if a not in made]
    outputs = (*[program.outputs[n] for n in kept], *stacks)
    rest = simplify(Program(program.inputs, program.eqns, outputs))
    extra = new_vars([stacked(atom.type, shape.length) for atom in stacks])
    results = (*[eqn.outputs[n] for n in kept], *extra)
    params = {"program": rest, "shape": shape}
    loop = Eqn(eqn.primitive, eqn.inputs, results, params, eqn.source)
    taken = (*consts, *rows, *stacks)
    last = simplify(Program(taken, tuple(late), tuple([a for _, a in ends])))
    mapped = (False,) * len(consts) + (True,) * (len(rows) + len(stacks))
    lifted, _ = batch_program(last, MappedAxis(None, shape.length), mapped)
    given = (*eqn.inputs[: shape.consts], *eqn.inputs[begin:], *extra)
    found = tuple([eqn.outputs[n] for n, _ in ends])
    call_params = {"program": lifted, "name": "products of results"}
    return [loop, Eqn(call, given, found, call_params, eqn.source)]


def _of_results(program: Program, carry: int) -> list[Eqn]:
    """Products on which no carry depends, and what is made of them."""
    needed = {a for a in program.outputs[:carry] if isinstance(a, Var)}
    apart = []
    for eqn in reversed(program.eqns):
        stays = eqn.effect or _is_personal(eqn)
        if stays or not needed.isdisjoint(eqn.outputs):
            needed.update(a for a in eqn.inputs if isinstance(a, Var))
        else:
            apart.append(eqn)
    found: list[Eqn] = []
    made: set[Atom] = set()
    for eqn in reversed(apart):
        if eqn.primitive.gathers or not made.isdisjoint(eqn.inputs):
            found.append(eqn)
            made.update(eqn.outputs)
    return found


# ---------------------------------------------------------------- sums


def sums_after(eqn: Eqn) -> list[Eqn] | None:
    """A scan whose sums of products are made after it."""
    shape, program = eqn.params["shape"], eqn.params["program"]
    if shape.counted or usual(shape.length) < 2:
        return None
    sums = _sums(program, shape.consts, shape.carry)
    rows = program.inputs[shape.consts + shape.carry :]
    fixed = set(program.inputs[: shape.consts])
    products = {
        n: term
        for n, term in sums.items()
        if term.primitive.gathers and fixed.isdisjoint(term.inputs)
    }
    known = {*rows, *program.outputs[shape.carry :]}
    needed = [a for term in products.values() for a in term.inputs]
    stacks = [a for a in dict.fromkeys(needed) if a not in known]
    if not products or not _fits(stacks, shape.length):
        return None
    known.update(stacks)
    for number, term in sums.items():
        if known.issuperset(term.inputs):
            products[number] = term
    return _with_sums_after(eqn, products, stacks)


def _sums(program: Program, consts: int, carry: int) -> dict[int, Eqn]:
    """By carry that only adds up terms: the equation of its term, a product or sum."""
    makers = {var: eqn for eqn in program.eqns for var in eqn.outputs}
    uses: dict[Atom, int] = {}
    for atom in [a for e in program.eqns for a in e.inputs] + list(program.outputs):
        uses[atom] = uses.get(atom, 0) + 1
    found = {}
    for number in range(carry):
        var, end = program.inputs[consts + number], program.outputs[number]
        adding = makers.get(end) if isinstance(end, Var) else None
        if adding is None or adding.primitive is not add or var not in adding.inputs:
            continue
        others = [atom for atom in adding.inputs if atom is not var]
        term = makers.get(others[0]) if len(others) == 1 else None  # type: ignore[arg-type]
        if term is None or term.primitive.over_rows(**term.params) is None:
            continue
        if uses[var] == 1 and uses[end] == 1 and uses[others[0]] == 1:
            found[number] = term
    return found


def _with_sums_after(
    eqn: Eqn, sums: dict[int, Eqn], stacks: Sequence[Atom]
) -> list[Eqn]:
    """The scan without the carries of those numbers, and then their sums."""
    shape, program = eqn.params["shape"], eqn.params["program"]
    kept = [n for n in range(shape.carry) if n not in sums]
    first, begin = shape.consts + shape.carry, shape.consts
    rows = program.inputs[first:]
    outputs = (*[program.outputs[n] for n in kept], *program.outputs[shape.carry :])
    rest = Program(
        (*program.inputs[:begin], *[program.inputs[begin + n] for n in kept], *rows),
        program.eqns,
        (*outputs, *stacks),
    )
    extra = new_vars([stacked(atom.type, shape.length) for atom in stacks])
    inputs = (
        *eqn.inputs[:begin],
        *[eqn.inputs[begin + n] for n in kept],
        *eqn.inputs[first:],
    )
    results = (*[eqn.outputs[n] for n in kept], *eqn.outputs[shape.carry :])
    params = {"program": simplify(rest), "shape": replace(shape, carry=len(kept))}
    loop = Eqn(eqn.primitive, inputs, (*results, *extra), params, eqn.source)
    where: dict[Atom, Any] = dict(zip(rows, eqn.inputs[first:], strict=True))
    ends = program.outputs[shape.carry :]
    where |= zip(ends, eqn.outputs[shape.carry :], strict=True)
    where |= zip(stacks, extra, strict=True)
    equations = [loop]
    for number, term in sums.items():
        terms = [where[atom] for atom in term.inputs]
        (total,) = new_vars([term.outputs[0].type])
        params = term.primitive.over_rows(**term.params) or {}
        equations.append(
            Eqn(term.primitive, tuple(terms), (total,), params, eqn.source)
        )
        start, end = eqn.inputs[begin + number], eqn.outputs[number]
        equations.append(Eqn(add, (start, total), (end,), {}, eqn.source))
    return equations
