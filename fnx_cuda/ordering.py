"""Orders of the rows of an array as CUDA C: by keys of any dtype, and what is taken.

Short rows are sorted in shared memory, by a network that compares elements and their
numbers; longer ones by `sorting.py`. Several keys are sorted by one after the other,
the last one first, whose order equal elements of the next one then keep. The order is
that of fnx: NaNs last and all alike, the zeros equal, complex numbers by their real and
then their imaginary parts. Receives places of memory, gives launches; used by
`routines.py`, next on the walk: `sorting.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod

from fnx import dtypes
from fnx.dtypes import DType
from fnx.runtime.plan import Place
from fnx_cuda.instructions import Launch
from fnx_cuda.sorting import Keys, radix_sort
from fnx_cuda.values import INFINITY
from fnx_cuda.work import Work

SHORT = 2048
"""The longest rows that are sorted in shared memory."""

LEAST = 512
"""The elements of a block at least: several of the shortest rows."""

THREADS = 256

MOST_BLOCKS = 16_384

_LONGEST = 1 << 31
_LARGEST = 1 << 38

Column = tuple[Place, DType, int]
"""Keys in memory: where, of which dtype, and which part of complex numbers."""


def sorted_keys(
    keys: Place,
    dtype: DType,
    length: int,
    bits: int,
    ends: tuple[Place, Place],
    work: Work,
) -> list[Launch]:
    """Launches that sort unsigned integers below 2**bits.

    The ends get the integers in their order, and where each of them was.
    """
    ordered, places = ends
    if length <= SHORT:
        column = keys, dtype, 0
        row = Rows((length,), 0)
        return [row.network(column, False, None, ordered, places)]
    row_of_keys = Keys(1, length, dtype.itemsize, bits)
    return radix_sort(row_of_keys, keys, ordered, places, None, work)


class Rows:
    """The rows of an array along an axis: `inner` of them lie between each other."""

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        self.length = shape[axis]
        self.inner = prod(shape[axis + 1 :])
        self.rows = prod(shape[:axis]) * self.inner
        self.size = self.rows * self.length

    def fits(self) -> bool:
        """Whether rows, blocks and places can be counted."""
        return self.length < _LONGEST and self.size < _LARGEST

    def order(
        self, keys: Sequence[tuple[Place, DType]], descending: bool, work: Work
    ) -> tuple[list[Launch], Place]:
        """The order of the keys, the first of them the most significant.

        Gives launches, and where the number of each place's element is then.
        """
        columns = [
            (x, dtype, part)
            for x, dtype in keys
            for part in range(2 if dtypes.is_complex(dtype) else 1)
        ]
        ends = [work.place(4 * self.size) for _ in columns[:2]]
        found, before = list[Launch](), None
        for number, column in enumerate(reversed(columns)):
            end = ends[number % 2]
            with work.part():
                found += self.sorted(column, descending, before, end, work)
            before = end
        assert before is not None
        return found, before

    def sorted(
        self,
        column: Column,
        descending: bool,
        before: Place | None,
        end: Place,
        work: Work,
    ) -> list[Launch]:
        """Launches that sort by one column what has the order `before`."""
        x, dtype, _ = column
        if self.length <= SHORT:
            return [self.network(column, descending, before, None, end)]
        itemsize = _key_size(dtype)
        keys, ordered = [work.place(itemsize * self.size) for _ in range(2)]
        bits = 8 * dtypes.real_dtype(dtype).itemsize
        rows = Keys(self.rows, self.length, itemsize, bits)
        text = _sorting_text(dtype, descending, self.size)
        numbers = self.layout(column, before is None)
        make = self.over(self.size, text, "make_keys", (x, before or x, keys), numbers)
        return [make, *radix_sort(rows, keys, ordered, end, before, work)]

    def network(
        self,
        column: Column,
        descending: bool,
        before: Place | None,
        ordered: Place | None,
        end: Place,
    ) -> Launch:
        """The launch that sorts short rows, and may keep their keys in that order."""
        x, dtype, _ = column
        text = _sorting_text(dtype, descending, self.size)
        size = 1 << max(self.length - 1, 1).bit_length()
        block = max(size, LEAST)
        blocks = -(-self.rows // (block // size))
        numbers = self.layout(column, before is None)
        numbers += struct.pack("<4i", size, block, ordered is not None, 0)
        # No address is read or written that is not asked for.
        ends = x, before or x, ordered or end, end
        shared = block * (_key_size(dtype) + 2)
        grid = blocks, 1, 1
        return Launch(text, "sort_rows", grid, THREADS, shared, ends, numbers)

    def take(
        self, out: Place, x: Place, dtype: DType, places: Place, kept: int
    ) -> Launch:
        """The launch that copies the first elements of each row in their order."""
        text = _taking_text(dtype.itemsize, self.size)
        numbers = self.layout(None, False) + struct.pack("<q", kept)
        ends = x, places, out
        return self.over(self.rows * kept, text, "take", ends, numbers)

    def numbers(self, out: Place, places: Place, kept: int) -> Launch:
        """The launch that writes where the first elements of each row are."""
        text = _taking_text(4, self.size)
        numbers = self.layout(None, False) + struct.pack("<q", kept)
        ends = places, places, out
        return self.over(self.rows * kept, text, "number", ends, numbers)

    def over(
        self,
        count: int,
        text: str,
        function: str,
        ends: tuple[Place, ...],
        numbers: bytes,
    ) -> Launch:
        """A launch with a thread for each of so many elements."""
        blocks = min(-(-count // THREADS), MOST_BLOCKS)
        return Launch(text, function, (blocks, 1, 1), THREADS, 0, ends, numbers)

    def layout(self, column: Column | None, numbered: bool) -> bytes:
        """The struct `Rows` of the texts."""
        parts, part = 1, 0
        if column is not None:
            parts, part = 2 if dtypes.is_complex(column[1]) else 1, column[2]
        sizes = self.rows, self.length, self.inner
        return struct.pack("<3q4i", *sizes, parts, part, numbered, 0)


def _key_size(dtype: DType) -> int:
    """The bytes of a key: as many as an element has, but at least four."""
    return max(dtypes.real_dtype(dtype).itemsize, 4)


# ---------------------------------------------------------------- texts

_WORDS = {1: "char", 2: "short", 4: "int", 8: "long long"}


def _word(itemsize: int) -> str:
    return f"unsigned {_WORDS[itemsize]}"


def _index_type(size: int) -> str:
    """What numbers of elements are computed in."""
    return f"typedef {_word(4 if size < 1 << 30 else 8)} Index;\n"


def _sorting_text(dtype: DType, descending: bool, size: int) -> str:
    """The text of `sort_rows` and `make_keys` for a dtype."""
    real = dtypes.real_dtype(dtype)
    types = [
        _index_type(size),
        f"typedef {_word(real.itemsize)} Element;\n",
        f"typedef {_word(_key_size(dtype))} Key;\n",
    ]
    key = _KEY.replace("ORDERED", _ordered(real)).replace(
        "TURNED", "all - key" if descending else "key"
    )
    return "".join([*types, _ROWS, key, _SORTING])


def _ordered(dtype: DType) -> str:
    """Statements after which the bits of an element are in the order of its dtype.

    All NaNs are the last, and the two zeros are equal.
    """
    if dtypes.is_float(dtype):
        infinity = INFINITY[dtype]
        return f"""\
  if ((key & (sign - 1)) > {infinity:#x}ull) key = all;
  else if (key != sign) key = key & sign ? all - key : key | sign;"""
    return "  key ^= sign;" if dtypes.is_signed(dtype) else ""


def _taking_text(itemsize: int, size: int) -> str:
    """The text of `take` and `number` for elements of so many bytes."""
    element = (
        "struct __align__(16) Element { unsigned long long low, high; };\n"
        if itemsize == 16
        else f"typedef {_word(itemsize)} Element;\n"
    )
    return "".join([_index_type(size), element, _ROWS, _TAKING])


_ROWS = """\
// Rows of so many elements, `inner` of them between each other; which part of each
// element is meant; and whether elements have no order yet.
struct Rows {
  long long rows, length, inner;
  int parts, part, numbered, unused;
};

__device__ __forceinline__ Index place_of(const Rows& n, Index row, Index i,
                                          Index length) {
  const Index inner = (Index)n.inner;
  return (row / inner * length + i) * inner + row % inner;
}
"""

_KEY = """
// An integer in the order of the elements.
__device__ __forceinline__ Key key_of(Element element) {
  const Key sign = (Key)1 << (8 * sizeof(Element) - 1), all = sign | (sign - 1);
  Key key = element;
ORDERED
  return TURNED;
}
"""

_SORTING = """
struct Making { const Element* x; const unsigned int* before; Key* keys; Rows n; };

__device__ __forceinline__ Key key_at(const Rows& n, const Element* x,
                                      const unsigned int* before, Index row, Index i) {
  const Index length = (Index)n.length;
  const Index from = n.numbered ? i : before[row * length + i];
  return key_of(x[place_of(n, row, from, length) * n.parts + n.part]);
}

extern "C" __global__ void __launch_bounds__(256)
make_keys(const __grid_constant__ Making p) {
  const Index length = (Index)p.n.length, count = (Index)p.n.rows * length;
  const Index step = (Index)gridDim.x * 256;
  for (Index g = (Index)blockIdx.x * 256 + threadIdx.x; g < count; g += step)
    p.keys[g] = key_at(p.n, p.x, p.before, g / length, g % length);
}

struct Sorting {
  const Element* x;
  const unsigned int* before;
  Key* ordered;
  unsigned int* places;
  Rows n;
  int size, block;  // of a row, with what is behind its end, and of a block's rows
  int kept, unused;  // whether the ordered keys are wanted
};

// A bitonic network sorts the rows of a block: of keys that are equal, and of what is
// behind the end, their numbers decide.
extern "C" __global__ void __launch_bounds__(256)
sort_rows(const __grid_constant__ Sorting p) {
  extern __shared__ unsigned long long memory[];
  Key* keys = (Key*)memory;
  unsigned short* numbers = (unsigned short*)(keys + p.block);
  const int t = threadIdx.x, length = (int)p.n.length, inside = p.size - 1;
  const Index first = (Index)blockIdx.x * (p.block / p.size);
  for (int n = t; n < p.block; n += 256) {
    const Index row = first + n / p.size;
    const int i = n & inside;
    const bool real = i < length && row < (Index)p.n.rows;
    keys[n] = real ? key_at(p.n, p.x, p.before, row, i) : ~(Key)0;
    numbers[n] = (unsigned short)i;
  }
  for (int part = 2; part <= p.size; part *= 2) {
    for (int step = part / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int n = t; n < p.block / 2; n += 256) {
        const int a = (n & ~(step - 1)) * 2 + (n & (step - 1)), b = a + step;
        const Key x = keys[a], y = keys[b];
        const unsigned short i = numbers[a], j = numbers[b];
        const bool falls = x > y || (x == y && i > j);
        const bool upwards = (a & inside & part) == 0;
        if (falls == upwards) {
          keys[a] = y;
          keys[b] = x;
          numbers[a] = j;
          numbers[b] = i;
        }
      }
    }
  }
  __syncthreads();
  for (int n = t; n < p.block; n += 256) {
    const Index row = first + n / p.size;
    const int i = n & inside;
    if (i < length && row < (Index)p.n.rows) {
      const Index start = row * (Index)length;
      p.places[start + i] = p.n.numbered ? numbers[n] : p.before[start + numbers[n]];
      if (p.kept) p.ordered[start + i] = keys[n];
    }
  }
}
"""

_TAKING = """
struct Taking {
  const Element* x;
  const unsigned int* places;
  Element* out;
  Rows n;
  long long kept;
};

// The row and the number in it of an element of the output.
__device__ __forceinline__ void out_place(const Taking& p, Index g, Index* row,
                                          Index* i) {
  const Index inner = (Index)p.n.inner, kept = (Index)p.kept;
  *row = g / inner / kept * inner + g % inner;
  *i = g / inner % kept;
}

extern "C" __global__ void __launch_bounds__(256)
take(const __grid_constant__ Taking p) {
  const Index length = (Index)p.n.length, count = (Index)(p.n.rows * p.kept);
  const Index step = (Index)gridDim.x * 256;
  for (Index g = (Index)blockIdx.x * 256 + threadIdx.x; g < count; g += step) {
    Index row, i;
    out_place(p, g, &row, &i);
    const Index from = p.places[row * length + i];
    p.out[g] = p.x[place_of(p.n, row, from, length)];
  }
}

extern "C" __global__ void __launch_bounds__(256)
number(const __grid_constant__ Taking p) {
  const Index length = (Index)p.n.length, count = (Index)(p.n.rows * p.kept);
  const Index step = (Index)gridDim.x * 256;
  for (Index g = (Index)blockIdx.x * 256 + threadIdx.x; g < count; g += step) {
    Index row, i;
    out_place(p, g, &row, &i);
    *(unsigned int*)&p.out[g] = p.places[row * length + i];
  }
}
"""
