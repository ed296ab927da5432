"""Small matrix products: one function of machine code for each dtype, for all sizes.

A library of BLAS packs both operands of a product into buffers of its own, which costs
more than the arithmetic where one side is short: the steps of a recurrent network, the
heads of attention, the gradients of weights of a small batch. Here a tile of the output
stays in registers, rows of x are read where they are, and only a panel of y is packed,
on the stack of the thread. Every element is summed in the order of k, part by part, so
that its bits do not depend on how an output is cut. Receives nothing, gives the text of
a module which exports `void gemm(out, out.rows, x, x.rows, x.columns, y, y.rows,
y.columns, m, n, k)`; sizes and the strides of rows and columns count elements, columns
of `out` lie together. Next on the walk: `products.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from typing import NamedTuple

from fnx.cpu import jit
from fnx.cpu.assembly import Assembly, Index
from fnx.records import record

DEPTH = 256
"""How much of k is summed before the next part of the operands is read. The sums of
parts are added up, so that errors grow with the root of their number."""

ROWS_BYTES = 2**15 * 3
"""Bytes of the rows of x that are packed at once: they stay in the second cache."""


class Element(NamedTuple):
    """A type of elements: its name in LLVM, that of its functions, and its bytes."""

    name: str
    suffix: str
    nbytes: int


ELEMENTS = {
    "float32": Element("float", "f32", 4),
    "float64": Element("double", "f64", 8),
}


@record
class Tile:
    """The part of the output that stays in registers: rows, and vectors of columns."""

    rows: int
    vectors: int
    lanes: int
    element: Element

    @property
    def columns(self) -> int:
        """How many columns it has."""
        return self.vectors * self.lanes

    @property
    def vector(self) -> str:
        """The type of a vector."""
        return f"<{self.lanes} x {self.element.name}>"

    @property
    def most_rows(self) -> int:
        """How many rows of x are packed at once: whole tiles."""
        fit = ROWS_BYTES // (DEPTH * self.element.nbytes)
        return fit // self.rows * self.rows


@cache
def tile(dtype: str) -> Tile | None:
    """The tile for this CPU; `None` where it does not multiply and add in one step.

    Sums take some steps to be ready, and each vector of y that is loaded is to be used
    by many rows: as many of both as registers allow.
    """
    element = ELEMENTS.get(dtype)
    shape = _shape(jit.host()[1].split(","))
    if element is None or shape is None:
        return None
    rows, nbytes = shape
    return Tile(rows, 2, nbytes // element.nbytes, element)


def _shape(features: list[str]) -> tuple[int, int] | None:
    """The rows of a tile, and the bytes of a vector."""
    if "+avx512f" in features:
        return 8, 64
    if "+fma" in features:
        return 6, 32
    return (8, 16) if "+neon" in features else None


@cache
def gemm_address(dtype: str) -> int:
    """Where the function for a dtype is in this process."""
    shape = tile(dtype)
    assert shape is not None, dtype
    library = jit.load_fixed(gemm_text(shape), ["gemm"])
    _kept.append(library)
    return library.address("gemm")


_kept: list[jit.Library] = []  # plans have the addresses of their functions


def gemm_text(tile: Tile) -> str:
    """The module."""
    element, vector = tile.element.name, tile.vector
    fma = f"llvm.fma.v{tile.lanes}{tile.element.suffix}"
    parts = [
        f"declare {vector} @{fma}({vector}, {vector}, {vector})",
        "declare i64 @llvm.umin.i64(i64, i64)",
    ]
    shapes = list(product(range(1, tile.rows + 1), range(1, tile.vectors + 1)))
    parts += [_tile_text(tile, fma, rows, vectors) for rows, vectors in shapes]
    parts += [_choice_text(tile, vectors) for vectors in range(1, tile.vectors + 1)]
    size = tile.most_rows * DEPTH, DEPTH * tile.columns, tile.rows * tile.columns
    memory = [
        f"  %{name} = alloca [{count} x {element}], align 64"
        for name, count in zip(("x.packed", "y.packed", "edge"), size, strict=True)
    ]
    arguments = (
        "ptr %out, i64 %out.rows, ptr %x, i64 %x.rows, i64 %x.columns, "
        "ptr %y, i64 %y.rows, i64 %y.columns, i64 %m, i64 %n, i64 %k"
    )
    body = _Product(tile).lines()
    head = [f"define void @gemm({arguments}) {{", "entry:", *memory]
    return "\n".join([*parts, *head, *body, "  ret void", "}"])


# ---------------------------------------------------------------- a tile

_TILE = "ptr %x, i64 %x.rows, i64 %x.columns, ptr %y, i64 %y.rows, i64 %k"
_TILE += ", ptr %out, i64 %out.rows, i1 %first"


def _tile_text(tile: Tile, fma: str, rows: int, vectors: int) -> str:
    """A function for so many rows and vectors: sums over k, which begin with 0.

    They are the output if they are the `first`, else they are added to what is there.
    """
    lines = [f"define internal void @tile{rows}x{vectors}({_TILE}) {{", "entry:"]
    lines += _addresses(tile, rows, vectors)
    lines += [
        "  br label %next",
        "next:",
        "  %p = phi i64 [ 0, %entry ], [ %after, %next ]",
        *_products(tile, fma, rows, vectors),
        "  %after = add i64 %p, 1",
        "  %more = icmp ult i64 %after, %k",
        "  br i1 %more, label %next, label %done",
        "done:",
        "  br i1 %first, label %write, label %add",
    ]
    written, added = ["write:"], ["add:"]
    for i, j in product(range(rows), range(vectors)):
        at = f"{i}.{j}"
        place = f"ptr %out{at}, align {tile.element.nbytes}"
        written.append(f"  store {tile.vector} %new{at}, {place}")
        added += [
            f"  %old{at} = load {tile.vector}, {place}",
            f"  %total{at} = fadd {tile.vector} %old{at}, %new{at}",
            f"  store {tile.vector} %total{at}, {place}",
        ]
    return "\n".join([*lines, *written, "  ret void", *added, "  ret void", "}"])


def _addresses(tile: Tile, rows: int, vectors: int) -> list[str]:
    """Where each row of x begins, and each vector of the output."""
    element, lines = tile.element.name, list[str]()
    for i in range(rows):
        lines += [
            f"  %x.to{i} = mul i64 %x.rows, {i}",
            f"  %x{i} = getelementptr {element}, ptr %x, i64 %x.to{i}",
            f"  %out.to{i} = mul i64 %out.rows, {i}",
            f"  %out{i} = getelementptr {element}, ptr %out, i64 %out.to{i}",
        ]
        for j in range(vectors):
            to = f"ptr %out{i}, i64 {j * tile.lanes}"
            lines.append(f"  %out{i}.{j} = getelementptr {element}, {to}")
    return lines


def _products(tile: Tile, fma: str, rows: int, vectors: int) -> list[str]:
    """One round: a column of x times a row of y, added to the sums."""
    element, vector, align = tile.element.name, tile.vector, tile.element.nbytes
    zero = f"<{tile.lanes} x i32> zeroinitializer"
    lines = []
    for i, j in product(range(rows), range(vectors)):
        before = f"[ zeroinitializer, %entry ], [ %new{i}.{j}, %next ]"
        lines.append(f"  %sum{i}.{j} = phi {vector} {before}")
    lines += [
        "  %y.to = mul i64 %p, %y.rows",
        f"  %y.row = getelementptr {element}, ptr %y, i64 %y.to",
        "  %x.to = mul i64 %p, %x.columns",
    ]
    for j in range(vectors):
        to = f"ptr %y.row, i64 {j * tile.lanes}"
        lines += [
            f"  %y.at{j} = getelementptr {element}, {to}",
            f"  %y{j} = load {vector}, ptr %y.at{j}, align {align}",
        ]
    for i in range(rows):
        lines += [
            f"  %x.at{i} = getelementptr {element}, ptr %x{i}, i64 %x.to",
            f"  %one{i} = load {element}, ptr %x.at{i}, align {align}",
            f"  %in{i} = insertelement {vector} poison, {element} %one{i}, i32 0",
            f"  %all{i} = shufflevector {vector} %in{i}, {vector} poison, {zero}",
        ]
        for j in range(vectors):
            operands = [f"{vector} %{x}" for x in (f"all{i}", f"y{j}", f"sum{i}.{j}")]
            call = f"call {vector} @{fma}({', '.join(operands)})"
            lines.append(f"  %new{i}.{j} = {call}")
    return lines


def _choice_text(tile: Tile, vectors: int) -> str:
    """Calls the function for a number of rows that is known when it runs."""
    numbers = range(1, tile.rows + 1)
    cases = " ".join([f"i64 {rows}, label %rows{rows}" for rows in numbers])
    calls = [
        f"rows{rows}:\n  call void @tile{rows}x{vectors}({_TILE})\n  ret void"
        for rows in numbers
    ]
    return "\n".join(
        [
            f"define internal void @tile{vectors}(i64 %rows, {_TILE}) {{",
            "entry:",
            f"  switch i64 %rows, label %rows{tile.rows} [ {cases} ]",
            *calls,
            "}",
        ]
    )


# ---------------------------------------------------------------- the whole


class _Product:
    """Writes the loops around the tiles.

    Outermost over parts of k, then over rows that fit in a cache, then over panels of
    columns; a panel of y is used by all these rows.
    """

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.element = tile.element.name
        self.block = min(tile.lanes, 8)  # of rows and columns that registers turn
        self.a = Assembly()

    def lines(self) -> list[str]:
        """The body of the function."""
        a, tile = self.a, self.tile
        # Rows of x lie together, or its columns do: then tiles of them are packed.
        packed = a.value("icmp ne i64 %x.columns, 1")
        with a.loop(0, "%k", DEPTH) as p:
            depth = self.least("%k", p, DEPTH)
            first = a.value(f"icmp eq i64 {p}, 0")
            with a.loop(0, "%m", tile.most_rows) as i:
                rows = self.least("%m", i, tile.most_rows)
                x = self.at("%x", (i, "%x.rows"), (p, "%x.columns"))
                with a.where(packed):
                    self.pack_x(x, rows, depth)
                with a.loop(0, "%n", tile.columns) as j:
                    columns = self.least("%n", j, tile.columns)
                    y = self.at("%y", (p, "%y.rows"), (j, "%y.columns"))
                    panel, stride = self.panel(y, columns, rows, depth)
                    with a.loop(0, rows, tile.rows) as row:
                        few = self.least(rows, row, tile.rows)
                        direct = self.at(x, (row, "%x.rows"))
                        there = self.at("%x.packed", (row, DEPTH))
                        place = a.select(packed, "ptr", there, direct)
                        x_rows = a.select(packed, "i64", "1", "%x.rows")
                        x_columns = a.select(packed, "i64", str(tile.rows), "1")
                        out = self.at("%out", (a.add(i, row), "%out.rows"), (j, 1))
                        operands = (
                            f"ptr {place}, i64 {x_rows}, i64 {x_columns}, "
                            f"ptr {panel}, i64 {stride}, i64 {depth}"
                        )
                        self.tiles(few, columns, operands, out, first)
        return a.lines

    def tiles(
        self, rows: str, columns: str, operands: str, out: str, first: str
    ) -> None:
        """One tile; where columns are missing it is computed aside, and copied."""
        a, tile = self.a, self.tile
        for vectors in range(1, tile.vectors + 1):
            width = vectors * tile.lanes
            begin = a.value(f"icmp ugt i64 {columns}, {width - tile.lanes}")
            end = a.value(f"icmp ule i64 {columns}, {width}")
            with a.where(a.value(f"and i1 {begin}, {end}")):
                whole = a.value(f"icmp eq i64 {columns}, {width}")
                call = f"call void @tile{vectors}(i64 {rows}, {operands}, "
                with self.either(whole) as otherwise:
                    a.write(f"{call}ptr {out}, i64 %out.rows, i1 {first})")
                    otherwise()
                    again = a.value(f"xor i1 {first}, true")
                    with a.where(again):
                        self.copy(out, "%out.rows", "%edge", width, rows, columns)
                    a.write(f"{call}ptr %edge, i64 {width}, i1 {first})")
                    self.copy("%edge", width, out, "%out.rows", rows, columns)

    def copy(
        self,
        source: str,
        source_rows: int | str,
        target: str,
        target_rows: int | str,
        rows: str,
        columns: str,
    ) -> None:
        """Copies a block element by element."""
        a = self.a
        with a.loop(0, rows) as i, a.loop(0, columns) as j:
            value = a.load(self.element, source, a.add(a.mul(i, source_rows), j))
            a.store(self.element, value, target, a.add(a.mul(i, target_rows), j))

    def pack_x(self, x: str, rows: str, depth: str) -> None:
        """Tiles of rows, one after the other; in each the rows lie together."""
        a, tile = self.a, self.tile
        vector = f"<{tile.rows} x {self.element}>"
        align = tile.element.nbytes
        with a.loop(0, rows, tile.rows) as row:
            few = self.least(rows, row, tile.rows)
            whole = a.value(f"icmp eq i64 {few}, {tile.rows}")
            begin = self.at(x, (row, "%x.rows"))
            there = self.at("%x.packed", (row, DEPTH))
            with a.loop(0, depth) as p:
                source = self.at(begin, (p, "%x.columns"))
                target = self.at(there, (p, tile.rows))
                with self.either(whole) as otherwise:
                    all_rows = a.value(f"load {vector}, ptr {source}, align {align}")
                    a.write(f"store {vector} {all_rows}, ptr {target}, align {align}")
                    otherwise()
                    with a.loop(0, few) as i:
                        a.store(
                            self.element, a.load(self.element, source, i), target, i
                        )

    def panel(self, y: str, columns: str, rows: str, depth: str) -> tuple[str, str]:
        """Where a panel of y is read, and the stride of its rows.

        For one row of tiles a panel that has all columns is read where it is.
        """
        a, tile = self.a, self.tile
        # The last panel may have one vector of columns, or less.
        narrow = a.value(f"icmp ule i64 {columns}, {tile.lanes}")
        width = a.select(narrow, "i64", str(tile.lanes), str(tile.columns))
        whole = a.value(f"icmp eq i64 {columns}, {tile.columns}")
        together = a.value("icmp eq i64 %y.columns, 1")
        fast = a.value(f"and i1 {whole}, {together}")
        once = a.value(f"icmp ule i64 {rows}, {tile.rows}")
        direct = a.value(f"and i1 {fast}, {once}")
        packs = a.value(f"xor i1 {direct}, true")
        with a.where(packs), self.either(fast) as otherwise:
            self.pack_rows(y, depth)
            otherwise()
            self.pack_columns(y, columns, depth, width)
        return (
            a.select(direct, "ptr", y, "%y.packed"),
            a.select(direct, "i64", "%y.rows", width),
        )

    def pack_rows(self, y: str, depth: str) -> None:
        """A whole panel, of which each row lies together."""
        a, tile = self.a, self.tile
        align = tile.element.nbytes
        with a.loop(0, depth) as p:
            source = self.at(y, (p, "%y.rows"))
            target = self.at("%y.packed", (p, tile.columns))
            for j in range(tile.vectors):
                begin, end = (
                    self.at(source, (j, tile.lanes)),
                    self.at(target, (j, tile.lanes)),
                )
                row = a.value(f"load {tile.vector}, ptr {begin}, align {align}")
                a.write(f"store {tile.vector} {row}, ptr {end}, align {align}")

    def pack_columns(self, y: str, columns: str, depth: str, width: str) -> None:
        """A panel of which the columns lie together, or one that is not whole.

        Blocks are turned in registers, as far as there are whole ones.
        """
        a, step = self.a, self.block
        turned = a.value("icmp eq i64 %y.rows, 1")
        ends = [a.value(f"and i64 {size}, {-step}") for size in (columns, depth)]
        j_end, p_end = [a.select(turned, "i64", end, "0") for end in ends]
        with a.loop(0, j_end, step) as j:
            with a.loop(0, p_end, step) as p:
                source = self.at(y, (j, "%y.columns"), (p, 1))
                target = self.at("%y.packed", (p, width), (j, 1))
                self.turn(source, target, width)
            self.pack_each(y, (j, a.add(j, step)), (p_end, depth), width)
        self.pack_each(y, (j_end, columns), (0, depth), width)
        with a.loop(columns, width) as j, a.loop(0, depth) as p:
            a.store(self.element, "0.0", "%y.packed", a.add(a.mul(p, width), j))

    def pack_each(
        self, y: str, js: tuple[Index, Index], ps: tuple[Index, Index], width: str
    ) -> None:
        """Some columns of some rows, element by element."""
        a = self.a
        with a.loop(*js) as j:
            source = self.at(y, (j, "%y.columns"))
            with a.loop(*ps) as p:
                value = a.load(self.element, source, a.mul(p, "%y.rows"))
                a.store(self.element, value, "%y.packed", a.add(a.mul(p, width), j))

    def turn(self, source: str, target: str, width: str) -> None:
        """Transposes a block: halves, quarters… of its rows change places in pairs."""
        a, step = self.a, self.block
        vector, align = f"<{step} x {self.element}>", self.tile.element.nbytes
        rows = []
        for j in range(step):
            begin = self.at(source, (j, "%y.columns"))
            rows.append(a.value(f"load {vector}, ptr {begin}, align {align}"))
        distance = step // 2
        while distance:
            for j in range(step):
                if not j & distance:
                    pair = rows[j], rows[j | distance]
                    rows[j] = self.exchanged(*pair, distance, 0)
                    rows[j | distance] = self.exchanged(*pair, distance, distance)
            distance //= 2
        for p, row in enumerate(rows):
            end = self.at(target, (p, width))
            a.write(f"store {vector} {row}, ptr {end}, align {align}")

    def exchanged(self, x: str, y: str, distance: int, shift: int) -> str:
        """Every second group of `distance` lanes is of x, the others are of y."""
        step = self.block
        lanes = [
            lane - distance + shift + step if lane & distance else lane + shift
            for lane in range(step)
        ]
        places = ", ".join([f"i32 {lane}" for lane in lanes])
        vector = f"<{step} x {self.element}>"
        return self.a.value(
            f"shufflevector {vector} {x}, {vector} {y}, <{step} x i32> <{places}>"
        )

    # -- words

    def least(self, end: str, begin: str, most: int) -> str:
        """How many there are from `begin` to `end`, at most so many."""
        left = self.a.value(f"sub i64 {end}, {begin}")
        return self.a.value(f"call i64 @llvm.umin.i64(i64 {left}, i64 {most})")

    def at(self, pointer: str, *steps: tuple[int | str, int | str]) -> str:
        """The address some strides further on."""
        for index, stride in steps:
            offset = self.a.mul(index, stride)
            pointer = self.a.place(self.element, pointer, offset)
        return pointer

    @contextmanager
    def either(self, condition: str) -> Iterator[Callable[[], None]]:
        """What is done if a condition holds; after a call of what is given, if not."""
        a = self.a
        then, other, done = a.labels("then", "other", "done")
        a.write(f"br i1 {condition}, label %{then}, label %{other}")
        a.begin(then)

        def otherwise() -> None:
            a.write(f"br label %{done}")
            a.begin(other)

        yield otherwise
        a.write(f"br label %{done}")
        a.begin(done)
