"""What the rules of loops share: carries, rows, and what is the same in every round.

A loop's program takes constants, the carry and rows, in this order, and gives the next
carry and rows of results. Receives such programs and equations that hold them.
Next on the walk: `scan.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fnx import errors
from fnx.control.call import call, made_by
from fnx.control.held import (
    arranged,
    both,
    either,
    equation_like,
    new_vars,
    parted,
    settled,
)
from fnx.control.lanes import lane
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Atom, Eqn, Program, Var
from fnx.core.simplify import needed_inputs, simplify
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.families import along
from fnx.ops.shape import permute
from fnx.records import record
from fnx.sizes import usual
from fnx.transforms.rewrite import Mask
from fnx.transforms.split import split_program
from fnx.transforms.transpose import pull_back


@record
class Shape:
    """How the operands of a scan are divided, and how it runs.

    First come `consts`, then `carry`, then the arrays whose rows are read. If it is
    `reverse`d, it begins with the last row. If it is `counted`, the first operand of
    all is an int32 scalar: there are only so many rows, whatever is behind them. If it
    is `local`, rounds make more than they read, and what they make stays with them: no
    products are made for all of them at once.
    """

    consts: int
    carry: int
    length: int
    reverse: bool = False
    counted: bool = False
    local: bool = False

    @property
    def first(self) -> int:
        """How many operands stand before those of the program."""
        return int(self.counted)

    def cut(self, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """What belongs to the program's operands: consts, carry and rows."""
        return parted(values, self.consts, self.carry)


def stacked(type: ArrayType, length: int) -> ArrayType:
    """The type of so many rows of a type."""
    return type.with_shape((length, *type.shape))


def check_carry(
    name: str, carry: Sequence[ArrayType], ends: Sequence[ArrayType]
) -> None:
    """Raises unless a round gives a carry of the types that it takes."""
    for before, after in zip(carry, ends, strict=True):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise errors.ShapeError(
                f"{name}: the carry is {before} before a round, {after} after it"
            )


# ---------------------------------------------------------------- carries


def spread_carry(start: Mask, found: Callable[[Mask], Mask]) -> Mask:
    """Which carries have something (a tangent, an axis) after any number of rounds.

    `found` says which outputs of a round have it, if those carries have.
    """

    def grow(carry: Mask) -> Mask:
        return either(carry, found(carry)[: len(carry)])

    return settled(start, grow)


def known_carry(program: Program, consts: Mask, start: Mask, rows: Mask) -> Mask:
    """Which carries are known in every round, by what is known before the first."""
    many = len(program.outputs) - len(start)

    def shrink(carry: Mask) -> Mask:
        kept = (*carry, *[True] * many)
        parts = split_program(program, (*consts, *carry, *rows), kept)
        return both(carry, parts.outputs_known[: len(carry)])

    return settled(start, shrink)


# ---------------------------------------------------------------- tangents


def interleaved(
    moved: Program,
    consts: int,
    carry: int,
    moving: Mask,
    wanted: Mask,
    width: int = 1,
) -> Program:
    """A loop's program with tangents, each kind behind the values of that kind.

    There are `width` of them for everything that moves.
    """
    tangents = _groups(len(moving), moving, width)
    inputs: list[int] = []
    parts = zip(
        parted(range(len(moving)), consts, carry),
        parted(tangents, consts, carry),
        strict=True,
    )
    for values, moves in parts:
        inputs += [*values, *[t for group in moves for t in group]]
    count = len(wanted)
    ends = _groups(count, wanted, width)
    outputs = [
        *range(carry),
        *[t for group in ends[:carry] for t in group],
        *range(carry, count),
        *[t for group in ends[carry:] for t in group],
    ]
    return arranged(moved, inputs, outputs)


def _groups(first: int, mask: Mask, width: int) -> list[range]:
    """The numbers of the tangents of each value, from `first` on."""
    starts = itertools.accumulate([first, *[width * marked for marked in mask]])
    rows = zip(starts, mask, strict=False)
    return [range(start, start + width * marked) for start, marked in rows]


