"""Fourier transforms: functions of machine code for each dtype, for all lengths.

A block of lines (see `fft_moves.py`) is transformed by passes, one for each factor of
the length: radix r takes r rows at a distance, multiplies them by roots of one and puts
their sums side by side, from one place to another and back (Stockham's algorithm), so
that nothing has to be reordered in the end. Every instruction does the same for all
lines of a block. One long line is a matrix whose columns are transformed, turned by
roots, then its rows (Bailey, 1990), both in blocks. Reals are transformed as half as
many complex numbers, from which the coefficients are made afterwards.

Exports, for the thread pool, `void f(ptr numbers, i64 begin, i64 end)`: `fft_blocks`
does blocks of lines (`BLOCKS` says what the numbers are), `fft_lines` whole lines, each
by two such steps (`LINES`), `fft_halves` makes coefficients of reals, or the reverse
(`HALVES`). Next on the walk: `fft.py`, which says what they are to do.
"""

from __future__ import annotations

from fnx.cpu.assembly import Assembly
from fnx.cpu.fft_arithmetic import RADICES, Arithmetic, Lanes, Number
from fnx.cpu.fft_moves import moves_text
from fnx.cpu.fft_reals import reals_text

EXPORTS = ("fft_blocks", "fft_lines", "fft_halves")

BLOCKS = (
    "source",  # where the first line is; of `fft_lines`, not used
    "target",  # where it goes
    "roots",  # those of the passes
    "fine",  # those by which a row is turned for each lane, or 0
    "coarse",  # those by which it is turned for each block
    "radices",  # four bits for each pass, the first one in the lowest bits
    "length",  # of a line
    "take_lines",  # 1 if they lie one behind the other, 0 if side by side
    "give_lines",
    "blocks",  # how many there are of a group of lines
    "lines",  # of a group
    "source_group",  # bytes from one group to the next
    "source_block",  # from one block to the next
    "source_step",  # from one line to the next, or from one row
    "target_group",
    "target_block",
    "target_step",
    "re",  # where real parts are in a row of a block, in bytes
    "im",
    "scale",  # a number of the dtype
    "before",  # roots of one for reals, by which rows are prepared, or 0
    "after",  # those by which they are finished; reals lie side by side
)
"""The numbers of `fft_blocks`, 64 bits each, like the addresses."""

LINES = (
    "source",  # where the first line is
    "target",
    "source_line",  # bytes from one to the next
    "target_line",
    "length",  # numbers of a line
    "before",  # roots of one for reals, by which the line is prepared, or 0
    "after",  # those by which it is finished, or 0
)
"""The numbers of `fft_lines`; those of both steps follow."""

HALVES = (
    "source",
    "target",
    "source_line",
    "target_line",
    "length",
    "before",
    "after",
    "pieces",  # into which each line is cut
    "piece",  # so many pairs of coefficients
)
"""The numbers of `fft_halves`: begin like those of `fft_lines`."""


def fft_text(lanes: Lanes) -> str:
    """The module."""
    v = lanes.vector
    parts = [
        "declare ptr @malloc(i64)",
        "declare void @free(ptr)",
        f"declare {v} @llvm.fmuladd.{lanes.suffix}({v}, {v}, {v})",
        *moves_text(lanes),
    ]
    for radix in RADICES:
        parts += [_pass_text(lanes, radix, last) for last in (False, True)]
    parts += [
        _table_text(),
        _passes_text(lanes),
        _block_text(lanes),
        _memory_text(lanes),
        _blocks_text(lanes),
        *reals_text(lanes),
        _lines_text(lanes),
        _halves_text(),
    ]
    return "\n".join(parts)


# ---------------------------------------------------------------- passes

_PASS = "ptr %x, ptr %y, i64 %done, i64 %left, ptr %roots"


