"""Fourier transforms as calls of machine code, one axis after the other.

Receives a `HostStep` of `fft`; gives calls of the functions of `fft_text.py` with their
numbers, cut by shapes alone, so that threads share them. What has a large prime factor,
and reals in odd numbers, are left to Python. Also gives the addresses of functions and
of tables of roots in this process, by names that a plan on disk keeps. Next on the
walk: `driver.py`.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.cpu import grain, jit
from fnx.cpu.fft_arithmetic import Lanes
from fnx.cpu.fft_roots import Values, half_roots, pass_roots, turning_roots
from fnx.cpu.fft_text import EXPORTS, fft_text
from fnx.records import record
from fnx.runtime.plan import HostStep, Place
from fnx.sizes import Size, usual

PREFIX = "fnx_fft_"
"""How the names of functions and tables begin."""

Count = int | Size


@record
class Table:
    """A table of roots, and a place in it in bytes.

    The name says what is in it: the kind, the dtype of real numbers, and lengths.
    """

    name: str
    offset: int = 0


Number = Count | Place | Table
"""What a function is given: a number, or the address of an array or a table."""

TEMPORARY = Place("temporary", 0)
"""Stands for memory that the calls of a step share; the number counts bytes."""

LONGEST = 2**26
"""Of a line at most: its passes are sixteen at most, and fewer roots than memory."""

WHOLE = 2**20
"""The bytes of a line that one thread transforms at most, if there are others."""

ALONE = 2**20
"""The bytes of a line that one thread transforms at most, if there are few."""

NEAR, FAR = 2**15, 2**22
"""The bytes that are in the first cache of a processor, and at least in the last."""

PIECE = 2**12
"""Pairs of coefficients of reals that a thread makes at once."""


@record
class Call:
    """A call of a function for some rounds, of which a thread takes a chunk."""

    function: str
    numbers: tuple[Number, ...]
    share: grain.Share


@record
class Calls:
    """The calls for a step, and the bytes of memory that they share."""

    calls: tuple[Call, ...]
    nbytes: Count


@cache
def lanes(dtype: str) -> Lanes:
    """The vectors of this CPU for a dtype of real numbers."""
    features = jit.host()[1].split(",")
    nbytes = 64 if "+avx512f" in features else 32 if "+avx" in features else 16
    item = np.dtype(dtype).itemsize
    return Lanes(nbytes // item, item)


# ---------------------------------------------------------------- lengths


@cache
def radices(length: int) -> tuple[int, ...] | None:
    """The radices of the passes for a length, the largest power of two at the end.

    >>> radices(1000), radices(32), radices(17)
    ((5, 5, 5, 8), (4, 8), None)
    """
    odd, left = list[int](), length
    for prime in (7, 5, 3):
        while left % prime == 0:
            odd.append(prime)
            left //= prime
    twos = left.bit_length() - 1
    if left != 1 << twos:
        return None
    eights, rest = divmod(twos, 3)
    small = [[], [2], [4]][rest]
    if rest == 1 and eights:
        eights, small = eights - 1, [4, 4]
    found = (*odd, *small, *[8] * eights)
    return found if len(found) <= 16 else None


def _work(length: int, lanes: Lanes) -> float:
    """About what the passes of a block cost, in moves of a row."""
    passes = len(radices(length) or ())
    room = 2 * length * lanes.row
    slow = 1.0 if room <= NEAR else 1.5 if room <= FAR else 4.0
    return length * passes * slow


@cache
def split(length: int, count: int, lanes: Lanes) -> tuple[int, int] | None:
    """The rows and columns that a line is cut into; None if lines stay whole.

    That is the cheapest for so many lines: blocks that are full and near, and many of
    them both ways. As the primes are small, there are always some of about the root.
    """
    blocks = -(-count // lanes.count)
    best = blocks * (_work(length, lanes) + 4 * length) / count
    found = None
    for rows in _divisors(length):
        columns = length // rows
        if max(rows, columns) > 8 * min(rows, columns) or min(rows, columns) == 1:
            continue
        down = -(-columns // lanes.count) * (_work(rows, lanes) + 3 * rows)
        along = -(-rows // lanes.count) * (_work(columns, lanes) + 3 * columns)
        if down + along < best:
            best, found = down + along, (rows, columns)
    return found


def _divisors(length: int) -> list[int]:
    found = [1]
    for radix in (2, 3, 5, 7):
        power = 1
        multiples = list(found)
        while length % (power * radix) == 0:
            power *= radix
            multiples += [power * n for n in found]
        found = multiples
    return sorted(found)


# ---------------------------------------------------------------- steps


def is_native(step: HostStep) -> bool:
    """Whether machine code does a transform, and not the rule in Python."""
    if step.routine != "fft" or not isinstance(step.inputs[0], Place):
        return False
    kind, lengths = step.params["kind"], step.params["lengths"]
    (x,) = step.input_types
    if any(isinstance(n, Size) or n > LONGEST for n in lengths):
        return False
    if not isinstance(x.size, Size) and not x.size:
        return False
    if kind in ("RFFT", "IRFFT") and lengths[-1] % 2:
        return False
    return all(radices(n) is not None for n in lengths)


def calls(step: HostStep) -> Calls:
    """The calls of a step that is native."""
    source = step.inputs[0]
    assert isinstance(source, Place)
    made = _Transforms(step)
    made.all_axes(source, step.outputs[0])
    return Calls(tuple(made.calls), made.nbytes)


@record
class _Blocks:
    """Blocks of lines of a length; a group has `lines`, side by side or one by one.

    All steps are in bytes (see `BLOCKS`). Rows may be `turned`: by the roots for so
    many rows and columns.
    """

    length: int
    groups: Count
    lines: Count
    source_group: Count
    source_line: Count
    source_step: Count
    target_group: Count
    target_line: Count
    target_step: Count
    take_lines: bool = False
    give_lines: bool = False
    turned: tuple[int, int] | None = None
    before: Table | int = 0
    after: Table | int = 0


@record
class _Lines:
    """Lines that lie one behind the other, and where they go: so many bytes apart."""

    count: Count
    length: int
    source: Place
    target: Place
    source_line: int
    target_line: int


class _Transforms:
    """Collects the calls of a step."""

    def __init__(self, step: HostStep) -> None:
        self.params = step.params
        self.shape = list(step.input_types[0].shape)
        self.dtype = dtypes.real_dtype(step.input_types[0].dtype).name
        self.lanes = lanes(self.dtype)
        self.item = 2 * self.lanes.nbytes
        self.inverse = step.params["kind"] in ("IFFT", "IRFFT")
        self.calls: list[Call] = []
        self.nbytes: Count = 0  # of temporary memory

    def all_axes(self, source: Place, target: Place) -> None:
        """All axes, that of the real numbers where they are real."""
        kind, lengths = self.params["kind"], self.params["lengths"]
        order = list(zip(self.params["axes"], lengths, strict=True))
        scale = 1 / prod(lengths) if self.inverse else 1.0
        if kind == "IRFFT":
            *order, (axis, length) = order
            if order:
                self.nbytes = prod(self.shape) * self.item
            for other, n in order:
                self.axis(other, n, source, TEMPORARY, 1.0)
                source = TEMPORARY
            self.reals(axis, length // 2, source, target, scale)
            return
        if kind == "RFFT":
            *order, (axis, length) = order
            self.reals(axis, length // 2, source, target, scale)
            self.shape[axis] = length // 2 + 1
            source = target
        for number, (axis, n) in enumerate(order):
            last = number == len(order) - 1
            self.axis(axis, n, source, target, scale if last else 1.0)
            source = target

    def axis(
        self, axis: int, length: int, source: Place, target: Place, scale: float
    ) -> None:
        """Complex numbers along an axis."""
        outer, inner = prod(self.shape[:axis]), prod(self.shape[axis + 1 :])
        line, step = length * self.item, inner * self.item
        if not isinstance(inner, Size) and inner == 1:
            self.lines(_Lines(outer, length, source, target, line, line), scale)
            return
        ends = length * step, self.item, step
        self.blocks(_Blocks(length, outer, inner, *ends, *ends), source, target, scale)

    def reals(
        self, axis: int, half: int, source: Place, target: Place, scale: float
    ) -> None:
        """Reals along an axis, twice as many as `half`, or their coefficients."""
        outer, inner = prod(self.shape[:axis]), prod(self.shape[axis + 1 :])
        line = half * self.item
        # The bytes of a group, from line to line, and from row to row.
        of_reals = line * inner, self.item // 2, inner * self.item // 2
        others = (line + self.item) * inner, self.item, inner * self.item
        before, after = self.tables(half)
        if isinstance(inner, Size) or inner > 1:
            ends = (*others, *of_reals) if self.inverse else (*of_reals, *others)
            blocks = _Blocks(half, outer, inner, *ends, before=before, after=after)
            self.blocks(blocks, source, target, scale)
            return
        both = (line + self.item, line) if self.inverse else (line, line + self.item)
        self.lines(_Lines(outer, half, source, target, *both), scale, (before, after))

    def tables(self, half: int) -> tuple[Table | int, Table | int]:
        """The roots of one for reals: for what is done before, or after."""
        table = self.table("half", half)
        return (table, 0) if self.inverse else (0, table)

    # -- lines

    def lines(
        self,
        lines: _Lines,
        scale: float,
        reals: tuple[Table | int, Table | int] = (0, 0),
    ) -> None:
        """Lines that lie one behind the other; those of reals as pairs of them."""
        count, length, nbytes = lines.count, lines.length, lines.length * self.item
        before, after = reals
        many = int(usual(count))
        cut = split(length, many, self.lanes)
        if cut is not None and nbytes <= (WHOLE if many >= 4 else ALONE):
            self.whole(lines, cut, reals, scale)
            return
        done = replace(lines, source=lines.target, source_line=lines.target_line)
        if before:
            self.halves(lines, before, 0)
            lines = done
        if cut is None:
            blocks = _Blocks(
                *(length, 1, count),
                *(0, lines.source_line, lines.source_line),
                *(0, lines.target_line, lines.target_line),
                take_lines=True,
                give_lines=True,
            )
            self.blocks(blocks, lines.source, lines.target, scale)
        else:
            between = self.between(lines.target, count * nbytes)
            down, along = self.both(lines, cut)
            self.blocks(down, lines.source, between, 1.0)
            self.blocks(along, between, lines.target, scale)
        if after:
            self.halves(done, 0, after)

    def between(self, target: Place, nbytes: Count) -> Place:
        """Memory between two steps to a target, which may be such memory, too."""
        begin: Any = 0
        if target == TEMPORARY:
            begin = -(-self.nbytes // 64) * 64
            self.nbytes = begin + nbytes
        elif isinstance(self.nbytes, int) and self.nbytes == 0:
            self.nbytes = nbytes  # else there are the coefficients, which are more
        return replace(TEMPORARY, index=begin)

    def both(self, lines: _Lines, cut: tuple[int, int]) -> tuple[_Blocks, _Blocks]:
        """The steps of lines that are matrices: of their columns, then of their rows.

        The second one reads rows, and writes each of them as a column.
        """
        rows, columns = cut
        item, nbytes = self.item, lines.length * self.item
        step = columns * item
        ends = (lines.source_line, item, step), (nbytes, item, step)
        down = _Blocks(rows, lines.count, columns, *ends[0], *ends[1], turned=cut)
        ends = (nbytes, step, step), (lines.target_line, item, rows * item)
        along = _Blocks(columns, lines.count, rows, *ends[0], *ends[1], take_lines=True)
        return down, along

    # -- calls

    def blocks(
        self, blocks: _Blocks, source: Place, target: Place, scale: float
    ) -> None:
        """A call for all blocks of all groups."""
        numbers = self.numbers(blocks, source, target, scale)
        rounds = blocks.groups * -(-blocks.lines // self.lanes.count)
        points = blocks.length * self.lanes.count
        self.add("blocks", numbers, rounds, self.nanoseconds(blocks.length, points))

    def numbers(
        self, blocks: _Blocks, source: Number, target: Number, scale: float
    ) -> tuple[Number, ...]:
        """What `fft_blocks` is given."""
        width, half = self.lanes.count, self.lanes.row // 2
        passes = radices(blocks.length) or ()
        fine: tuple[Number, Number] = (0, 0)
        if blocks.turned is not None:
            table = self.table("turns", *blocks.turned)
            fine = table, replace(table, offset=blocks.length * self.lanes.row)
        code = sum(radix << 4 * n for n, radix in enumerate(passes))
        return (
            source,
            target,
            self.table("roots", *passes) if passes else 0,
            *fine,
            code - (1 << 64) if code >> 63 else code,
            blocks.length,
            int(blocks.take_lines),
            int(blocks.give_lines),
            -(-blocks.lines // width),
            blocks.lines,
            blocks.source_group,
            width * blocks.source_line,
            blocks.source_step,
            blocks.target_group,
            width * blocks.target_line,
            blocks.target_step,
            half if self.inverse else 0,
            0 if self.inverse else half,
            int(np.array(scale, self.dtype).view(f"i{self.lanes.nbytes}")),
            blocks.before,
            blocks.after,
        )

    def whole(
        self,
        lines: _Lines,
        cut: tuple[int, int],
        roots: tuple[Table | int, Table | int],
        scale: float,
    ) -> None:
        """A call for whole lines."""
        down, along = self.both(lines, cut)
        numbers = (
            *(lines.source, lines.target, lines.source_line, lines.target_line),
            *(lines.length, *roots),
            *self.numbers(down, 0, 0, 1.0),
            *self.numbers(along, 0, 0, scale),
        )
        each = self.nanoseconds(lines.length, lines.length)
        self.add("lines", numbers, lines.count, each)

    def halves(self, lines: _Lines, before: Table | int, after: Table | int) -> None:
        """A call for the coefficients of reals."""
        pairs = lines.length // 2 + 1
        pieces = -(-pairs // PIECE)
        numbers = (
            *(lines.source, lines.target, lines.source_line, lines.target_line),
            *(lines.length, before, after, pieces, PIECE),
        )
        each = min(pairs, PIECE) * self.lanes.nbytes / 4
        self.add("halves", numbers, lines.count * pieces, each)

    def table(self, kind: str, *lengths: int) -> Table:
        """A table of roots."""
        return Table(f"{PREFIX}{kind}_{self.dtype}_{'x'.join(map(str, lengths))}")

    def nanoseconds(self, length: int, points: int) -> float:
        """About how long so many points take in passes for a length."""
        return points * (1 + 0.1 * length.bit_length()) * self.lanes.nbytes / 4

    def add(
        self, name: str, numbers: tuple[Number, ...], rounds: Count, each: float
    ) -> None:
        """A call; a round takes so many nanoseconds."""
        share: grain.Share | None
        if isinstance(rounds, Size):
            share = grain.cut_any(rounds, 1, each * usual(rounds))
        else:
            share = grain.cut(rounds, 1, each * rounds)
        share = share or grain.Share(rounds, rounds)
        self.calls.append(Call(f"{PREFIX}{name}_{self.dtype}", numbers, share))


# ---------------------------------------------------------------- this process


def address(symbol: str) -> tuple[int, object]:
    """Where a function or a table is in this process, and what keeps it there."""
    kind, dtype, *rest = symbol.removeprefix(PREFIX).split("_")
    if not rest:
        return _library(dtype).address(f"fft_{kind}"), None
    table = _tables.get(symbol)
    if table is None:
        numbers = [int(number) for number in rest[0].split("x")]
        table = _tables[symbol] = make_table(kind, dtype, numbers)
    return table.ctypes.data, table


def make_table(kind: str, dtype: str, numbers: list[int]) -> Values:
    """A table of roots, in memory that begins with a line of a cache."""
    match kind:
        case "roots":
            return _aligned(pass_roots(numbers, dtype))
        case "turns":
            rows, columns = numbers
            return _aligned(turning_roots(rows, columns, lanes(dtype).count, dtype))
    (length,) = numbers
    return _aligned(half_roots(length, dtype))


_tables: weakref.WeakValueDictionary[str, Values] = weakref.WeakValueDictionary()


def _aligned(values: Values) -> Values:
    """A copy in memory that begins with a line of a cache."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    copy = memory[begin : begin + values.nbytes].view(values.dtype)
    copy[...] = values
    return copy


@cache
def _library(dtype: str) -> jit.Library:
    return jit.load_fixed(fft_text(lanes(dtype)), EXPORTS)
