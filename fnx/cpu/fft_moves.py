"""Blocks of lines: how they come from memory into vectors, and go back.

A block has as many lines as a vector has lanes, or fewer. In memory numbers lie as
pairs; in a block row number i holds the elements i of all lines, real parts first, then
imaginary ones. Lines either lie side by side in memory, so that each row is there
(`take_rows`, `give_rows`), or one behind the other (`take_lines`, `give_lines`), and
squares of them are transposed in registers. `%re` and `%im` say where in a row the
parts are: exchanging them makes a transform the inverse one. Receives the lanes, gives
the text of functions. Next on the walk: `fft_reals.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.cpu.assembly import Assembly
from fnx.cpu.fft_arithmetic import Arithmetic, Lanes, Number

TAKE = "ptr %from, i64 %step, i64 %length, i64 %lanes, ptr %rows, i64 %re, i64 %im"
"""The parameters of functions that take a block."""


def give(lanes: Lanes) -> str:
    """The parameters of functions that give a block back, times a number."""
    ends = "ptr %to, i64 %step, i64 %length, i64 %lanes"
    return f"{ends}, ptr %rows, i64 %re, i64 %im, {lanes.element} %scale"


def moves_text(lanes: Lanes) -> list[str]:
    """The functions, and what they call."""
    v, count, n = lanes.vector, lanes.count, lanes.suffix
    mask = f"<{count} x i1>"
    turned = f"{give(lanes)}, ptr %fine, ptr %coarse"
    return [
        f"declare {v} @llvm.masked.load.{n}.p0(ptr, i32, {mask}, {v})",
        f"declare void @llvm.masked.store.{n}.p0({v}, ptr, i32, {mask})",
        "declare i64 @llvm.umin.i64(i64, i64)",
        function("take_rows", TAKE, Moves(lanes).take_rows()),
        function("take_lines", TAKE, Moves(lanes).take_lines()),
        function("give_rows", give(lanes), Moves(lanes).give_rows(turned=False)),
        function("give_turned_rows", turned, Moves(lanes).give_rows(turned=True)),
        function("give_lines", give(lanes), Moves(lanes).give_lines()),
    ]


def function(name: str, parameters: str, lines: Sequence[str]) -> str:
    """A function that others of the module call."""
    head = f"define internal void @{name}({parameters}) {{"
    return "\n".join([head, "entry:", *lines, "  ret void", "}"])


class Moves(Arithmetic):
    """Writes the body of one function."""

    def __init__(self, lanes: Lanes) -> None:
        super().__init__(Assembly(), lanes)
        self.pair = 2 * lanes.nbytes  # the bytes of a number
        self.side = max(lanes.count // 2, 1)  # numbers of a vector of pairs
        self.aligned = f"align {lanes.count * lanes.nbytes}"

    # -- functions

    def take_rows(self) -> list[str]:
        """Rows that are in memory: pairs are parted."""
        a = self.a
        whole = a.value(f"icmp eq i64 %lanes, {self.lanes.count}")
        some = a.value(f"xor i1 {whole}, true")
        for condition, masked in ((whole, False), (some, True)):
            with a.where(condition):
                masks = self.row_masks() if masked else (None, None)
                with a.loop(0, "%length") as i:
                    source = a.at("%from", a.mul(i, "%step"))
                    halves = [
                        self.load_vector(a.at(source, self.half * n), masks[n])
                        for n in range(2)
                    ]
                    self.put_row(i, self.parted(*halves))
        return a.lines

    def give_rows(self, turned: bool) -> list[str]:
        """Rows that will be in memory; `turned`, each number by a root of one.

        That is a number for the row times one for the row and the lane.
        """
        a = self.a
        scale = self.broadcast("%scale")
        inverse = a.value("icmp ne i64 %re, 0")
        sign = self.broadcast(
            a.select(inverse, self.lanes.element, "-1.0", "1.0") if turned else "1.0"
        )
        whole = a.value(f"icmp eq i64 %lanes, {self.lanes.count}")
        some = a.value(f"xor i1 {whole}, true")
        for condition, masked in ((whole, False), (some, True)):
            with a.where(condition):
                masks = self.row_masks() if masked else (None, None)
                with a.loop(0, "%length") as i:
                    number = self.get_row(i)
                    if turned:
                        number = self.turned(number, i, sign)
                    pairs = self.paired(self.scaled(number, scale))
                    target = a.at("%to", a.mul(i, "%step"))
                    for n in range(2):
                        place = a.at(target, self.half * n)
                        self.store_vector(pairs[n], place, masks[n])
        return a.lines

    def take_real_rows(self) -> list[str]:
        """Rows of reals that are in memory: every second one has the other parts."""
        a = self.a
        mask = self.mask("%lanes", each=1)
        twice = a.mul("%step", 2)
        with a.loop(0, "%length") as i:
            source = a.at("%from", a.mul(i, twice))
            re = self.load_vector(source, mask)
            self.put_row(i, (re, self.load_vector(a.at(source, "%step"), mask)))
        return a.lines

    def give_real_rows(self) -> list[str]:
        """Rows of reals that will be in memory, two for each of the block."""
        a = self.a
        scale = self.broadcast("%scale")
        mask = self.mask("%lanes", each=1)
        twice = a.mul("%step", 2)
        with a.loop(0, "%length") as i:
            target = a.at("%to", a.mul(i, twice))
            re, im = self.scaled(self.get_row(i), scale)
            self.store_vector(re, target, mask)
            self.store_vector(im, a.at(target, "%step"), mask)
        return a.lines

    def take_lines(self) -> list[str]:
        """Lines that are in memory, by squares; what is left is filled with zeros."""
        a, side = self.a, self.side
        last = a.value("sub i64 %lanes, 1")
        lines = []
        for n in range(self.lanes.count):
            number = a.value(f"call i64 @llvm.umin.i64(i64 {n}, i64 {last})")
            lines.append(a.at("%from", a.mul(number, "%step")))
        end = a.value(f"and i64 %length, {-side}")
        with a.loop(0, end, side) as i:
            self.take_square(lines, i, None)
        with a.loop(end, "%length", side) as i:
            self.take_square(lines, i, self.mask(a.value(f"sub i64 %length, {i}")))
        return a.lines

    def take_square(self, lines: Sequence[str], i: str, mask: str | None) -> None:
        """Some elements of all lines; rows behind the last one are written, too."""
        begin = self.a.mul(i, self.pair)
        columns = []
        for first in range(0, self.lanes.count, self.side):
            group = lines[first : first + self.side]
            places = [self.a.at(line, begin) for line in group]
            columns.append(
                self.transposed([self.load_vector(place, mask) for place in places])
            )
        for n in range(self.side):
            row = self.a.value(f"add i64 {i}, {n}")
            self.put_row(row, self.parted(*[square[n] for square in columns]))

    def give_lines(self) -> list[str]:
        """Lines that will be in memory, by squares; only what there is of them."""
        a, side = self.a, self.side
        scale = self.broadcast("%scale")
        even = a.value(f"and i64 %length, {-side}")
        whole = a.value(f"icmp eq i64 %lanes, {self.lanes.count}")
        end = a.select(whole, "i64", even, "0")
        with a.loop(0, end, side) as i:
            self.give_square(i, scale, None)
        with a.loop(end, "%length", side) as i:
            self.give_square(i, scale, a.value(f"sub i64 %length, {i}"))
        return a.lines

    def give_square(self, i: str, scale: str, left: str | None) -> None:
        """Some elements of all lines: so many are `left`, of so many lines."""
        a, squares = self.a, list[list[str]]()
        for n in range(self.side):
            number = self.scaled(self.get_row(a.value(f"add i64 {i}, {n}")), scale)
            squares.append(self.paired(number))
        begin = a.mul(i, self.pair)
        for first in range(0, self.lanes.count, self.side):
            chosen = [square[first // self.side] for square in squares]
            for n, line in enumerate(self.transposed(chosen), first):
                mask = None
                if left is not None:
                    there = a.value(f"icmp ult i64 {n}, %lanes")
                    mask = self.mask(a.select(there, "i64", left, "0"))
                place = a.at("%to", a.add(a.mul(n, "%step"), begin))
                self.store_vector(line, place, mask)

    # -- rows of a block

    @property
    def half(self) -> int:
        """The bytes of a vector."""
        return self.lanes.count * self.lanes.nbytes

    def get_row(self, i: str) -> Number:
        """A row of the block."""
        places = self.row_places(i)
        v = self.lanes.vector
        re, im = [self.a.value(f"load {v}, ptr {p}, {self.aligned}") for p in places]
        return re, im

    def put_row(self, i: str, number: Number) -> None:
        """Writes a row of the block."""
        for part, place in zip(number, self.row_places(i), strict=True):
            self.a.write(
                f"store {self.lanes.vector} {part}, ptr {place}, {self.aligned}"
            )

    def row_places(self, i: str) -> list[str]:
        """Where both parts of a row are."""
        row = self.a.at("%rows", self.a.mul(i, self.lanes.row))
        return [self.a.at(row, "%re"), self.a.at(row, "%im")]

    def turned(self, number: Number, i: str, sign: str) -> Number:
        """A row times the roots for it; of the inverse, their conjugates."""
        a, lanes = self.a, self.lanes
        fine = a.at("%fine", a.mul(i, lanes.row))
        places = [a.at(fine, self.half * n) for n in range(2)]
        re, im = [
            a.value(f"load {lanes.vector}, ptr {p}, {self.aligned}") for p in places
        ]
        coarse = a.at("%coarse", a.mul(i, self.pair))
        both = [
            self.broadcast(a.load(lanes.element, a.at(coarse, lanes.nbytes * n)))
            for n in range(2)
        ]
        root = self.times((re, im), (both[0], both[1]))
        return self.times(number, (root[0], self.real("fmul", root[1], sign)))

    # -- vectors

    def broadcast(self, value: str) -> str:
        """A number in every lane."""
        v, lanes = self.lanes.vector, self.lanes
        first = self.a.value(
            f"insertelement {v} poison, {lanes.element} {value}, i64 0"
        )
        zeros = f"<{lanes.count} x i32> zeroinitializer"
        return self.a.value(f"shufflevector {v} {first}, {v} poison, {zeros}")

    def load_vector(self, place: str, mask: str | None = None) -> str:
        """A vector from memory; zeros where it is masked off."""
        v, nbytes = self.lanes.vector, self.lanes.nbytes
        if mask is None:
            return self.a.value(f"load {v}, ptr {place}, align {nbytes}")
        name = f"llvm.masked.load.{self.lanes.suffix}.p0"
        operands = f"ptr {place}, i32 {nbytes}, {mask}, {v} zeroinitializer"
        return self.a.value(f"call {v} @{name}({operands})")

    def store_vector(self, value: str, place: str, mask: str | None = None) -> None:
        """Writes a vector, but where it is masked off."""
        v, nbytes = self.lanes.vector, self.lanes.nbytes
        if mask is None:
            self.a.write(f"store {v} {value}, ptr {place}, align {nbytes}")
            return
        name = f"llvm.masked.store.{self.lanes.suffix}.p0"
        operands = f"{v} {value}, ptr {place}, i32 {nbytes}, {mask}"
        self.a.write(f"call void @{name}({operands})")

    def row_masks(self) -> tuple[str, str]:
        """Which lanes of both vectors of a row there are, when pairs lie together."""
        return self.mask("%lanes"), self.mask("%lanes", self.lanes.count)

    def mask(self, numbers: str, first: int = 0, each: int = 2) -> str:
        """Which elements belong to so many numbers, from element `first` on."""
        a, count = self.a, self.lanes.count
        short = a.value(f"trunc i64 {a.mul(numbers, each)} to i32")
        one = a.value(f"insertelement <{count} x i32> poison, i32 {short}, i64 0")
        zeros = f"<{count} x i32> zeroinitializer"
        every = a.value(
            f"shufflevector <{count} x i32> {one}, <{count} x i32> poison, {zeros}"
        )
        places = ", ".join([f"i32 {first + n}" for n in range(count)])
        found = a.value(f"icmp ult <{count} x i32> <{places}>, {every}")
        return f"<{count} x i1> {found}"

    def shuffled(self, x: str, y: str, chosen: Sequence[int]) -> str:
        """Lanes of two vectors."""
        v, places = self.lanes.vector, ", ".join([f"i32 {n}" for n in chosen])
        mask = f"<{len(chosen)} x i32> <{places}>"
        return self.a.value(f"shufflevector {v} {x}, {v} {y}, {mask}")

    def parted(self, x: str, y: str) -> Number:
        """Two vectors of pairs, as one of first parts and one of second ones."""
        every = range(0, 2 * self.lanes.count, 2)
        return self.shuffled(x, y, every), self.shuffled(x, y, [n + 1 for n in every])

    def paired(self, number: Number) -> list[str]:
        """The reverse of `parted`."""
        count = self.lanes.count
        pairs = [place for n in range(count) for place in (n, n + count)]
        return [self.shuffled(*number, pairs[n : n + count]) for n in (0, count)]

    def transposed(self, rows: Sequence[str]) -> list[str]:
        """A square of pairs: groups of rows change places with groups of columns."""
        rows, distance = [*rows], self.side // 2
        while distance:
            for j in range(self.side):
                if not j & distance:
                    pair = rows[j], rows[j | distance]
                    rows[j] = self.exchanged(*pair, distance, 0)
                    rows[j | distance] = self.exchanged(*pair, distance, distance)
            distance //= 2
        return rows

    def exchanged(self, x: str, y: str, distance: int, shift: int) -> str:
        """Every second group of `distance` pairs is of x, the others are of y."""
        chosen = []
        for n in range(self.side):
            of_y = n & distance
            place = n - distance + shift + self.side if of_y else n + shift
            chosen += [2 * place, 2 * place + 1]
        return self.shuffled(x, y, chosen)