def _pass_text(lanes: Lanes, radix: int, last: bool) -> str:
    """A pass: of x, for each of `left` places in it and each of `done` frequencies.

    The `last` one has one place only, and no roots.
    """
    a = Assembly()
    arithmetic = Arithmetic(a, lanes)
    row, half = lanes.row, lanes.row // 2
    aligned = f"align {half}"
    distance = a.mul(a.mul("%done", "%left"), row)
    apart = a.mul("%done", row)
    with a.loop(0, 1 if last else "%left") as place:
        group = a.mul(place, apart)
        x_group = a.at("%x", group)
        y_group = a.at("%y", a.mul(group, radix))
        root = a.at("%roots", a.mul(place, (radix - 1) * 2 * lanes.nbytes))
        with a.loop(0, "%done") as index:
            to = a.mul(index, row)
            x, y = a.at(x_group, to), a.at(y_group, to)
            numbers: list[Number] = []
            for _ in range(radix):
                parts = [x, a.at(x, half)]
                re, im = [
                    a.value(f"load {lanes.vector}, ptr {p}, {aligned}") for p in parts
                ]
                numbers.append((re, im))
                x = a.at(x, distance)
            for k, number in enumerate(arithmetic.transform(numbers)):
                if k and not last:
                    number = arithmetic.times(number, _root(a, lanes, root, k - 1))
                for n, part in enumerate(number):
                    at = a.at(y, half * n) if n else y
                    a.write(f"store {lanes.vector} {part}, ptr {at}, {aligned}")
                y = a.at(y, apart)
    name = f"last{radix}" if last else f"pass{radix}"
    head = f"define internal void @{name}({_PASS}) {{"
    return "\n".join([head, "entry:", *a.lines, "  ret void", "}"])


def _root(a: Assembly, lanes: Lanes, roots: str, number: int) -> Number:
    """A root of one in all lanes."""
    parts = []
    for n in range(2):
        value = a.load(lanes.element, roots, 2 * number + n)
        first = f"insertelement {lanes.vector} poison, {lanes.element} {value}, i64 0"
        zeros = f"<{lanes.count} x i32> zeroinitializer"
        vector = f"{lanes.vector} {a.value(first)}, {lanes.vector} poison"
        parts.append(a.value(f"shufflevector {vector}, {zeros}"))
    return parts[0], parts[1]


def _table_text() -> str:
    """The functions of the passes by radix: of the last one, and of others."""
    rows = []
    for radix in range(16):
        names = [f"@pass{radix}", f"@last{radix}"] if radix in RADICES else ["null"] * 2
        rows.append(f"[2 x ptr] [{', '.join([f'ptr {name}' for name in names])}]")
    return f"@passes = internal constant [16 x [2 x ptr]] [{', '.join(rows)}]"


def _passes_text(lanes: Lanes) -> str:
    """All passes of a block from x to y and back; where the result is."""
    return f"""
define internal ptr @transform(ptr %x, ptr %y, i64 %length, i64 %radices, ptr %roots) {{
entry:
  br label %head
head:
  %from = phi ptr [ %x, %entry ], [ %to, %body ]
  %to = phi ptr [ %y, %entry ], [ %from, %body ]
  %done = phi i64 [ 1, %entry ], [ %more, %body ]
  %points = phi i64 [ %length, %entry ], [ %left, %body ]
  %rest = phi i64 [ %radices, %entry ], [ %others, %body ]
  %root = phi ptr [ %roots, %entry ], [ %next, %body ]
  %none = icmp eq i64 %rest, 0
  br i1 %none, label %end, label %body
body:
  %radix = and i64 %rest, 15
  %others = lshr i64 %rest, 4
  %left = udiv i64 %points, %radix
  %last = icmp eq i64 %left, 1
  %column = zext i1 %last to i64
  %place = getelementptr [2 x ptr], ptr @passes, i64 %radix, i64 %column
  %pass = load ptr, ptr %place
  call void %pass(ptr %from, ptr %to, i64 %done, i64 %left, ptr %root)
  %more = mul i64 %done, %radix
  %turned = sub i64 %radix, 1
  %count = mul i64 %turned, %left
  %bytes = mul i64 %count, {2 * lanes.nbytes}
  %next = getelementptr i8, ptr %root, i64 %bytes
  br label %head
end:
  ret ptr %from
}}"""


# ---------------------------------------------------------------- blocks


_BLOCK_POINTERS = ("source", "target", "roots", "fine", "coarse", "before", "after")


def _fields(names: tuple[str, ...], pointers: tuple[str, ...]) -> list[str]:
    """Loads all numbers; each is called by its name."""
    lines = []
    for number, name in enumerate(names):
        type_ = "ptr" if name in pointers else "i64"
        lines += [
            f"  %{name}.at = getelementptr i64, ptr %numbers, i64 {number}",
            f"  %{name} = load {type_}, ptr %{name}.at",
        ]
    return lines


