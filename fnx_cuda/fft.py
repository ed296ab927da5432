"""Fourier transforms as launches: one axis after the other, a few passes for each.

Lengths whose prime factors are small are split into passes of `fft_text.py`; others
become convolutions of a power of two (Bluestein, 1970). All of it can be in a graph.
Receives a `HostStep`, gives launches; used by `routines.py`, next: `fft_text.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod

from fnx.dtypes import DType
from fnx.records import record
from fnx.runtime.plan import HostStep, Place
from fnx_cuda.fft_text import HALF, RADICES, REAL, THREADS, WHOLE, text
from fnx_cuda.instructions import Launch
from fnx_cuda.work import Work

SHARED = 48 << 10
"""The bytes of shared memory of a block at most: what every device has."""

LARGEST_PRIME = 31
"""A radix at most: of larger primes, a convolution takes fewer operations."""

SECTOR = 32
"""The bytes that a device reads at once: so many of neighbouring lines, if they fit."""

MOST_ELEMENTS = 2048
"""Elements of a block; more only if there is one line."""

MOST_BLOCKS = 16_384

_LONGEST = 1 << 30
_LARGEST = 1 << 38


@record
class Side:
    """How rows lie in memory: `inner` of them side by side, of a logical length."""

    inner: int
    length: int
    kind: int

    @property
    def numbers(self) -> bytes:
        """The struct `Side` of the text."""
        span = self.inner * self.length
        return struct.pack("<3q2i", self.inner, self.length, span, self.kind, 0)


@record
class Stage:
    """The transform along one axis: of `outer` blocks of rows."""

    outer: int
    source: Side
    target: Side

    @property
    def length(self) -> int:
        """The number of points."""
        return self.source.length

    @property
    def rows(self) -> int:
        """How many transforms there are."""
        return self.outer * self.source.inner


def fft_launches(step: HostStep, work: Work) -> list[Launch] | None:
    """The launches of a transform; None if it is too large to be counted."""
    (type_,) = step.input_types
    (out_type,) = step.output_types
    kind, lengths, axes = [step.params[name] for name in ("kind", "lengths", "axes")]
    if not out_type.size or not type_.size:
        return []
    if max(lengths) >= _LONGEST or type_.size * max(*lengths, 2) >= _LARGEST:
        return None
    stages = _stages(type_.shape, kind, lengths, axes)
    dtype = type_.dtype if kind != "RFFT" else out_type.dtype
    scale = 1 / prod(lengths) if kind in ("IFFT", "IRFFT") else 1.0
    transforms = _Transforms(dtype, -1 if kind in ("FFT", "RFFT") else 1, stages, work)
    (source,), (out,) = step.inputs, step.outputs
    assert isinstance(source, Place)
    return transforms.launches(source, out, scale)


def _stages(
    shape: tuple[int, ...], kind: str, lengths: Sequence[int], axes: Sequence[int]
) -> list[Stage]:
    """The axes in their order: that of the real signal is where it is real."""
    sizes, found = list(shape), list[Stage]()
    order = list(zip(axes, lengths, strict=True))
    if kind == "RFFT":
        order = [order[-1], *order[:-1]]
    for number, (axis, length) in enumerate(order):
        kinds = WHOLE, WHOLE
        if kind == "RFFT" and number == 0:
            kinds = REAL, HALF
        if kind == "IRFFT" and number == len(order) - 1:
            kinds = HALF, REAL
        inner, outer = prod(sizes[axis + 1 :]), prod(sizes[:axis])
        source, target = [Side(inner, length, each) for each in kinds]
        found.append(Stage(outer, source, target))
        sizes[axis] = length // 2 + 1 if kinds[1] == HALF else length
    return found


class _Transforms:
    """The transforms of a step: their text, and two places that they go between."""

    def __init__(
        self, dtype: DType, sign: int, stages: Sequence[Stage], work: Work
    ) -> None:
        self.itemsize = dtype.itemsize
        self.sign = sign
        self.stages = stages
        self.longer = [_longer(stage.length) for stage in stages]
        sizes = [
            stage.rows * (longer or stage.length)
            for stage, longer in zip(stages, self.longer, strict=True)
        ]
        self.text = text(dtype, max(sizes) >= _LONGEST)
        self.places = self._pair(max(sizes), work)
        self.filters = self._pair(max([longer or 0 for longer in self.longer]), work)
        self.found: list[Launch] = []

    def _pair(self, size: int, work: Work) -> tuple[Place, Place]:
        nbytes = size * self.itemsize
        return work.place(nbytes), work.place(nbytes)

    def launches(self, source: Place, out: Place, scale: float) -> list[Launch]:
        """All stages, the last of them to `out`, where numbers are scaled."""
        last = len(self.stages) - 1
        for number, stage in enumerate(self.stages):
            end = (out, scale) if number == last else (None, 1.0)
            longer = self.longer[number]
            if longer is None:
                source = self.passes(stage, source, self.sign, self.places, *end)
            else:
                source = self.chirped(stage, longer, source, *end)
        return self.found

    def passes(
        self,
        stage: Stage,
        source: Place,
        sign: int,
        places: tuple[Place, Place],
        out: Place | None = None,
        scale: float = 1.0,
    ) -> Place:
        """A transform along an axis, by way of two places; where it is then."""
        inner, length = stage.source.inner, stage.length
        parts = radices(length, inner, self.itemsize)
        inside = Side(inner, length, WHOLE)
        done = 1
        for number, radix in enumerate(parts):
            last = number == len(parts) - 1
            target = out if last and out is not None else _other(places, source)
            lines = stage.outer * inner * length // prod(radix)
            numbers = (
                (stage.source if number == 0 else inside).numbers
                + (stage.target if last else inside).numbers
                + struct.pack("<d", scale if last else 1.0)
                + struct.pack("<3q", lines, inner * done, length // done)
            )
            self._pass(radix, (source, target), numbers, lines, sign)
            done *= prod(radix)
            source = target
        return source

    def _pass(
        self,
        radix: tuple[int, ...],
        ends: tuple[Place, Place],
        numbers: bytes,
        lines: int,
        sign: int,
    ) -> None:
        points = prod(radix)
        shift = 0
        while (
            points << (shift + 1) <= MOST_ELEMENTS
            and 1 << shift < lines
            and _shared(points, shift + 1, self.itemsize) <= SHARED
        ):
            shift += 1
        filled = [*radix, *[0] * (RADICES - len(radix))]
        numbers += struct.pack("<4i", points, len(radix), shift, sign)
        numbers += struct.pack(f"<{RADICES}i", *filled)
        grid = -(-lines // (1 << shift)), 1, 1
        shared = _shared(points, shift, self.itemsize)
        self.found.append(
            Launch(self.text, "transform", grid, THREADS, shared, ends, numbers)
        )

    def chirped(
        self,
        stage: Stage,
        longer: int,
        source: Place,
        out: Place | None,
        scale: float,
    ) -> Place:
        """A transform along an axis as a convolution of a longer power of two."""
        inner, outer = stage.source.inner, stage.outer
        row, rows = Side(1, longer, WHOLE), Side(inner, longer, WHOLE)
        alone, whole = Stage(1, row, row), Stage(outer, rows, rows)
        spreading = Stage(outer, stage.source, rows)
        collecting = Stage(outer, rows, stage.target)
        filter = self.filters[0]
        self._each("make_filter", longer, (source, filter, filter), stage, longer)
        filter = self.passes(alone, filter, -1, self.filters)
        count, here = stage.rows * longer, _other(self.places, source)
        self._each("spread", count, (source, here, filter), spreading, longer)
        here = self.passes(whole, here, -1, self.places)
        ends = here, here, filter
        self._each("filtered", count, ends, whole, longer, 1 / longer)
        here = self.passes(whole, here, 1, self.places)
        if out is None:
            out = _other(self.places, here)
        count = stage.rows * stage.length
        self._each("collect", count, (here, out, filter), collecting, longer, scale)
        return out

    def _each(
        self,
        function: str,
        count: int,
        ends: tuple[Place, Place, Place],
        stage: Stage,
        longer: int,
        scale: float = 1.0,
    ) -> None:
        """A launch with a thread for each element; `ends` are x, out and the filter."""
        numbers = stage.source.numbers + stage.target.numbers
        numbers += struct.pack("<d2q2i", scale, count, longer, self.sign, 0)
        grid = min(-(-count // THREADS), MOST_BLOCKS), 1, 1
        self.found.append(Launch(self.text, function, grid, THREADS, 0, ends, numbers))


def _other(places: tuple[Place, Place], place: Place) -> Place:
    """A place that is not the one that is read: blocks write in any order."""
    first, second = places
    return second if place == first else first


def _longer(length: int) -> int | None:
    """The length of the convolution for a length with a large prime factor.

    >>> _longer(30), _longer(37)
    (None, 128)
    """
    if max(primes(length), default=1) <= LARGEST_PRIME:
        return None
    return 1 << (2 * length - 2).bit_length()


def _shared(points: int, shift: int, itemsize: int) -> int:
    """The bytes of a block: roots, and the elements of its lines twice."""
    return (points + (points << (shift + 1))) * itemsize


def radices(length: int, inner: int, itemsize: int) -> list[tuple[int, ...]]:
    """The small radices of each pass for a length, of which a few rows fit a block.

    >>> radices(60, 1, 8)
    [(5, 3, 4)]
    >>> [prod(radix) for radix in radices(4096, 1, 8)]
    [64, 64]
    """
    most = SHARED // itemsize
    alone = most // 3
    if inner == 1 and length <= alone:
        return [_merged(primes(length))]
    limit = most // (1 + 2 * max(SECTOR // itemsize, 1))
    count = 1
    while True:
        parts = [list[int]() for _ in range(count)]
        for prime in sorted(primes(length), reverse=True):
            min(parts, key=prod).append(prime)
        if max(map(prod, parts)) <= limit:
            return [_merged(part) for part in parts]
        count += 1


def _merged(factors: Sequence[int]) -> tuple[int, ...]:
    """Pairs of 2 as 4."""
    twos = factors.count(2)
    others = [factor for factor in factors if factor != 2]
    return (*sorted(others, reverse=True), *[4] * (twos // 2), *[2] * (twos % 2))


def primes(n: int) -> list[int]:
    """The prime factors of a number.

    >>> primes(360)
    [2, 2, 2, 3, 3, 5]
    """
    found, factor = [], 2
    while factor * factor <= n:
        while n % factor == 0:
            found.append(factor)
            n //= factor
        factor += 1
    return [*found, n] if n > 1 else found
