"""einsum: sums of products in Einstein's notation.

Receives subscripts and arrays; `opt_einsum` finds the order of pairwise contractions,
each of which is one `dot_general` (its batch, contracted and free axes are read off the
letters, so that no operand is transposed before it). Next on the walk: `padding.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.contractions import contract
from fnx.numpy.grids import diagonal
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    promoted,
    refuse,
    typed,
)
from fnx.numpy.reductions import any, sum
from fnx.numpy.shaping import transpose
from fnx.ops.shape import reshape


@becomes_native
def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """Sums of products of elements, in Einstein's notation.

    Letters that operands share are multiplied along each other, letters that the result
    lacks are summed over, a repeated letter takes the diagonal, `...` stands for
    leading axes that are broadcast. `optimize` is opt_einsum's strategy, or a path.

    >>> import numpy as np
    >>> einsum("ij,jk->ik", np.ones((2, 3)), np.ones((3, 4))).shape
    (2, 4)
    """
    refuse("einsum", out=out)
    # lazy: most programs use no einsum, and opt_einsum takes a while to import
    from opt_einsum import contract_path, parser

    given = (subscripts, *operands)
    inputs, output, arrays = _parsed(parser, given)
    values, dtype, weak = promoted("einsum", arrays)
    terms = [
        (letters, typed("einsum", x, dtype, weak, i))
        for i, (letters, x) in enumerate(zip(inputs, values, strict=True))
    ]
    _check("einsum", subscripts, terms)
    terms = [
        _simplified(term, _others(terms, i, output)) for i, term in enumerate(terms)
    ]
    options = precision, preferred_element_type
    for step in _path(contract_path, terms, output, optimize):
        chosen = [terms.pop(i) for i in sorted(step, reverse=True)][::-1]
        terms.append(_contracted(chosen, terms, output, options))
    letters, x = _simplified(terms[0], set(output))
    return transpose(x, [letters.index(letter) for letter in output])


Term = tuple[str, Array]


def _parsed(parser: Any, given: Sequence[Any]) -> tuple[list[str], str, list[Any]]:
    """Letters of each operand and of the result, and the operands."""
    try:
        if isinstance(given[0], str):
            shapes = [getattr(x, "shape", ()) for x in given[1:]]
            inputs, output, _ = parser.parse_einsum_input(
                (given[0], *shapes), shapes=True
            )
            arrays = list(given[1:])
        else:  # operand, axes, operand, axes, …, [output axes]
            shaped = [
                getattr(x, "shape", ()) if i % 2 == 0 and i < len(given) - 1 else x
                for i, x in enumerate(given)
            ]
            inputs, output, _ = parser.parse_einsum_input(tuple(shaped), shapes=True)
            arrays = list(given[0 : len(given) - 1 : 2])
    except ValueError as error:
        raise errors.ShapeError(f"einsum({given[0]!r}): {error}") from None
    return inputs.split(","), output, arrays


def _check(function: str, subscripts: Any, terms: Sequence[Term]) -> None:
    """Raises unless every letter has one size (or 1, which is broadcast)."""
    sizes: dict[str, int] = {}
    for letters, x in terms:
        if len(letters) != x.ndim:
            raise errors.ShapeError(
                f"{function}({subscripts!r}): {letters!r} does not fit {x.type}"
            )
        for letter, n in zip(letters, x.shape, strict=True):
            known = sizes.get(letter, n)
            if n != known and 1 not in (n, known):
                raise errors.ShapeError(
                    f"{function}({subscripts!r}): {letter!r} has the sizes {known} "
                    f"and {n}"
                )
            sizes[letter] = max(n, known)


def _others(terms: Sequence[Term], place: int, output: str) -> set[str]:
    """The letters that stand somewhere besides in one term."""
    rest = [letters for i, (letters, _) in enumerate(terms) if i != place]
    return set(output).union(*rest)


def _simplified(term: Term, needed: set[str]) -> Term:
    """Takes diagonals of repeated letters, and sums over those nobody else has."""
    letters, x = term
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            x = diagonal(x, 0, first, second)
            letters = (
                letters[:first] + letters[first + 1 : second] + letters[second + 1 :]
            )
            letters += letter
    alone = tuple([i for i, letter in enumerate(letters) if letter not in needed])
    if alone:
        # A sum of booleans is whether one of them is true, as in all products here.
        is_bool = dtypes.is_bool(x.dtype)
        x = any(x, alone) if is_bool else sum(x, alone, promote_integers=False)
        letters = "".join([letter for letter in letters if letter in needed])
    return letters, x


def _path(
    contract_path: Any, terms: Sequence[Term], output: str, optimize: Any
) -> list[tuple[int, ...]]:
    """The order of the contractions, as places in the list of terms that are left."""
    if len(terms) <= 2 or optimize is False:
        return [tuple(range(len(terms)))]
    inputs = ",".join([letters for letters, _ in terms])
    shapes = [x.shape for _, x in terms]
    how = "auto" if optimize is True else optimize
    found, _ = contract_path(f"{inputs}->{output}", *shapes, shapes=True, optimize=how)
    return found


def _contracted(
    chosen: Sequence[Term], rest: Sequence[Term], output: str, options: Any
) -> Term:
    """The terms of one step multiplied from left to right."""
    result, *others = chosen
    for i, other in enumerate(others):
        later = [letters for letters, _ in [*others[i + 1 :], *rest]]
        result = _product([result, other], set(output).union(*later), options)
    return result


def _product(terms: Sequence[Term], kept: set[str], options: Any) -> Term:
    """The contraction of two terms; letters that nobody else has are summed over."""
    (left, x), (right, y) = terms
    x, y, left, right = _without_ones(x, y, left, right)
    shared = [letter for letter in left if letter in right]
    batch = [letter for letter in shared if letter in kept]
    summed = [letter for letter in shared if letter not in kept]
    out = contract(
        "einsum",
        x,
        y,
        (_places(left, summed), _places(right, summed)),
        (_places(left, batch), _places(right, batch)),
        *options,
    )
    free = [letter for side in (left, right) for letter in side if letter not in shared]
    return _simplified(("".join([*batch, *free]), out), kept)


def _places(letters: str, chosen: Sequence[str]) -> tuple[int, ...]:
    return tuple([letters.index(letter) for letter in chosen])


def _without_ones(x: Array, y: Array, left: str, right: str) -> tuple[Any, ...]:
    """The terms without axes of size 1 that meet longer ones, which are broadcast."""
    sides = [(x, left, y, right), (y, right, x, left)]
    results = []
    for a, letters, b, others in sides:
        gone = [
            letter
            for letter in letters
            if letter in others
            and a.shape[letters.index(letter)] == 1
            and b.shape[others.index(letter)] != 1
        ]
        if gone:
            shape = [n for n, c in zip(a.shape, letters, strict=True) if c not in gone]
            a = reshape(a, shape=tuple(shape))
            letters = "".join([c for c in letters if c not in gone])
        results += [a, letters]
    return results[0], results[2], results[1], results[3]


def einsum_path(
    subscripts: str, /, *operands: ArrayLike, optimize: Any = "auto"
) -> Any:
    """The order of contractions that `einsum` would take, and its description."""
    # lazy: as in `einsum`
    from opt_einsum import contract_path

    arrays = [as_array("einsum_path", x, i) for i, x in enumerate(operands)]
    strategy = "auto" if optimize is True else optimize
    shapes = [x.shape for x in arrays]
    return contract_path(subscripts, *shapes, shapes=True, optimize=strategy)