# ---------------------------------------------------------------- batching


def swapped(x: Any) -> Any:
    """An array with its first two axes exchanged."""
    return permute(x, dims=(1, 0, *range(2, len(x.shape))))


def lifted(
    axis: MappedAxis, values: Sequence[Any], mapped: Sequence[bool], wanted: Mask
) -> list[Any]:
    """The values, repeated along the axis where it is wanted and not there."""
    rows = zip(values, mapped, wanted, strict=True)
    return [along(axis, x) if want and not has else x for x, has, want in rows]


def lifted_rows(rows: Sequence[Any], mapped: Sequence[bool]) -> list[Any]:
    """Stacks of rows with the mapped axis behind that of the rows."""
    return [swapped(x) if has else x for x, has in zip(rows, mapped, strict=True)]


def before_permutes(program: Program, first: int) -> tuple[Program, Sequence[Any]]:
    """A loop's program whose rows, outputs from `first` on, are not permuted in it.

    Besides it how each is permuted outside of the loop, if it is. What reads the rows
    often moves the axes back, and then nothing is moved.
    """
    makers: dict[Any, Eqn] = {
        eqn.outputs[0]: eqn for eqn in program.eqns if eqn.primitive is permute
    }
    ends = list(program.outputs)
    dims: list[Any] = []
    for number in range(first, len(ends)):
        maker = makers.get(ends[number])
        dims.append(None if maker is None else maker.params["dims"])
        if maker is not None:
            ends[number] = maker.inputs[0]
    bare = Program(program.inputs, program.eqns, tuple(ends))
    return (simplify(bare) if any(dims) else program), dims


def rows_taken_in(
    inputs: Sequence[Atom],
    makers: Mapping[Var, Eqn],
    program: Program,
    shape: Any,
) -> tuple[Sequence[Atom], dict[str, Any]] | None:
    """The operands and params of a scan that itself permutes rows, or chooses lanes.

    What makes some of its rows is made of each row then, in the round that reads it.
    """
    atoms, variables = list(inputs), list(program.inputs)
    marks: dict[Atom, Var] = {}
    eqns: list[Eqn] = []
    begin = shape.consts + shape.carry
    made = made_by(inputs[shape.first + begin :], makers, (permute, lane))
    for number, maker in made.items():
        *front, source = maker.inputs
        params = dict(maker.params)
        if maker.primitive is permute:
            dims = params["dims"]
            if dims[0] != 0:
                continue
            params["dims"] = tuple([d - 1 for d in dims[1:]])
        atoms[shape.first + begin + number] = source
        row = Var(source.type.with_shape(source.type.shape[1:]))
        old, variables[begin + number] = variables[begin + number], row
        given = [marks.setdefault(atom, Var(atom.type)) for atom in front]
        eqns.append(Eqn(maker.primitive, (*given, row), (old,), params, maker.source))
    if not eqns:
        return None
    atoms[shape.first : shape.first] = marks
    taken = (*marks.values(), *variables)
    inside = Program(taken, (*eqns, *program.eqns), program.outputs)
    wider = replace(shape, consts=shape.consts + len(marks))
    return atoms, {"program": simplify(inside), "shape": wider}


