"""`cond`: one of several programs runs, chosen by an index that is known at run time.

Its rules transform every branch, and have the branches agree on what they give. Where
the index differs along a batch (`vmap`), each branch runs for the members that chose
it, and only if there are any; with effects, for one member after the other. Receives
an index and operands, gives the outputs of the branch.
Next on the walk: `lanes.py`, then `scan.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import errors
from fnx.control.call import (
    Parts,
    check_arguments,
    chosen,
    made_by,
    series_results,
    spread,
    taken_in,
    with_outputs,
)
from fnx.control.findings import Checked, behind
from fnx.control.held import (
    either,
    equation_like,
    filled,
    flattened,
    new_vars,
    order_of,
    others,
    parted,
    with_axis,
    with_cotangents,
    with_series,
    with_tangents,
    zeros,
)
from fnx.control.keep import Keep, Kept, flat
from fnx.control.lanes import is_for_all, lane, lane_program, selected
from fnx.control.scan import member_by_member
from fnx.control.unwritten import (
    blank_outputs,
    permuted_back,
    unwritten,
    without_permutes,
)
from fnx.core.links import joined
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Atom, Eqn, Program, Var, unfilled_outputs
from fnx.core.reference import run_reference
from fnx.core.simplify import needed_inputs
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.dtypes import int32
from fnx.ops.elementwise import clamp, convert, eq
from fnx.ops.reduce import reduce_or
from fnx.ops.shape import permute, scalar
from fnx.records import record
from fnx.transforms.batch import batch_program
from fnx.transforms.jet import jet_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.shard import Part
from fnx.transforms.split import Split, split_program
from fnx.transforms.transpose import transpose_program

Branches = tuple[Program, ...]


class _Cond(Primitive):
    """cond(index, *operands, branches): the outputs of the branch of that number.

    The index is an int32 scalar; one that is out of range is moved inside. All branches
    take the operands, and give outputs of the same types.
    """

    multiple = True
    compiled = True
    linear = True
    sees_axes = True
    sized = ("branches",)

    def infer(self, *types: ArrayType, branches: Branches) -> tuple[ArrayType, ...]:
        """The output types of the branches."""
        index, *operands = types
        if index.shape or index.dtype != int32:
            raise errors.DTypeError(f"cond: the index is {index}, not an int32 scalar")
        for branch in branches:
            check_arguments("cond", branch, operands)
        return branches[0].output_types

    def reference(self, index: Any, *operands: Any, branches: Branches) -> Any:
        """The chosen branch by its reference rules."""
        number = int(np.clip(index, 0, len(branches) - 1))
        return tuple(run_reference(branches[number], operands))

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, branches: Branches
    ) -> tuple[Any, Any]:
        """The branch with tangents."""
        moving = tuple([t is not None for t in tangents[1:]])
        wanted = _any_of([jvp_program(branch, moving)[1] for branch in branches])
        moved = [with_tangents(branch, moving, wanted) for branch in branches]
        given = [t for t in tangents if t is not None]
        results = self(*primals, *given, branches=unwritten(moved))
        count = len(branches[0].outputs)
        return results[:count], spread(results[count:], wanted)

    def jet(
        self, primals: Sequence[Any], series: Sequence[Any], *, branches: Branches
    ) -> tuple[Any, Any]:
        """The branch with derivatives."""
        order = order_of(series)
        moving = tuple([terms is not None for terms in series[1:]])
        wanted = _any_of([jet_program(branch, order, moving)[1] for branch in branches])
        moved = [with_series(b, order, moving, wanted) for b in branches]
        given = flattened(series[1:], moving)
        results = self(*primals, *given, branches=unwritten(moved))
        return series_results(results, wanted, order)

    def split(self, known: Sequence[bool], eqn: Eqn) -> Parts | None:
        """Two choices by the same index; residuals of all branches share places."""
        if not known[0]:
            return None
        branches: Branches = eqn.params["branches"]
        mask = tuple(known[1:])
        found = [split_program(branch, mask).outputs_known for branch in branches]
        kept = tuple(map(all, zip(*found, strict=True)))
        parts = [split_program(branch, mask, kept) for branch in branches]
        return _split_equation(eqn, mask, kept, parts)

    def transpose(
        self, ct: Any, index: Any, *operands: Any, branches: Branches
    ) -> Sequence[Any]:
        """The branch transposed."""
        linear = tuple([is_linear(x) for x in operands])
        given = tuple([c is not None for c in ct])
        wanted = _any_of([transpose_program(b, linear, given)[1] for b in branches])
        turned = [with_cotangents(b, linear, given, wanted) for b in branches]
        cts = [c for c in ct if c is not None]
        fixed = others(operands, linear)
        results = self(index, *fixed, *cts, branches=unwritten(turned))
        return [None, *spread(spread(results, wanted), linear)]

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        branches: Branches,
    ) -> tuple[Any, Any]:
        """One batched branch, or each for the members that chose it."""
        if mapped[0] and any(branch.effect for branch in branches):
            params = {"branches": branches}
            return member_by_member(self, axis, args, mapped, params)
        if mapped[0]:
            return self._lanes(axis, args, tuple(mapped[1:]), branches)
        flags = tuple(mapped[1:])
        wanted = _any_of([batch_program(b, axis, flags)[1] for b in branches])
        lifted = [with_axis(b, axis, flags, wanted) for b in branches]
        bare, dims = without_permutes(lifted)
        results = self(*args, branches=bare)
        return permuted_back(results, dims), wanted

    def _lanes(
        self, axis: MappedAxis, args: Sequence[Any], mapped: Mask, branches: Branches
    ) -> tuple[Any, Any]:
        """The branches where members choose differently."""
        index, *operands = args
        index = clamp(index, 0, len(branches) - 1)
        wanted = (True,) * len(branches[0].outputs)
        results: list[Any] = [None] * len(wanted)
        for number, branch in enumerate(branches):
            mask = eq(index, scalar(number, int32))
            if is_for_all(branch):
                lifted = with_axis(branch, axis, mapped, wanted)
                found: Sequence[Any] = evaluate(lifted, operands)
            else:
                run = lane_program(branch, axis, mapped, wanted)
                pair, dims = without_permutes(unwritten([_zeros(run), run]))
                any_chose = convert(reduce_or(mask, axes=(0,)), dtype=int32)
                found = self(any_chose, mask, *operands, branches=pair)
                found = permuted_back(found, dims)
            results = _merged(mask, found, results, blank_outputs(branch))
        ends = zip(results, found, strict=True)
        return [last if x is None else x for x, last in ends], wanted

    def padded(
        self, pads: Pads, index: Padded, *operands: Padded, branches: Branches
    ) -> Any:
        """Every branch takes what any of them needs besides its operands."""
        held = [pads.held("branches", n) for n in range(len(branches))]
        more = [x for _, captured in held for x in captured]
        taking: list[Program] = []
        first = 0
        for program, captured in held:
            own = parted(program.inputs, len(captured))
            others_before = new_vars([x.type for x in more[:first]])
            first += len(captured)
            others_after = new_vars([x.type for x in more[first:]])
            inputs = (*others_before, *own[0], *others_after, *own[1])
            taking.append(Program(inputs, program.eqns, program.outputs))
        arrays = [x.array for x in operands]
        return self(index.array, *more, *arrays, branches=tuple(taking))

    def dependences(
        self,
        follow: Any,
        sets: Sequence[Any],
        known: Sequence[Any],
        *,
        branches: Branches,
    ) -> Sequence[Any]:
        """What any branch depends on."""
        found = [follow(branch, sets[1:], known[1:]) for branch in branches]
        return [joined(row) for row in zip(*found, strict=True)]

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """The branch over parts; all devices choose the same one."""
        specs = [part.spec for part in parts[1:]]
        branches, outs = cutter.branches(eqn.params["branches"], specs)
        results = self(*[part.value for part in parts], branches=branches)
        return [Part(x, spec) for x, spec in zip(results, outs, strict=True)]

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """Branches without the outputs, and the inputs, that nobody needs."""
        branches: Branches = eqn.params["branches"]
        needed = _any_of([needed_inputs(branch, used) for branch in branches])
        if all(used) and all(needed):
            return eqn
        slim = tuple([with_outputs(branch, needed, used) for branch in branches])
        inputs = (eqn.inputs[0], *chosen(eqn.inputs[1:], needed))
        outputs = chosen(eqn.outputs, used)
        return equation_like(eqn, inputs, outputs, {"branches": slim})

    def kept(self, eqn: Eqn, used: Sequence[bool], keep: Keep) -> Kept | None:
        """Values of the branches, which share places where they are of one type."""
        branches = [flat(branch) for branch in eqn.params["branches"]]
        wanted = [chosen(branch.outputs, used) for branch in branches]
        insides = [keep(*pair) for pair in zip(branches, wanted, strict=True)]
        saving = [
            Program(b.inputs, i.eqns, i.saved)
            for b, i in zip(branches, insides, strict=True)
        ]
        asked = [_asked(program, 0, n) for n, program in enumerate(saving)]
        places = _shared(asked)
        if not places:
            return None
        types = [place.type for place in places]
        first, again = [], []
        rows = zip(branches, wanted, insides, asked, strict=True)
        for branch, ends, inside, own in rows:
            at = _placed(own, places)
            first.append(_saving(branch, inside, at, types))
            given = list(new_vars(types))
            for place, number in at.items():
                given[place] = inside.saved[number]
            again.append(Program((*branch.inputs, *given), inside.again, ends))
        saved = new_vars(types)
        early = equation_like(
            eqn, eqn.inputs, (*eqn.outputs, *saved), {"branches": unwritten(first)}
        )
        late = equation_like(
            eqn,
            (*eqn.inputs, *saved),
            chosen(eqn.outputs, used),
            {"branches": tuple(again)},
        )
        return Kept((early,), (self.pruned(late, [True] * len(late.outputs)),), saved)

    def unfilled(self, eqn: Eqn, given: Sequence[bool]) -> Sequence[bool]:
        """Where any branch gives such."""
        return _any_of([unfilled_outputs(b, given[1:]) for b in eqn.params["branches"]])

    def absorb(
        self,
        inputs: Sequence[Atom],
        makers: Mapping[Var, Eqn],
        *,
        branches: Branches,
    ) -> tuple[Sequence[Atom], dict[str, Any]] | None:
        """Operands are permuted, and their lanes chosen, in the branches."""
        found = made_by(inputs[1:], makers, (permute, lane))
        if not found:
            return None
        given, inside = taken_in(inputs[1:], found, branches)
        return (inputs[0], *given), {"branches": inside}

    def checked(self, found: Any, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
        """Branches with the codes of their own sites, and zeros for other sites."""
        checked = [found.check(branch) for branch in eqn.params["branches"]]
        numbers = range(len(checked))
        agreed = tuple([_agreed(checked, number) for number in numbers])
        outputs, values = parted(self(*inputs, branches=agreed), len(eqn.outputs))
        found.take(checked, values)
        return outputs

    def steps(self, plan: Any, *inputs: Any, branches: Branches) -> None:
        """A branch of machine code."""
        plan.branch(inputs[0], inputs[1:], branches)


cond = _Cond("cond")


def _any_of(masks: Sequence[Mask]) -> Mask:
    result = masks[0]
    for mask in masks[1:]:
        result = either(result, mask)
    return result


def _zeros(like: Program) -> Program:
    """A program that takes what another one takes, and gives zeros of its types."""
    types = like.output_types
    return rewrite(lambda *_: [zeros(t) for t in types], like.input_types, "cond", like)


def _merged(
    mask: Any, found: Sequence[Any], before: Sequence[Any], blanks: Mask
) -> list[Any]:
    """What a branch has found in the lanes of a mask, what there was in the others.

    Where one of both is blank (`None` before), the other one serves all lanes.
    """
    both = [
        x is not None and not is_blank
        for x, is_blank in zip(before, blanks, strict=True)
    ]
    picked = spread(selected(mask, chosen(found, both), chosen(before, both)), both)
    rows = zip(picked, found, before, blanks, strict=True)
    return [
        pick if pick is not None else old if is_blank else new
        for pick, new, old, is_blank in rows
    ]


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
            code = behind(values[0], before)
        shown: list[Any] = []
        for part in checked:
            shown += values[1:] if part is own else map(zeros, part.types[1:])
        return [*outputs, code, *shown]

    return rewrite(run, own.program.input_types, "check", own.program)


# ---------------------------------------------------------------- splitting


@record
class _Residuals:
    """Where the residuals of one branch are.

    `places` has one for each: the number of a common place, or `None` for an operand
    that is passed on, whose number `passed` has then.
    """

    places: tuple[int | None, ...]
    passed: tuple[int | None, ...]


def _split_equation(eqn: Eqn, known: Mask, kept: Mask, parts: Sequence[Split]) -> Parts:
    """The choice among the known parts, and the one among the unknown parts."""
    places = _places(parts)
    types = [place.type for place in places]
    rows = [_residuals(part, n, places) for n, part in enumerate(parts)]
    early_outputs = chosen(eqn.outputs, kept)
    early = equation_like(
        eqn,
        (eqn.inputs[0], *chosen(eqn.inputs[1:], known)),
        (*early_outputs, *new_vars(types)),
        {
            "branches": unwritten(
                [
                    _known_branch(part, row, len(early_outputs), types)
                    for part, row in zip(parts, rows, strict=True)
                ]
            )
        },
    )
    passed = sorted({i for row in rows for i in row.passed if i is not None})
    known_inputs = chosen(eqn.inputs[1:], known)
    late = equation_like(
        eqn,
        (
            eqn.inputs[0],
            *early.outputs[len(early_outputs) :],
            *[known_inputs[i] for i in passed],
            *others(eqn.inputs[1:], known),
        ),
        others(eqn.outputs, kept),
        {
            "branches": tuple(
                [
                    _unknown_branch(part, row, types, passed)
                    for part, row in zip(parts, rows, strict=True)
                ]
            )
        },
    )
    return [early], [late]


def _ends(part: Split) -> tuple[Any, ...]:
    """What the known part gives as residuals."""
    return part.known.outputs[len(part.known.outputs) - len(part.residuals) :]


@record
class _Place:
    """A place for what branches pass on.

    Rows that are never all filled are in a place of their `branch` alone: lanes that
    choose different branches then need not be brought together.
    """

    type: ArrayType
    branch: int | None


def _asked(program: Program, count: int, branch: int) -> list[_Place]:
    """The places for all outputs of a branch's program behind so many."""
    rows = zip(program.outputs, unfilled_outputs(program), strict=True)
    return [_Place(a.type, branch if own else None) for a, own in rows][count:]


