"""Matrix products of tiles: a block of threads computes a tile of the output.

Receives a `Contraction`, a tile and a number of splits of k; gives the kernel's text
and the launch. Tiles of the operands go through shared memory, twice: while one is
multiplied the next one is read. Each thread keeps a block of sums in registers. With
splits, each block sums a part of k into memory of its own, and `split_sum` adds the
parts up in order. Next on the walk: `products_tensor.py`.
"""

from __future__ import annotations

from string import Template

from fnx.records import record
from fnx.runtime.plan import Place
from fnx_cuda.instructions import Launch
from fnx_cuda.products_access import (
    VECTOR,
    Access,
    Contraction,
    Parameters,
    place_parameters,
)
from fnx_cuda.products_numbers import Numbers, numbers
from fnx_cuda.products_problem import Operand, matrix_target

LANES = (4, 8)
"""The rows and columns of threads of a warp."""


@record
class Tile:
    """What a block of threads computes: rows and columns, and k at a time.

    It has `warps_down` by `warps_across` warps. A multiprocessor that holds `together`
    of them makes about `rate` multiply-adds in a cycle.
    """

    rows: int
    columns: int
    depth: int
    warps_down: int
    warps_across: int
    rate: float
    together: int

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * self.warps_down * self.warps_across


TILES: dict[int, tuple[Tile, ...]] = {
    4: (
        Tile(128, 128, 8, 4, 2, 110, 2),
        Tile(64, 64, 16, 2, 2, 85, 4),
        Tile(32, 32, 16, 2, 1, 45, 8),
    ),
    8: (Tile(64, 64, 8, 2, 2, 50, 3), Tile(32, 32, 16, 2, 1, 30, 6)),
    16: (Tile(32, 32, 8, 2, 1, 12, 4),),
}
"""The tiles for sums of so many bytes, the largest one first."""


@record
class Cut:
    """How a problem is cut: a tile, and the splits of k, of so many elements."""

    tile: Tile
    splits: int
    span: int


def whole(tile: Tile, k: int) -> Cut:
    """A cut without splits."""
    return Cut(tile, 1, k)


def tile_launches(given: Contraction, cut: Cut) -> tuple[Launch, ...]:
    """The product by tiles, and the sum of its splits."""
    kind = numbers(given.dtype, given.out_dtype)
    vector = VECTOR // kind.sum_size
    down, across = LANES
    tile = cut.tile
    values = {
        "LANES_ACROSS": across,
        "LANES_DOWN": down,
        "MY_ROWS": tile.rows // tile.warps_down // down,
        "MY_COLUMNS": tile.columns // tile.warps_across // across,
        "VECTOR": vector,
        "PAD": vector,
    }
    body = Body(PARTS + _TILE, "fnx_tiles", values, vector)
    return cut_launches(given, cut, kind, body)


@record
class Body:
    """A kernel of tiles: its text and name, constants, and the widest writes."""

    text: str
    name: str
    values: dict[str, int]
    out_width: int