def permuted(stacks: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
    """Stacks of rows that are permuted so."""
    rows = zip(stacks, dims, strict=True)
    return [
        x if axes is None else permute(x, dims=(0, *[d + 1 for d in axes]))
        for x, axes in rows
    ]


# ---------------------------------------------------------------- padding


def padded_rounds(
    primitive: Primitive, pads: Pads, inputs: Sequence[Padded], shape: Shape
) -> Any:
    """A scan whose rows, and the number of them, may vary."""
    if replace(pads.now["shape"], length=shape.length) != shape:
        raise pads.cannot("another number of arrays goes through it")
    program, more = pads.held("program")
    arrays = [x.array for x in inputs]
    count, operands = arrays[: shape.first], arrays[shape.first :]
    (length,) = pads.extents(lambda params: (params["shape"].length,))
    if length.varies and not count:
        count = [pads.number(length)]
    taken = replace(shape, consts=shape.consts + len(more), counted=bool(count))
    return primitive(*count, *more, *operands, program=program, shape=taken)


def padded_while(
    primitive: Primitive, pads: Pads, inputs: Sequence[Padded], shape: Any
) -> Any:
    """A while loop over padded arrays."""
    if pads.now["shape"] != shape:
        raise pads.cannot("another number of arrays goes through it")
    test, asked = pads.held("test")
    body, needed = pads.held("body")
    tests, consts, carry = shape.cut([x.array for x in inputs])
    count = replace(
        shape, tests=shape.tests + len(asked), consts=shape.consts + len(needed)
    )
    operands = [*asked, *tests, *needed, *consts, *carry]
    return primitive(*operands, test=test, body=body, shape=count)


# ---------------------------------------------------------------- unused parts


def live_carry(program: Program, consts: int, used: Mask, carry: Mask) -> Mask:
    """Which carries are needed for those marked and for the used outputs."""
    count = len(carry)
    found = needed_inputs(program, (*carry, *used[count:]))[consts : consts + count]
    return tuple([a or b for a, b in zip(carry, found, strict=True)])


# ---------------------------------------------------------------- invariants


def invariant(
    program: Program, consts: int, copies: bool
) -> tuple[Program, Program] | None:
    """A loop's program cut in what depends on its constants alone, and the rest.

    The first takes the constants; the second takes what the first gives, and then what
    the program takes. `None` if there is nothing to be computed once. Unless `copies`
    are wanted, what is as cheap to compute as to load stays where it is.
    """
    available = set(program.inputs[:consts])
    early, late = [], []
    for eqn in program.eqns:
        inputs = [atom for atom in eqn.inputs if isinstance(atom, Var)]
        fixed = inputs and available.issuperset(inputs) and not eqn.effect
        if fixed and (copies or not _is_copy(eqn)):
            early.append(eqn)
            available.update(eqn.outputs)
        else:
            late.append(eqn)
    made = {var for eqn in early for var in eqn.outputs}
    read = [atom for eqn in late for atom in eqn.inputs] + list(program.outputs)
    results = tuple(dict.fromkeys(a for a in read if isinstance(a, Var) and a in made))
    if not results:
        return None
    first = Program(program.inputs[:consts], tuple(early), results)
    rest = Program((*results, *program.inputs), tuple(late), program.outputs)
    return simplify(first), rest


def _is_copy(eqn: Eqn) -> bool:
    """Whether an equation is cheap, and gives more elements than it takes."""
    most = max(usual(atom.type.size) for atom in eqn.inputs)
    made = max(usual(var.type.size) for var in eqn.outputs)
    return bool(eqn.primitive.cheap and made > most)


def hoisted_equation(eqn: Eqn, program: Program, consts: Sequence[Any]) -> Eqn:
    """What the invariants of a loop's equation are: its first program applied."""
    outputs = new_vars(program.output_types)
    params = {"program": program, "name": "invariant"}
    return Eqn(call, tuple(consts), outputs, params, eqn.source)


def invariants_before(eqn: Eqn) -> Sequence[Eqn] | None:
    """A scan before which is computed what depends on its constants alone."""
    shape = eqn.params["shape"]
    found = invariant(eqn.params["program"], shape.consts, copies=False)
    if found is None:
        return None
    count, inputs = eqn.inputs[: shape.first], eqn.inputs[shape.first :]
    before = hoisted_equation(eqn, found[0], inputs[: shape.consts])
    consts = shape.consts + len(before.outputs)
    params = {"program": found[1], "shape": replace(shape, consts=consts)}
    after = (*count, *before.outputs, *inputs)
    return before, equation_like(eqn, after, eqn.outputs, params)


# ---------------------------------------------------------------- splitting


@record
class KnownRounds:
    """The known part of a loop, and where the unknown part finds its residuals.

    `before` computes what all rounds share. `program` takes `consts` constants, carries
    and rows, which are `inputs`; its last outputs are the residuals to be stacked, of
    `stacked_types`. Residuals are `shared` by all rounds (numbers of inputs), `passed`
    from the rows that the loop is given, or stacked (numbers of outputs).
    """

    before: tuple[Eqn, ...]
    program: Program
    inputs: tuple[Atom, ...]
    consts: int
    shared: dict[int, int]
    passed: dict[int, int]
    stacked: dict[int, int]
    stacked_types: tuple[ArrayType, ...]

    @staticmethod
    def of(
        eqn: Eqn,
        program: Program,
        residuals: int,
        inputs: tuple[Atom, ...],
        consts: int,
        carry: int,
    ) -> KnownRounds:
        """What `program`, the known part of the equation's, becomes.

        Its last outputs are the residuals; its `inputs` begin with constants and carry.
        """
        before: tuple[Eqn, ...] = ()
        found = invariant(program, consts, copies=True)
        if found is not None:
            before = (hoisted_equation(eqn, found[0], inputs[:consts]),)
            program = found[1]
            inputs = (*before[0].outputs, *inputs)
            consts += len(before[0].outputs)
        numbers: dict[Atom, int] = {var: n for n, var in enumerate(program.inputs)}
        first = len(program.outputs) - residuals
        ends = program.outputs[first:]
        shared: dict[int, int] = {}
        passed: dict[int, int] = {}
        stacks: dict[int, int] = {}
        for residual, end in enumerate(ends):
            number = numbers.get(end)
            if number is None or consts <= number < consts + carry:
                stacks[residual] = first + len(stacks)
            elif number < consts:
                shared[residual] = number
            else:
                passed[residual] = number
        kept = (*program.outputs[:first], *[ends[i] for i in stacks])
        types = tuple([ends[i].type for i in stacks])
        known = Program(program.inputs, program.eqns, kept)
        return KnownRounds(before, known, inputs, consts, shared, passed, stacks, types)

    @property
    def constants(self) -> list[Atom]:
        """The residuals that all rounds share."""
        return [self.inputs[n] for n in self.shared.values()]

    @property
    def rows(self) -> list[Atom]:
        """The residuals that are rows of what the loop is given."""
        return [self.inputs[n] for n in self.passed.values()]

    def rest(self, unknown: Program, consts: int, carry: int) -> Program:
        """The unknown part as a loop's program.

        It takes the residuals, then `consts` constants, `carry` carries, and rows.
        """
        count = len(self.shared) + len(self.passed) + len(self.stacked)
        own = parted(range(count, len(unknown.inputs)), consts, carry)
        return arranged(
            unknown,
            [*self.shared, *own[0], *own[1], *self.passed, *self.stacked, *own[2]],
        )


# ---------------------------------------------------------------- transposition


def transposed_after_split(
    primitive: Primitive, ct: Sequence[Any], inputs: Sequence[Any], params: Any
) -> list[Any]:
    """The cotangents of an equation that computes more than what is linear.

    The rest is computed first, then what is linear is transposed.
    """
    types = [x.type for x in inputs]
    known = [not is_linear(x) for x in inputs]
    outputs = new_vars(primitive.infer(*types, **params))
    variables = new_vars(types)
    parts = primitive.split(known, Eqn(primitive, variables, outputs, params, None))
    if parts is None:
        raise errors.ArgumentError(f"{primitive.name}: it is not linear")
    rows = zip(variables, inputs, strict=True)
    values = {var: x for var, x in rows if not is_linear(x)}
    for early in parts[0]:
        given = [values[a] if isinstance(a, Var) else a for a in early.inputs]
        results = bind(early.primitive, given, early.params)
        values.update(zip(early.outputs, results, strict=True))
    late = Program(variables, tuple(parts[1]), outputs)
    ends = [(var, c) for var, c in zip(outputs, ct, strict=True) if c is not None]
    found = pull_back(late, values, [v for v, _ in ends], [c for _, c in ends])
    return [None if k else found.get(v) for v, k in zip(variables, known, strict=True)]