def _places(parts: Sequence[Split]) -> list[_Place]:
    """The places of the residuals that are computed."""
    computed = []
    for number, part in enumerate(parts):
        inputs = set(part.known.inputs)
        rows = zip(_wanted(part, number), _ends(part), strict=True)
        computed.append([place for place, end in rows if end not in inputs])
    return _shared(computed)


def _wanted(part: Split, number: int) -> list[_Place]:
    """The places that all residuals of a branch would have."""
    count = len(part.known.outputs) - len(part.residuals)
    places = _asked(part.known, count, number)
    pairs = zip(part.residuals, places, strict=True)
    return [replace(place, type=type) for type, place in pairs]


def _shared(wanted: Sequence[Sequence[_Place]]) -> list[_Place]:
    """As many places as the values of any branch need."""
    most: Counter[_Place] = Counter()
    for own in wanted:
        most |= Counter(own)
    return [place for place, count in most.items() for _ in range(count)]


def _placed(wanted: Sequence[_Place], places: Sequence[_Place]) -> dict[int, int]:
    """Which places values take, and the number of the value there."""
    free = list(range(len(places)))
    at: dict[int, int] = {}
    for number, asked in enumerate(wanted):
        place = next(n for n in free if places[n] == asked)
        free.remove(place)
        at[place] = number
    return at


