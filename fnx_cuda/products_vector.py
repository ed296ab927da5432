"""Matrix products that only move memory: a few columns, or many tiny matrices.

Receives a `Problem`; gives the launches. With a few columns the matrix x is read once:
by a warp for each row where rows lie along memory, else by threads that go down its
columns side by side. Tiny products take a thread for each element of the output.
Next on the walk: `blaslt_api.py`.
"""

from __future__ import annotations

from dataclasses import replace

from fnx_cuda.instructions import Launch
from fnx_cuda.products_access import Ints, Parameters, place_parameters
from fnx_cuda.products_numbers import Numbers, numbers
from fnx_cuda.products_problem import Problem
from fnx_cuda.products_tile import part, split_sum, types_text

MOST_COLUMNS = 8
"""Columns of y that are few."""

BLOCKS = 264
"""Blocks that keep the multiprocessors of a GPU busy: two for each of 132."""

_LEAST_SPAN = 1024
"""Elements of k that a block sums at least, where k is split."""

_THREADS = 256


def vector_launches(problem: Problem) -> tuple[Launch, ...]:
    """A product with n of 8 at most, whose k is split where there are few rows."""
    kind = numbers(problem.dtype, problem.out_dtype)
    if problem.x.by_rows:
        return _rows_launches(problem, kind)
    return _columns_launches(problem, kind)