def _block_text(lanes: Lanes) -> str:
    """A block: from memory, all passes, and back."""
    element = lanes.element
    fields = _fields(BLOCKS, _BLOCK_POINTERS)
    source = "ptr %here, i64 %source_step, i64 %taken, i64 %lanes"
    target = "ptr %there, i64 %target_step, i64 %given, i64 %lanes"
    x = "ptr %x, i64 %re, i64 %im"
    found = f"ptr %found, i64 %re, i64 %im, {element} %factor"
    parts = "i64 %length, i64 %re, i64 %im"
    return "\n".join(
        [
            "define internal void @block(",
            "  ptr %numbers, ptr %from, ptr %to, i64 %block, ptr %x) {",
            "entry:",
            *fields,
            f"""
  %factor = load {element}, ptr %scale.at
  %passed = mul i64 %block, {lanes.count}
  %behind = sub i64 %lines, %passed
  %lanes = call i64 @llvm.umin.i64(i64 %behind, i64 {lanes.count})
  %from.to = mul i64 %block, %source_block
  %here = getelementptr i8, ptr %from, i64 %from.to
  %to.to = mul i64 %block, %target_block
  %there = getelementptr i8, ptr %to, i64 %to.to
  %room = call i64 @room(i64 %length)
  %y = getelementptr i8, ptr %x, i64 %room
  %prepares = icmp ne ptr %before, null
  %finishes = icmp ne ptr %after, null
  %more = add i64 %length, 1
  %taken = select i1 %prepares, i64 %more, i64 %length
  %given = select i1 %finishes, i64 %more, i64 %length
  %as.lines = icmp ne i64 %take_lines, 0
  br i1 %as.lines, label %lines.in, label %no.lines.in
lines.in:
  call void @take_lines({source}, {x})
  br label %passes
no.lines.in:
  br i1 %finishes, label %reals.in, label %rows.in
reals.in:
  call void @take_real_rows({source}, {x})
  br label %passes
rows.in:
  call void @take_rows({source}, {x})
  br i1 %prepares, label %prepare, label %passes
prepare:
  call void @before_rows(ptr %x, {parts}, ptr %before)
  br label %passes
passes:
  %found = call ptr @transform(ptr %x, ptr %y, i64 %length, i64 %radices, ptr %roots)
  br i1 %finishes, label %finish, label %out
finish:
  call void @after_rows(ptr %found, {parts}, ptr %after)
  br label %out
out:
  %to.lines = icmp ne i64 %give_lines, 0
  br i1 %to.lines, label %lines.out, label %no.lines.out
lines.out:
  call void @give_lines({target}, {found})
  ret void
no.lines.out:
  br i1 %prepares, label %reals.out, label %rows.out
reals.out:
  call void @give_real_rows({target}, {found})
  ret void
rows.out:
  %plain = icmp eq ptr %fine, null
  br i1 %plain, label %plain.out, label %turned.out
plain.out:
  call void @give_rows({target}, {found})
  ret void
turned.out:
  %a.block = mul i64 %length, {2 * lanes.nbytes}
  %coarse.to = mul i64 %block, %a.block
  %coarse.here = getelementptr i8, ptr %coarse, i64 %coarse.to
  call void @give_turned_rows({target}, {found}, ptr %fine, ptr %coarse.here)
  ret void
}}""",
        ]
    )


def _memory_text(lanes: Lanes) -> str:
    """Memory for the blocks of a call."""
    return f"""\
; The bytes of a block; squares may be longer than the lines.
define internal i64 @room(i64 %length) {{
  %rows = add i64 %length, {lanes.count}
  %bytes = mul i64 %rows, {lanes.row}
  ret i64 %bytes
}}
; Memory for two blocks, and a number of bytes behind them.
define internal ptr @memory(i64 %length, i64 %more) {{
  %room = call i64 @room(i64 %length)
  %both = mul i64 %room, 2
  %with = add i64 %both, %more
  %bytes = add i64 %with, 64
  %memory = call ptr @malloc(i64 %bytes)
  ret ptr %memory
}}
; The next address at which a line of a cache begins.
define internal ptr @aligned(ptr %memory) {{
  %number = ptrtoint ptr %memory to i64
  %over = add i64 %number, 63
  %even = and i64 %over, -64
  %address = inttoptr i64 %even to ptr
  ret ptr %address
}}"""