def _saving(
    branch: Program, inside: Kept, at: dict[int, int], places: Sequence[ArrayType]
) -> Program:
    """A branch with a saved value at every place, zeros where it has none."""
    first = Program(branch.inputs, inside.eqns, (*branch.outputs, *inside.saved))
    count = len(branch.outputs)

    def run(*args: Any) -> list[Any]:
        outputs, saved = parted(evaluate(first, args), count)
        found = [saved[at[n]] if n in at else None for n in range(len(places))]
        return [*outputs, *filled(found, [True] * len(places), places)]

    return rewrite(run, branch.input_types, "remat", branch)


def _residuals(part: Split, number: int, places: Sequence[_Place]) -> _Residuals:
    numbers = {var: n for n, var in enumerate(part.known.inputs)}
    free = list(range(len(places)))
    taken: list[int | None] = []
    passed: list[int | None] = []
    for asked, end in zip(_wanted(part, number), _ends(part), strict=True):
        passed.append(numbers.get(end) if isinstance(end, Var) else None)
        place = None
        if passed[-1] is None:
            place = next(n for n in free if places[n] == asked)
            free.remove(place)
        taken.append(place)
    return _Residuals(tuple(taken), tuple(passed))


def _known_branch(
    part: Split, row: _Residuals, count: int, places: Sequence[ArrayType]
) -> Program:
    """The known part with a residual at every place, zeros where it has none."""
    at = {place: n for n, place in enumerate(row.places) if place is not None}

    def run(*args: Any) -> list[Any]:
        results = evaluate(part.known, args)
        found = [
            results[count + at[n]] if n in at else None for n in range(len(places))
        ]
        return results[:count] + filled(found, [True] * len(places), places)

    return rewrite(run, part.known.input_types, "split", part.known)


def _unknown_branch(
    part: Split, row: _Residuals, places: Sequence[ArrayType], passed: Sequence[int]
) -> Program:
    """The unknown part over all places, all operands passed on, and its inputs."""
    shared = [*new_vars(places)]
    given = [*new_vars([part.known.input_types[i] for i in passed])]
    inputs = part.unknown.inputs
    for n, (place, operand) in enumerate(zip(row.places, row.passed, strict=True)):
        if place is not None:
            shared[place] = inputs[n]
        else:
            assert operand is not None
            given[passed.index(operand)] = inputs[n]
    late = inputs[len(part.residuals) :]
    return Program((*shared, *given, *late), part.unknown.eqns, part.unknown.outputs)