def vector_splits(problem: Problem) -> int:
    """Into how many parts k is split."""
    kind = numbers(problem.dtype, problem.out_dtype)
    if problem.x.by_rows:
        blocks = -(-problem.m // _warp_rows(problem))
    else:
        width = _columns_width(problem, kind)
        blocks = -(-problem.m // (_lanes(problem.m, width) * width))
    wanted = -(-BLOCKS // (blocks * problem.stack))
    return max(1, min(wanted, problem.k // _LEAST_SPAN))


def _warp_rows(problem: Problem) -> int:
    """The rows of a block: its 8 warps take several each where y is read again."""
    return 8 * (1 if problem.n == 1 else 2)


def _rows_launches(problem: Problem, kind: Numbers) -> tuple[Launch, ...]:
    x, y = problem.x, problem.y
    most = 8 if problem.n == 1 else 16 // kind.sum_size
    width = min(x.width(kind.size), most)
    y_width = 1
    if not y.by_rows:
        y_width = min(width, y.width(kind.size))
    values = {
        "COLUMNS": problem.n,
        "ROWS": _warp_rows(problem) // 8,
        "WIDTH": width,
        "Y_WIDTH": y_width,
        "AHEAD": _ahead(problem.n),
    }
    blocks = -(-problem.m // _warp_rows(problem))
    return _launches(problem, kind, values, blocks, _ROWS, "fnx_rows")


def _columns_launches(problem: Problem, kind: Numbers) -> tuple[Launch, ...]:
    width = _columns_width(problem, kind)
    lanes = _lanes(problem.m, width)
    ahead = _ahead(problem.n)
    values = {"COLUMNS": problem.n, "WIDTH": width, "LANES": lanes, "AHEAD": ahead}
    blocks = -(-problem.m // (lanes * width))
    return _launches(problem, kind, values, blocks, _COLUMNS, "fnx_columns")


def _ahead(n: int) -> int:
    """The steps along k whose reads are on their way at once: registers hold them."""
    return 4 if n == 1 else 2 if n <= 4 else 1


def _columns_width(problem: Problem, kind: Numbers) -> int:
    """Rows of a thread: what it can read at once, and keep the sums of."""
    width = problem.x.width(kind.size)
    return min(width, 16 // kind.sum_size)


def _lanes(m: int, width: int) -> int:
    """Threads side by side: a warp at most."""
    lanes = 1
    while lanes < 32 and lanes * width < m:
        lanes *= 2
    return lanes


def _launches(
    problem: Problem,
    kind: Numbers,
    values: dict[str, int],
    blocks: int,
    body: str,
    name: str,
) -> tuple[Launch, ...]:
    splits = vector_splits(problem)
    split = splits > 1
    parts = replace(problem, out=part(problem)) if split else problem
    # Parts begin where vectors do.
    span = -(-problem.k // splits // 64) * 64
    parameters = Parameters(
        "const Element* x", "const Element* y", f"{'Sum' if split else 'Result'}* out"
    )
    place = place_parameters(parameters, parts.batch, parts.out, parts.x, parts.y)
    parameters.wide(out_split=problem.stack * problem.m * problem.n)
    _add_strides(parameters, parts)
    parameters.short(m=problem.m, k=problem.k, span=span)
    parameters.short(blocks=blocks, stack=problem.stack)
    rows = [f"constexpr int {key} = {value};\n" for key, value in values.items()]
    launch = Launch(
        text=kind.text
        + parameters.text
        + place
        + "".join(rows)
        + types_text(problem.is_short, split)
        + body,
        function=name,
        grid=(blocks * problem.stack * splits, 1, 1),
        block=_THREADS,
        shared=0,
        pointers=(problem.x.place, problem.y.place, parts.out.place),
        numbers=parameters.numbers,
    )
    return (launch, split_sum(problem, splits)) if split else (launch,)


def _add_strides(parameters: Parameters, problem: Problem) -> None:
    strides: dict[str, int | Ints] = {
        f"{name}_{axis}": getattr(operand, axis)
        for name, operand in (("x", problem.x), ("y", problem.y), ("out", problem.out))
        for axis in ("row", "column")
    }
    parameters.wide(**strides)


def element_launches(problem: Problem) -> tuple[Launch, ...]:
    """A product by a thread for each element of the output."""
    kind = numbers(problem.dtype, problem.out_dtype)
    parameters = Parameters("const Element* x", "const Element* y", "Result* out")
    place = place_parameters(
        parameters, problem.batch, problem.out, problem.x, problem.y
    )
    total = problem.stack * problem.m * problem.n
    _add_strides(parameters, problem)
    parameters.wide(total=total)
    parameters.short(m=problem.m, n=problem.n, k=problem.k)
    return (
        Launch(
            text=kind.text
            + parameters.text
            + place
            + types_text(problem.is_short, False)
            + _ELEMENTS,
            function="fnx_elements",
            grid=(-(-total // _THREADS), 1, 1),
            block=_THREADS,
            shared=0,
            pointers=(problem.x.place, problem.y.place, problem.out.place),
            numbers=parameters.numbers,
        ),
    )


# ---------------------------------------------------------------- text

_ELEMENTS = """
extern "C" __global__ void __launch_bounds__(256)
fnx_elements(const __grid_constant__ P p) {
  const long long number = blockIdx.x * 256ll + threadIdx.x;
  if (number >= p.total) return;
  const int row = (int)(number / p.n % p.m), column = (int)(number % p.n);
  long long at[3];
  place(p, (int)(number / p.n / p.m), at);
  const Element* x = p.x + at[1] + row * p.x_row;
  const Element* y = p.y + at[2] + column * p.y_column;
  Sum sum = zero();
#pragma unroll 4
  for (int k = 0; k < p.k; ++k)
    sum = added(sum, widened(x[(Index)k * (Index)p.x_column]),
                widened(y[(Index)k * (Index)p.y_row]));
  p.out[at[0] + row * p.out_row + column * p.out_column] = written(sum);
}
"""

_ROWS = """
extern "C" __global__ void __launch_bounds__(256, 2)
fnx_rows(const __grid_constant__ P p) {
  typedef Vector<Element, WIDTH> XVector;
  typedef Vector<Element, Y_WIDTH> YVector;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rest = blockIdx.x / p.blocks, split = rest / p.stack;
  const int first = (blockIdx.x % p.blocks * 8 + warp) * ROWS;
  const int start = split * p.span, end = min(p.k, start + p.span);
  long long at[3];
  place(p, rest % p.stack, at);
  const Element* x = p.x + at[1];
  const Element* y = p.y + at[2];
  if (first >= p.m) return;

  Sum sums[ROWS][COLUMNS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = zero();
#pragma unroll AHEAD
  for (int k = start + lane * WIDTH; k < end; k += 32 * WIDTH) {
    XVector a[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
      // A row after the last one is the last one, and is not written.
      a[i] = *(const XVector*)(x + (Index)min(first + i, p.m - 1) * (Index)p.x_row + k);
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
      for (int part = 0; part < WIDTH; part += Y_WIDTH) {
        const YVector b = *(const YVector*)(
            y + (Index)(k + part) * (Index)p.y_row + j * (Index)p.y_column);
#pragma unroll
        for (int each = 0; each < Y_WIDTH; ++each)
#pragma unroll
          for (int i = 0; i < ROWS; ++i)
            sums[i][j] = added(sums[i][j], widened(a[i].each[part + each]),
                               widened(b.each[each]));
      }
  }
  Written* out = p.out + at[0] + split * p.out_split;
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
      Sum sum = sums[i][j];
#pragma unroll
      for (int away = 16; away > 0; away /= 2) sum = plus(sum, from_lane(sum, away));
      if (lane == 0 && first + i < p.m)
        out[(first + i) * p.out_row + j * p.out_column] = written(sum);
    }
}
"""

_COLUMNS = """
extern "C" __global__ void __launch_bounds__(256, 2)
fnx_columns(const __grid_constant__ P p) {
  typedef Vector<Element, WIDTH> XVector;
  constexpr int SLICES = 256 / LANES;
  __shared__ Sum parts[256][WIDTH * COLUMNS];
  const int lane = threadIdx.x % LANES, slice = threadIdx.x / LANES;
  const int rest = blockIdx.x / p.blocks, split = rest / p.stack;
  const int first = (blockIdx.x % p.blocks * LANES + lane) * WIDTH;
  const int start = split * p.span, end = min(p.k, start + p.span);
  long long at[3];
  place(p, rest % p.stack, at);
  const Element* x = p.x + at[1];
  const Element* y = p.y + at[2];

  Sum sums[WIDTH][COLUMNS];
#pragma unroll
  for (int i = 0; i < WIDTH; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = zero();
  if (first < p.m) {
#pragma unroll AHEAD
    for (int k = start + slice; k < end; k += SLICES) {
      const XVector a = *(const XVector*)(x + (Index)k * (Index)p.x_column + first);
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        const Sum b = widened(y[(Index)k * (Index)p.y_row + j * (Index)p.y_column]);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
          sums[i][j] = added(sums[i][j], widened(a.each[i]), b);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < WIDTH; ++i)
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) parts[threadIdx.x][i * COLUMNS + j] = sums[i][j];
  __syncthreads();

  // The slices are added up, each sum by one thread.
  Written* out = p.out + at[0] + split * p.out_split;
  for (int number = threadIdx.x; number < LANES * WIDTH * COLUMNS; number += 256) {
    const int from = number / (WIDTH * COLUMNS), place = number % (WIDTH * COLUMNS);
    Sum sum = parts[from][place];
    for (int other = 1; other < SLICES; ++other)
      sum = plus(sum, parts[from + other * LANES][place]);
    const int row = (blockIdx.x % p.blocks * LANES + from) * WIDTH + place / COLUMNS;
    const int column = place % COLUMNS;
    if (row < p.m) out[row * p.out_row + column * p.out_column] = written(sum);
  }
}
"""
