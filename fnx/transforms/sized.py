"""Formulas in the place of sizes: one program for all, which runs at the true size.

Receives the same function's programs at the size of now and at some samples; gives a
program in whose types and params a `Size` stands wherever integers differ: the
polynomial of degree 2, or multiple of a quotient, that is right at all samples and now.
Literals that differ, such as the 1/n of a mean, become `number`s. Programs that differ
in anything else are refused, by the name of the first operation that does. What is
right at one more size shows when the program of that size is compared in the same way.
Next on the walk: `padded.py`, for what is no one program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from fnx import errors
from fnx.core.check import checked
from fnx.core.primitive import primitive
from fnx.core.program import Atom, Eqn, Literal, Program, Var
from fnx.core.types import ArrayType
from fnx.dtypes import is_complex
from fnx.ops.families import Elementwise
from fnx.ops.number import bits_of, bits_range, number
from fnx.records import record
from fnx.sizes import Size, Symbol, as_size

Values = Mapping[Symbol, int]


@record
class SizedProgram:
    """A program for all sizes, and the values of its symbols now.

    Those are sizes, and the bits of literals that vary.
    """

    program: Program
    values: Values


def samples(now: Values, *, below: bool = False) -> list[Values]:
    """The sizes, besides those of now, whose programs tell the formulas.

    They are those of now and larger ones, or `below` smaller ones: a table may have no
    more rows. The last sample is far away from the others, to find out what is right
    nearby alone.

    >>> n = Symbol("n")
    >>> [values[n] for values in samples({n: 100})]
    [100, 101, 102, 113]
    >>> [values[n] for values in samples({n: 100}, below=True)]
    [98, 99, 100, 85]
    """
    base: dict[Symbol, int] = {}
    for each, value in now.items():
        value -= 2 * below
        while value < _LEAST or any(abs(value - other) <= 2 for other in base.values()):
            value += 2
        base[each] = value
    found: list[Values] = [base]
    found += [{**base, s: base[s] + 1} for s in base]
    found += [{**base, s: base[s] + 2} for s in base]
    for a, b in combinations(base, 2):
        found.append({**base, a: base[a] + 1, b: base[b] + 1})
    backwards = below and min(base.values()) >= _LEAST + _FAR
    far = -_FAR if backwards else _FAR
    found.append({s: value + far for s, value in base.items()})
    return found


def sized_program(
    now: Program, sizes: Values, others: Sequence[Program], sampled: Sequence[Values]
) -> SizedProgram:
    """The program for all sizes; raises `DynamicSizeError` if there is none.

    `others` are the programs at the `sampled` sizes, in the order of `samples`.
    """
    merge = _Merge(_Fit(sizes, sampled))
    program = checked(merge.program([now, *others]), "sizing", now)
    return SizedProgram(program, {**sizes, **merge.numbers})


# ---------------------------------------------------------------- formulas


_MOST_DIVISOR = 8
_LEAST = 8  # smaller samples are often special
_FAR = 13  # no divisor divides it, and not all fours are among samples


class _Fit:
    """Finds the formula behind integers: those of now, then those of the samples."""

    def __init__(self, now: Values, sampled: Sequence[Values]) -> None:
        self.now, self.sampled = now, sampled
        self.symbols = list(now)
        self.known: dict[tuple[int, ...], int | Size | None] = {}

    def __call__(self, values: tuple[int, ...]) -> int | Size | None:
        """The integer, or a formula, or `None` if there is none."""
        if len({*values}) == 1:
            return values[0]
        if values not in self.known:
            kinds = (self._polynomial, self._quotient)
            found = (kind(values) for kind in kinds)
            self.known[values] = next((f for f in found if f is not None), None)
        return self.known[values]

    def _quotient(self, values: tuple[int, ...]) -> int | Size | None:
        """A size, and something, divided, times a number: the rows of whole fours.

        What is left over of a division is the size less such a product.
        """
        for each in self.symbols:
            size, where = as_size(each), [self.now, *self.sampled]
            sizes = [known[each] for known in where]
            for slope in (0, 1):
                steps = [v - slope * n for v, n in zip(values, sizes, strict=True)]
                found = _steps(size, sizes, steps)
                if found is not None:
                    total: int | Size = found + size * slope
                    return total
        return None

    def _polynomial(self, values: tuple[int, ...]) -> int | Size | None:
        """The quadratic polynomial through the samples, in Newton's form."""
        now, base, *rest, distant = values
        count, first = len(self.symbols), self.sampled[0]
        ones, twos, pairs = rest[:count], rest[count : 2 * count], rest[2 * count :]
        away = [as_size(s) - first[s] for s in self.symbols]
        total: Any = base
        for one, two, step in zip(ones, twos, away, strict=True):
            slope, bend = one - base, two - 2 * one + base
            if bend % 2:
                return None
            total = total + step * slope + step * (step - 1) * (bend // 2)
        for (i, j), both in zip(combinations(range(count), 2), pairs, strict=True):
            total = total + away[i] * away[j] * (both - ones[i] - ones[j] + base)
        found: int | Size = total
        for value, sizes in ((now, self.now), (distant, self.sampled[-1])):
            if value != (found.at(sizes) if isinstance(found, Size) else found):
                return None
        return found


def _steps(size: Any, sizes: Sequence[int], values: Sequence[int]) -> Any:
    """A multiple of (size + more) // divisor, and a constant, with these values.

    The divisor with the least constant is taken: others may be right by chance. Of what
    is the same at all samples that is taken which divides the first one.
    """
    rows = sorted(zip(sizes, values, strict=True))
    (low, lowest), *_, (high, highest) = rows
    fitting = list[Any]()
    for divisor in range(2, _MOST_DIVISOR + 1):
        found = dict[int, Any]()
        for more in sorted(range(divisor), key=lambda n: (sizes[1] + n) % divisor):
            rounds = (high + more) // divisor - (low + more) // divisor
            if rounds == 0 or (highest - lowest) % rounds:
                continue
            each = (highest - lowest) // rounds
            rest = lowest - (low + more) // divisor * each
            if all((n + more) // divisor * each + rest == value for n, value in rows):
                found[abs(rest)] = (size + more) // divisor * each + rest
        if found:
            fitting.append((min(found), divisor, next(iter(found.values()))))
    return min(fitting)[-1] if fitting else None


# ---------------------------------------------------------------- programs


class _Scope:
    """One program while it is made: its variables, and the numbers that it has.

    Complex ones are `joined` of two.
    """

    def __init__(self) -> None:
        self.vars: dict[Var, Var] = {}
        self.numbers: dict[Symbol, Eqn] = {}
        self.joined: dict[Any, Eqn] = {}


class _Merge:
    """Makes one program of several; `numbers` are the bits of literals that differ."""

    def __init__(self, fit: _Fit) -> None:
        self.fit = fit
        self.numbers: dict[Symbol, int] = {}
        self.found: dict[Any, Symbol] = {}
        self.holder: Sequence[Eqn] | None = None

    def program(self, programs: Sequence[Program]) -> Program:
        """The one program for these."""
        scope = _Scope()
        eqns: list[Eqn] = []
        inputs = self.variables([p.inputs for p in programs], scope)
        for row in self.rows([p.eqns for p in programs]):
            eqns += self.equation(row, scope)
        outputs = self.atoms([p.outputs for p in programs], scope)
        numbers = (*scope.numbers.values(), *scope.joined.values())
        return Program(inputs, (*numbers, *eqns), outputs)

    def rows(self, columns: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """What stands in the same place of all of them."""
        if len({*map(len, columns)}) > 1:
            shortest = min(map(len, columns))
            extra = max(columns, key=len)[shortest]
            self.holder = [extra] if isinstance(extra, Eqn) else self.holder
            raise self.differs("it is not there at all sizes")
        yield from zip(*columns, strict=True)

    def equation(self, row: Sequence[Eqn], scope: _Scope) -> list[Eqn]:
        """One equation in the place of these, behind those that spread a number."""
        before, self.holder = self.holder, row
        now = row[0]
        if any(eqn.primitive is not now.primitive for eqn in row):
            raise self.differs("it is another operation there")
        given = self.atoms([eqn.inputs for eqn in row], scope)
        params = self.value([eqn.params for eqn in row])
        outputs = self.variables([eqn.outputs for eqn in row], scope)
        made: list[Eqn] = []
        if isinstance(now.primitive, Elementwise):
            given = self.spread(now, given, outputs[0].type, made)
        self.holder = before
        return [*made, Eqn(now.primitive, given, outputs, params, now.source)]

    def spread(
        self, now: Eqn, given: tuple[Atom, ...], like: ArrayType, made: list[Eqn]
    ) -> tuple[Atom, ...]:
        """Numbers as arrays beside arrays, as literals stand for them."""
        atoms = list(given)
        for n, (atom, was) in enumerate(zip(given, now.inputs, strict=True)):
            if isinstance(was, Literal) and isinstance(atom, Var) and like.shape:
                out = Var(atom.type.with_shape(like.shape))
                params = {"shape": like.shape, "dims": ()}
                broadcast = primitive("broadcast_in_dim")
                made.append(Eqn(broadcast, (atom,), (out,), params, now.source))
                atoms[n] = out
        return tuple(atoms)

    def variables(
        self, columns: Sequence[Sequence[Var]], scope: _Scope
    ) -> tuple[Var, ...]:
        """New variables in the place of these."""
        found = []
        for row in self.rows(columns):
            var = Var(self.value([v.type for v in row]))
            scope.vars.update(dict.fromkeys(row, var))
            found.append(var)
        return tuple(found)

    def atoms(
        self, columns: Sequence[Sequence[Atom]], scope: _Scope
    ) -> tuple[Atom, ...]:
        """What stands for atoms."""
        return tuple([self.atom(row, scope) for row in self.rows(columns)])

    def atom(self, row: Sequence[Atom], scope: _Scope) -> Atom:
        literals = [atom for atom in row if isinstance(atom, Literal)]
        if not literals:
            new = {scope.vars[atom] for atom in row if isinstance(atom, Var)}
            if len(new) > 1:
                raise self.differs("it is computed from something else there")
            return new.pop()
        if len(literals) < len(row) or len({x.type for x in literals}) > 1:
            raise self.differs("it is computed from something else there")
        key = tuple([literal.key for literal in literals])
        if len({*key}) == 1:
            return literals[0]
        if is_complex(literals[0].type.dtype):
            return self.complex_number(key, literals, scope)
        return self.number(key, literals[0], scope)

    def complex_number(self, key: Any, row: Sequence[Literal], scope: _Scope) -> Var:
        """What is in the place of a complex literal: of its parts, one may vary."""
        if key not in scope.joined:
            parts = [[_part(x, name) for x in row] for name in ("real", "imag")]
            given = self.atoms(list(zip(*parts, strict=True)), scope)
            out = Var(row[0].type)
            scope.joined[key] = Eqn(primitive("complex"), given, (out,), {}, None)
        return scope.joined[key].outputs[0]

    def number(self, key: Any, now: Literal, scope: _Scope) -> Var:
        """What is in the place of a literal that varies."""
        found = self.found.get(key)
        if found is None:
            least, most = bits_range(now.type.dtype)
            found = Symbol(f"number{len(self.found)}", least, most)
            self.found[key] = found
            self.numbers[found] = bits_of(now.value)
        if found not in scope.numbers:
            type = now.type
            bits = {"bits": as_size(found), "dtype": type.dtype, "weak": type.weak}
            scope.numbers[found] = Eqn(number, (), (Var(type),), bits, None)
        return scope.numbers[found].outputs[0]

    def value(self, values: Sequence[Any]) -> Any:
        """One value in the place of several, with formulas where integers differ."""
        first = values[0]
        if any(type(value) is not type(first) for value in values):
            raise self.differs(f"{first} is {values[-1]} there")
        match first:
            case Program():
                return self.program(values)
            case Mapping():
                if any(value.keys() != first.keys() for value in values):
                    raise self.differs("it has other parameters there")
                return {name: self.value([v[name] for v in values]) for name in first}
        if all(value == first for value in values):
            return first
        match first:
            case bool():
                pass
            case int():
                found = self.fit(tuple(values))
                if found is not None:
                    return found
            case ArrayType():
                if len({(t.dtype, t.weak) for t in values}) == 1:
                    return first.with_shape(self.value([t.shape for t in values]))
            case tuple():
                items = [self.value(row) for row in self.rows(values)]
                named = hasattr(first, "_fields")
                return type(first)(*items) if named else tuple(items)
            case _ if dataclasses.is_dataclass(first) and not isinstance(first, type):
                names = [field.name for field in dataclasses.fields(first)]
                changed = {
                    n: self.value([getattr(v, n) for v in values]) for n in names
                }
                return dataclasses.replace(first, **changed)
        raise self.differs(f"{first} is {values[-1]} there")

    def differs(self, reason: str) -> Exception:
        """The error of what cannot be the same at all sizes."""
        eqn = None if self.holder is None else self.holder[0]
        if eqn is None:
            return errors.DynamicSizeError(
                errors.explain("a program for all sizes", reason)
            )
        where = "" if eqn.source is None else f"\n  at {eqn.source}"
        what = f"{eqn.primitive.name}: its program at another size"
        return errors.DynamicSizeError(errors.explain(what, reason) + where)


def _part(literal: Literal, name: str) -> Literal:
    """The real or the imaginary part of a complex literal."""
    value = getattr(literal.value, name)
    return Literal(value, ArrayType((), value.dtype, literal.type.weak))
