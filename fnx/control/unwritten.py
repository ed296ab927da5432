"""What branches give of a loop's rows that another branch records: nothing is written.

A loop that records has memory for many more rows than it makes. Where branches must
agree on what they give, the others give such memory too, and leave it as it is: to fill
or move all of it would take gigabytes, of which nobody reads a byte.
Receives and gives branches, and programs of calls that hold such loops.
Next on the walk: `call.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fnx.core.program import Atom, Eqn, Literal, Program, Var, unfilled_outputs
from fnx.core.simplify import simplify
from fnx.core.types import ArrayType
from fnx.ops.blank import blank
from fnx.ops.rearrange import inverse
from fnx.ops.shape import broadcast_in_dim, permute
from fnx.transforms.rewrite import Mask

Branches = tuple[Program, ...]


def unwritten(branches: Sequence[Program]) -> Branches:
    """The branches, which give blanks in the place of zeros that nobody reads.

    Nobody does where some other branch gives rows that it has not filled: how many are
    read depends on the branch, and is none for zeros.
    """
    loose = _unfilled(branches)
    if not any(loose):
        return tuple(branches)
    return tuple([_with_blanks(branch, loose) for branch in branches])


def _unfilled(branches: Sequence[Program]) -> Mask:
    columns = zip(*map(unfilled_outputs, branches), strict=True)
    return tuple([any(column) for column in columns])


def _with_blanks(branch: Program, loose: Mask) -> Program:
    makers = _makers(branch)
    rows = zip(branch.outputs, loose, strict=True)
    blanks = {
        number: atom.type
        for number, (atom, is_loose) in enumerate(rows)
        if is_loose and _is_zeros(makers.get(atom))
    }
    return _replaced(branch, blanks, {})


def _replaced(
    branch: Program, blanks: Mapping[int, ArrayType], others: Mapping[int, Atom]
) -> Program:
    """The branch with blanks, and other values, in the place of some outputs."""
    if not blanks and not others:
        return branch
    numbers = [e.params["number"] for e in branch.eqns if e.primitive is blank]
    first = max(numbers, default=-1) + 1
    made = {
        end: _blank(type, first + place)
        for place, (end, type) in enumerate(blanks.items())
    }
    ends = dict(enumerate(branch.outputs)) | dict(others)
    ends |= {end: eqn.outputs[0] for end, eqn in made.items()}
    whole = Program(branch.inputs, (*branch.eqns, *made.values()), tuple(ends.values()))
    return simplify(whole)


def _blank(type: ArrayType, number: int) -> Eqn:
    params = {"shape": type.shape, "dtype": type.dtype, "weak": type.weak}
    return Eqn(blank, (), (Var(type),), params | {"number": number}, None)


def _makers(program: Program) -> dict[Atom, Eqn]:
    return {var: eqn for eqn in program.eqns for var in eqn.outputs}


def _is_zeros(maker: Eqn | None) -> bool:
    if maker is None or maker.primitive is not broadcast_in_dim:
        return False
    (source,) = maker.inputs
    return isinstance(source, Literal) and not source.value


def blank_outputs(program: Program) -> Mask:
    """Which outputs are blank as a whole."""
    makers = _makers(program)
    found = [makers.get(atom) for atom in program.outputs]
    return tuple([eqn is not None and eqn.primitive is blank for eqn in found])


# ---------------------------------------------------------------- permutations


def without_permutes(
    branches: Sequence[Program],
) -> tuple[Branches, Sequence[tuple[int, ...] | None]]:
    """Branches that do not permute rows which nobody fills, and how each is permuted.

    That is done outside, where what reads the rows often moves the axes back.
    """
    loose = _unfilled(branches)
    if not any(loose):
        return tuple(branches), [None] * len(loose)
    columns = zip(*[branch.outputs for branch in branches], strict=True)
    makers = [_makers(branch) for branch in branches]
    dims = [
        _common_dims([own.get(a) for own, a in zip(makers, row, strict=True)])
        if is_loose
        else None
        for row, is_loose in zip(columns, loose, strict=True)
    ]
    return tuple([_unpermuted(branch, dims) for branch in branches]), dims


def _common_dims(makers: Sequence[Eqn | None]) -> tuple[int, ...] | None:
    """How all branches permute an output that is not blank, if they do it alike."""
    own = [m for m in makers if m is None or m.primitive is not blank]
    found = {
        m.params["dims"] if m is not None and m.primitive is permute else None
        for m in own
    }
    return found.pop() if len(found) == 1 else None


def _unpermuted(branch: Program, dims: Sequence[tuple[int, ...] | None]) -> Program:
    makers = _makers(branch)
    blanks: dict[int, ArrayType] = {}
    others: dict[int, Atom] = {}
    for number, (atom, axes) in enumerate(zip(branch.outputs, dims, strict=True)):
        if axes is None:
            continue
        maker = makers[atom]
        if maker.primitive is permute:
            others[number] = maker.inputs[0]
        else:
            shape = tuple([atom.type.shape[axis] for axis in inverse(axes)])
            blanks[number] = atom.type.with_shape(shape)
    return _replaced(branch, blanks, others)


def permuted_back(
    results: Sequence[Any], dims: Sequence[tuple[int, ...] | None]
) -> list[Any]:
    """The results of branches without permutes, permuted."""
    pairs = zip(results, dims, strict=True)
    return [x if axes is None else permute(x, dims=axes) for x, axes in pairs]