def _blocks_text(lanes: Lanes) -> str:
    """Some of the blocks of all groups."""
    a = Assembly()
    memory = a.value("call ptr @memory(i64 %length, i64 0)")
    x = a.value(f"call ptr @aligned(ptr {memory})")
    with a.loop("%begin", "%end") as number:
        group = a.value(f"udiv i64 {number}, %blocks")
        block = a.value(f"urem i64 {number}, %blocks")
        source = a.at("%source", a.mul(group, "%source_group"))
        target = a.at("%target", a.mul(group, "%target_group"))
        ends = f"ptr {source}, ptr {target}"
        a.write(f"call void @block(ptr %numbers, {ends}, i64 {block}, ptr {x})")
    a.write(f"call void @free(ptr {memory})")
    return _exported("fft_blocks", [*_fields(BLOCKS, _BLOCK_POINTERS), *a.lines])


def _exported(name: str, lines: list[str]) -> str:
    head = f"define void @{name}(ptr %numbers, i64 %begin, i64 %end) {{"
    return "\n".join([head, "entry:", *lines, "  ret void", "}"])


_HALF_POINTERS = ("source", "target", "before", "after")


def _lines_text(lanes: Lanes) -> str:
    """Some lines, each by columns and by rows; reals before or after."""
    a = Assembly()
    length, blocks = BLOCKS.index("length"), BLOCKS.index("blocks")
    steps = [a.place("i64", "%numbers", len(LINES) + n * len(BLOCKS)) for n in range(2)]
    rows = [a.load("i64", step, length) for step in steps]
    counts = [a.load("i64", step, blocks) for step in steps]
    most = a.value(f"call i64 @llvm.umax.i64(i64 {rows[0]}, i64 {rows[1]})")
    line = a.mul("%length", 2 * lanes.nbytes)
    memory = a.value(f"call ptr @memory(i64 {most}, i64 {line})")
    x = a.value(f"call ptr @aligned(ptr {memory})")
    room = a.value(f"call i64 @room(i64 {most})")
    between = a.at(x, a.mul(room, 2))
    prepared = a.value("icmp ne ptr %before, null")
    finished = a.value("icmp ne ptr %after, null")
    half = a.value("udiv i64 %length, 2")
    pairs = a.add(half, 1)
    with a.loop("%begin", "%end") as number:
        source = a.at("%source", a.mul(number, "%source_line"))
        target = a.at("%target", a.mul(number, "%target_line"))
        ends = f"i64 %length, i64 0, i64 {pairs}"
        with a.where(prepared):
            a.write(
                f"call void @before(ptr {source}, ptr {target}, ptr %before, {ends})"
            )
        source = a.select(prepared, "ptr", target, source)
        walk = ((source, between), (between, target))
        for step, count, (begin, end) in zip(steps, counts, walk, strict=True):
            with a.loop(0, count) as block:
                operands = f"ptr {begin}, ptr {end}, i64 {block}, ptr {x}"
                a.write(f"call void @block(ptr {step}, {operands})")
        with a.where(finished):
            a.write(f"call void @after(ptr {target}, ptr {target}, ptr %after, {ends})")
    a.write(f"call void @free(ptr {memory})")
    declared = "declare i64 @llvm.umax.i64(i64, i64)\n"
    lines = [*_fields(LINES, _HALF_POINTERS), *a.lines]
    return declared + _exported("fft_lines", lines)


# ---------------------------------------------------------------- reals


def _halves_text() -> str:
    """Some pieces of the lines of coefficients of reals."""
    a = Assembly()
    half = a.value("udiv i64 %length, 2")
    pairs = a.add(half, 1)
    prepares = a.value("icmp ne ptr %before, null")
    finishes = a.value("icmp ne ptr %after, null")
    with a.loop("%begin", "%end") as number:
        line = a.value(f"udiv i64 {number}, %pieces")
        piece = a.value(f"urem i64 {number}, %pieces")
        source = a.at("%source", a.mul(line, "%source_line"))
        target = a.at("%target", a.mul(line, "%target_line"))
        first = a.mul(piece, "%piece")
        behind = a.add(first, "%piece")
        last = a.value(f"call i64 @llvm.umin.i64(i64 {behind}, i64 {pairs})")
        ends = f"i64 %length, i64 {first}, i64 {last}"
        for name, wanted in (("before", prepares), ("after", finishes)):
            with a.where(wanted):
                operands = f"ptr {source}, ptr {target}, ptr %{name}, {ends}"
                a.write(f"call void @{name}({operands})")
    return _exported("fft_halves", [*_fields(HALVES, _HALF_POINTERS), *a.lines])