def cut_launches(
    given: Contraction, cut: Cut, kind: Numbers, body: Body
) -> tuple[Launch, ...]:
    """The launch of a kernel whose blocks are tiles, then that of the sum of splits."""
    tile, split = cut.tile, cut.splits > 1
    down, across = -(-given.m // tile.rows), -(-given.n // tile.columns)
    parameters = Parameters(
        "const Element* x", "const Element* y", f"{'Sum' if split else 'Result'}* out"
    )
    own = part(given)
    out = own if split else given.out
    place = place_parameters(parameters, given.batch, out, given.x, given.y)
    parameters.wide(out_split=given.stack * given.m * given.n)
    access = given.access(parameters)
    if split:
        width, target = own.row_width(kind.sum_size), matrix_target(own, parameters)
    else:
        width, target = given.out_width, given.target(parameters)
    parameters.short(m=given.m, n=given.n, k=given.k, span=cut.span)
    parameters.short(down=down, across=across, stack=given.stack)
    constants = _constants(tile, kind, access, min(width, body.out_width), body)
    types = types_text(access.is_short, split)
    text = kind.text + parameters.text + place + constants + types + BLOCK
    launch = Launch(
        text=text + access.text + target + body.text,
        function=body.name,
        grid=(down * across * given.stack * cut.splits, 1, 1),
        block=tile.threads,
        shared=0,
        pointers=(given.x.place, given.y.place, out.place),
        numbers=parameters.numbers,
    )
    return (launch, split_sum(given, cut.splits)) if split else (launch,)


def work_bytes(given: Contraction, splits: int) -> int:
    """The bytes of the parts of a split product."""
    kind = numbers(given.dtype, given.out_dtype)
    return splits * given.stack * given.m * given.n * kind.sum_size


def part(given: Contraction) -> Operand:
    """The output of one split in the work memory: dense."""
    strides, step = [], given.m * given.n
    for size in reversed(given.batch):
        strides.append(step)
        step *= size
    place, rows, columns = Place("work", 0), given.m, given.n
    return Operand(place, 0, tuple(reversed(strides)), rows, columns, columns, 1)


def split_sum(given: Contraction, splits: int) -> Launch:
    """Adds up the parts that lie dense in the work memory, one thread an element."""
    kind = numbers(given.dtype, given.out_dtype)
    parameters = Parameters("const Sum* parts", "Result* out")
    place = place_parameters(parameters, given.batch, given.out, given.x, given.y)
    target = given.target(parameters)
    total = given.stack * given.m * given.n
    parameters.wide(total=total)
    parameters.short(m=given.m, n=given.n, splits=splits)
    return Launch(
        text=kind.text + parameters.text + place + _INDEX + target + _SPLIT_SUM,
        function="fnx_split_sum",
        grid=(-(-total // 256), 1, 1),
        block=256,
        shared=0,
        pointers=(Place("work", 0), given.out.place),
        numbers=parameters.numbers,
    )


_INDEX = """
typedef long long Index;
"""

_SPLIT_SUM = """
extern "C" __global__ void __launch_bounds__(256)
fnx_split_sum(const __grid_constant__ P p) {
  const long long number = blockIdx.x * 256ll + threadIdx.x;
  if (number >= p.total) return;
  Sum sum = p.parts[number];
  for (int split = 1; split < p.splits; ++split)
    sum = plus(sum, p.parts[split * p.total + number]);
  const int row = (int)(number / p.n % p.m), column = (int)(number % p.n);
  long long at[3];
  place(p, (int)(number / p.n / p.m), at);
  p.out[at[0] + out_place(p, row, column)] = narrowed(sum);
}
"""


# ---------------------------------------------------------------- text


def together(tile: Tile, kind: Numbers, widths: tuple[int, int]) -> int:
    """How many blocks the registers of a multiprocessor are to hold.

    Moves of few bytes are many, and the address of each takes registers.
    """
    narrow = min(widths) * kind.size < VECTOR
    return max(tile.together // 2, 1) if narrow else tile.together


def _constants(
    tile: Tile, kind: Numbers, access: Access, out_width: int, body: Body
) -> str:
    """Sizes and layouts as constants."""
    # No more than give each thread of the block something to move.
    x_width = min(access.x_width, tile.rows * tile.depth // tile.threads)
    y_width = min(access.y_width, tile.columns * tile.depth // tile.threads)
    values = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "THREADS": tile.threads,
        "TOGETHER": together(tile, kind, (x_width, y_width)),
        "WARPS_ACROSS": tile.warps_across,
        **body.values,
        "X_WIDTH": x_width,
        "Y_WIDTH": y_width,
        "OUT_WIDTH": out_width,
        "AT_ONCE": access.at_once,
    }
    rows = [f"constexpr int {name} = {value};" for name, value in values.items()]
    # Whether the elements of an operand lie along k.
    for name, along in (("X", access.x_along), ("Y", access.y_along)):
        rows.append(f"constexpr bool {name}_ALONG = {str(along).lower()};")
    return "\n".join(rows)


def types_text(is_short: bool, split: bool) -> str:
    """The types of indices inside a matrix and of what is written: sums, if split."""
    index = "int" if is_short else "long long"
    written, rounded = ("Sum", "c") if split else ("Result", "narrowed(c)")
    return f"""
typedef {index} Index;
typedef {written} Written;
__device__ __forceinline__ Written written(Sum c) {{ return {rounded}; }}
template <typename T, int N> struct __align__(sizeof(T) * N) Vector {{ T each[N]; }};
"""


BLOCK = """
// Which tile of which item and which part of k a block computes. Tiles that follow each
// other lie in bands of 8 rows of tiles, so that they read the same columns of y.
struct Block { int row, column, item, split; };
__device__ __forceinline__ Block block_of(const P& p) {
  const int tiles = p.down * p.across;
  const int number = blockIdx.x % tiles, rest = blockIdx.x / tiles;
  const int band = number / (8 * p.across), inside = number % (8 * p.across);
  const int high = min(8, p.down - 8 * band);
  Block block = {(8 * band + inside % high) * ROWS, inside / high * COLUMNS,
                 rest % p.stack, rest / p.stack};
  return block;
}
"""

PARTS = """
// What a thread reads of a tile of EXTENT rows (of x, or columns of y) by DEPTH.
template <typename Source, int EXTENT, int WIDTH, bool ALONG> struct Part {
  static constexpr int COUNT = EXTENT * DEPTH / WIDTH / THREADS;
  static constexpr int PITCH = EXTENT + PAD;
  static constexpr int STORED = ALONG ? 1 : WIDTH < VECTOR ? WIDTH : VECTOR;
  typedef Vector<Element, WIDTH> Read;
  Read parts[COUNT];

  __device__ __forceinline__ static int row_of(int part) {
    const int number = threadIdx.x + part * THREADS;
    return ALONG ? number / (DEPTH / WIDTH) : number % (EXTENT / WIDTH) * WIDTH;
  }
  __device__ __forceinline__ static int depth_of(int part) {
    const int number = threadIdx.x + part * THREADS;
    return ALONG ? number % (DEPTH / WIDTH) * WIDTH : number / (EXTENT / WIDTH);
  }
  __device__ __forceinline__ void read(
      const Source& source, int first, int k, int end) {
#pragma unroll
    for (int part = 0; part < COUNT; ++part) {
      Index at;
      Read found = {};
      if (source.find(first + row_of(part), k + depth_of(part), end, at))
        found = *(const Read*)(source.from + at);
      parts[part] = found;
    }
  }
  __device__ __forceinline__ void keep(Sum (*tile)[PITCH]) const {
#pragma unroll
    for (int part = 0; part < COUNT; ++part) {
      const int row = row_of(part), depth = depth_of(part);
#pragma unroll
      for (int each = 0; each < WIDTH; each += STORED) {
        if (ALONG) {
          tile[depth + each][row] = widened(parts[part].each[each]);
          continue;
        }
        Vector<Sum, STORED> values;
#pragma unroll
        for (int i = 0; i < STORED; ++i)
          values.each[i] = widened(parts[part].each[each + i]);
        *(Vector<Sum, STORED>*)&tile[depth][row + each] = values;
      }
    }
  }
};

"""

_STAGED = Template("""
extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER)
$name(const __grid_constant__ P p) {
  typedef Part<XSource, ROWS, X_WIDTH, X_ALONG> XPart;
  typedef Part<YSource, COLUMNS, Y_WIDTH, Y_ALONG> YPart;
$types  __shared__ __align__(16) $element x_tiles[2][DEPTH][XPart::PITCH];
  __shared__ __align__(16) $element y_tiles[2][DEPTH][YPart::PITCH];

  const Block block = block_of(p);
  const int start = block.split * p.span, end = min(p.k, start + p.span);
  long long at[3];
  place(p, block.item, at);
  const XSource x = x_source(p, p.x + at[1]);
  const YSource y = y_source(p, p.y + at[2]);
$own  XPart x_part;
  YPart y_part;
  x_part.read(x, block.row, start, end);
  y_part.read(y, block.column, start, end);
  x_part.keep(x_tiles[0]);
  y_part.keep(y_tiles[0]);
  __syncthreads();
  int now = 0;
  for (int k = start; k < end; k += DEPTH) {
    const bool more = k + DEPTH < end;
    if (more) {
      x_part.read(x, block.row, k + DEPTH, end);
      y_part.read(y, block.column, k + DEPTH, end);
    }
$step    if (more) {
      now ^= 1;
      x_part.keep(x_tiles[now]);
      y_part.keep(y_tiles[now]);
      __syncthreads();
    }
  }

$written}
""")


def staged(
    name: str, element: str, own: str, step: str, written: str, types: str = ""
) -> str:
    """A kernel whose tiles go to shared memory by way of registers, two in turn.

    The next tiles are on their way to registers while these are used. They hold
    `element`s. `own` says where a thread's part of the result is and begins its sums,
    `step` adds the products of the tiles `now` to them, `written` writes them; `types`
    are those that all of it uses.
    """
    return _STAGED.substitute(
        name=name, element=element, own=own, step=step, written=written, types=types
    )


_TILE = staged(
    "fnx_tiles",
    "Sum",
    types="""\
  typedef Vector<Sum, VECTOR> Sums;
""",
    own="""
  // A thread's rows and columns are vectors, far from each other, so that those of the
  // threads of a warp lie side by side in shared memory.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int my_row = warp / WARPS_ACROSS * (LANES_DOWN * MY_ROWS)
                   + lane / LANES_ACROSS * VECTOR;
  const int my_column = warp % WARPS_ACROSS * (LANES_ACROSS * MY_COLUMNS)
                      + lane % LANES_ACROSS * VECTOR;

  Sum sums[MY_ROWS][MY_COLUMNS];
#pragma unroll
  for (int i = 0; i < MY_ROWS; ++i)
#pragma unroll
    for (int j = 0; j < MY_COLUMNS; ++j) sums[i][j] = zero();

""",
    step="""\
// Two at a time: more steps ask for more registers than there are.
#pragma unroll 2
    for (int depth = 0; depth < DEPTH; ++depth) {
      Sums a[MY_ROWS / VECTOR], b[MY_COLUMNS / VECTOR];
#pragma unroll
      for (int i = 0; i < MY_ROWS / VECTOR; ++i)
        a[i] = *(const Sums*)&x_tiles[now][depth][my_row + i * LANES_DOWN * VECTOR];
#pragma unroll
      for (int j = 0; j < MY_COLUMNS / VECTOR; ++j)
        b[j] = *(const Sums*)&y_tiles[now][depth][my_column
                                                  + j * LANES_ACROSS * VECTOR];
#pragma unroll
      for (int i = 0; i < MY_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS; ++j)
          sums[i][j] = added(sums[i][j], a[i / VECTOR].each[i % VECTOR],
                             b[j / VECTOR].each[j % VECTOR]);
    }
""",
    written="""\
  Written* out = p.out + at[0] + block.split * p.out_split;
#pragma unroll
  for (int i = 0; i < MY_ROWS; ++i) {
    const int row = block.row + my_row + i / VECTOR * LANES_DOWN * VECTOR + i % VECTOR;
#pragma unroll
    for (int j = 0; j < MY_COLUMNS; j += OUT_WIDTH) {
      const int column = block.column + my_column
                       + j / VECTOR * LANES_ACROSS * VECTOR + j % VECTOR;
      Vector<Written, OUT_WIDTH> vector;
#pragma unroll
      for (int each = 0; each < OUT_WIDTH; ++each)
        vector.each[each] = written(sums[i][j + each]);
      if (row < p.m && column < p.n)
        *(Vector<Written, OUT_WIDTH>*)(out + out_place(p, row, column)) = vector;
    }
  }
""",
)
