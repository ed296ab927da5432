"""What the threads of a group do together: combining values, and running values.

Values go from thread to thread of a warp by shuffles and from warp to warp through
shared memory, always in the same order, so that results do not change from run to run.
A group of more than a warp is a whole block. Used by `emit.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.dtypes import DType
from fnx.kernel.expr import Fold, Scan
from fnx.kernel.ir import fold_identity
from fnx_cuda.values import Values, literal, register_type

WARP = 32
_ALL = "0xffffffffu"


class Threads(Values):
    """A printer that knows the group of threads it prints for; `t` is this one's."""

    def __init__(self, word: str, threads: int) -> None:
        super().__init__(word)
        self.threads = threads
        self.shared_lines: list[str] = []
        self.carries: dict[Scan, str] = {}

    # -- combining two values

    def combine(self, fold: Fold | Scan, old: list[str], new: list[str]) -> None:
        """Assigns to the old values what they and the new ones combine to."""
        types = [body.dtype for body in fold.bodies]
        if fold.combine.startswith("arg"):
            self._take_better(fold.combine, types, old, new)
            return
        if fold.combine == "complex_mul":
            self._multiply(types, old, new)
            return
        for x, y, dtype in zip(old, new, types, strict=True):
            self.write(
                f"{x} = {self.row(fold.combine, [x, y], [dtype, dtype], dtype)};"
            )

    def _take_better(
        self, combine: str, types: Sequence[DType], old: list[str], new: list[str]
    ) -> None:
        """A NaN beats every number, then the better value wins, then the earlier."""
        (a, p), (b, q) = old, new
        symbol = ">" if combine == "argmax" else "<"
        wins = f"{b} {symbol} {a} || ({b} != {b} && {a} == {a})"
        ties = f"({b} == {a} || ({b} != {b} && {a} != {a})) && {q} < {p}"
        self.write(f"if ({wins} || ({ties})) {{ {a} = {b}; {p} = {q}; }}")

    def _multiply(self, types: Sequence[DType], old: list[str], new: list[str]) -> None:
        """The product of two complex numbers, each given as its two parts."""

        def row(name: str, x: str, y: str) -> str:
            return f"({self.row(name, [x, y], list(types), types[0])})"

        (a, b), (c, d) = old, new
        re = row("sub", row("mul", a, c), row("mul", b, d))
        kept = self.new(register_type(types[0]), re)
        self.write(f"{b} = {row('add', row('mul', a, d), row('mul', b, c))};")
        self.write(f"{a} = {kept};")

    # -- over the threads of a group

    def combine_threads(self, fold: Fold, names: list[str]) -> None:
        """Has every thread hold what the values of all threads combine to."""
        distance = WARP // 2
        while distance:
            others = [
                self._other("down", name, body.dtype, distance)
                for name, body in zip(names, fold.bodies, strict=True)
            ]
            self.combine(fold, names, others)
            distance //= 2
        if self.threads == WARP:
            for name, body in zip(names, fold.bodies, strict=True):
                self.write(f"{name} = {shuffle('', name, body.dtype, 0)};")
            return
        self._combine_warps(fold, names)

    def _combine_warps(self, fold: Fold, names: list[str]) -> None:
        """The first threads of all warps hold values; now all threads do."""
        places = [self._shared(body.dtype) for body in fold.bodies]
        self.write("__syncthreads();")
        kept = " ".join(
            f"{place}[t / {WARP}] = {name};"
            for place, name in zip(places, names, strict=True)
        )
        self.write(f"if (t % {WARP} == 0) {{ {kept} }}")
        self.write("__syncthreads();")
        for place, name in zip(places, names, strict=True):
            self.write(f"{name} = {place}[0];")
        warp = self.name("w")
        head = f"for (int {warp} = 1; {warp} < {self.threads // WARP}; ++{warp})"
        with self.block(head):
            others = [
                self.new(register_type(body.dtype), f"{place}[{warp}]")
                for place, body in zip(places, fold.bodies, strict=True)
            ]
            self.combine(fold, names, others)

    def _other(self, how: str, name: str, dtype: DType, distance: int) -> str:
        return self.new(register_type(dtype), shuffle(how, name, dtype, distance))

    def _shared(self, dtype: DType) -> str:
        """An element of shared memory for each warp."""
        name = f"s{len(self.shared_lines)}"
        type_ = register_type(dtype)
        self.shared_lines.append(
            f"  __shared__ {type_} {name}[{self.threads // WARP}];"
        )
        return name

    # -- running values

    def begin_carries(self, scans: Sequence[Scan]) -> None:
        """What the rounds before the first one combine to: nothing yet."""
        for scan in scans:
            name = self.carries[scan] = self.name("f")
            first = literal(_identity(scan), scan.dtype)
            self.write(f"{register_type(scan.dtype)} {name} = {first};")

    def scan_threads(self, scan: Scan) -> list[str]:
        """The running values of this thread's rounds; `inside` says if it has any."""
        type_, dtype, carry = register_type(scan.dtype), scan.dtype, self.carries[scan]
        own = self._scan_lanes(scan)
        x = own[-1]
        if own[1:]:
            x = self.name("f")
            self.write(f"{type_} {x} = {own[-1]};")
        distance = 1
        while distance < WARP:
            before = self._other("up", x, dtype, distance)
            both = self._both(scan, before, x)
            self.write(f"if (t % {WARP} >= {distance}) {x} = {both};")
            distance *= 2
        if self.threads == WARP:
            start = self.new(type_, carry)
            total = self.new(type_, shuffle("", x, dtype, WARP - 1))
            self.write(f"{carry} = {self._both(scan, carry, total)};")
        else:
            start = self._scan_warps(scan, x, carry)
        if not own[1:]:
            return [self.new(type_, self._both(scan, start, x))]
        other = self._other("up", x, dtype, 1)
        first = literal(_identity(scan), dtype)
        before = self.new(type_, f"t % {WARP} ? {other} : {first}")
        start = self.new(type_, self._both(scan, start, before))
        return self.lane_names(type_, [self._both(scan, start, each) for each in own])

    def _scan_lanes(self, scan: Scan) -> list[str]:
        """What this thread's rounds come to, up to each of them."""
        identity = literal(_identity(scan), scan.dtype)
        own = list[str]()
        for lane in range(self.lanes(scan)):
            x, body = self.name("f"), self.use(scan.bodies[0], lane)
            self.write(
                f"{register_type(scan.dtype)} {x} = inside ? {body} : {identity};"
            )
            if own:
                self.write(f"{x} = {self._both(scan, own[-1], x)};")
            own.append(x)
        return own

    def _scan_warps(self, scan: Scan, x: str, carry: str) -> str:
        """What is before this warp's rounds, where `x` of its last thread is theirs."""
        type_, place = register_type(scan.dtype), self._shared(scan.dtype)
        self.write("__syncthreads();")
        self.write(f"if (t % {WARP} == {WARP - 1}) {place}[t / {WARP}] = {x};")
        self.write("__syncthreads();")
        before = self.name("f")
        self.write(f"{type_} {before} = {carry};")
        warp = self.name("w")
        # All rounds at once take more registers than the kernel has left.
        self.write("#pragma unroll 4")
        head = f"for (int {warp} = 0; {warp} < {self.threads // WARP}; ++{warp})"
        with self.block(head):
            other = self.new(type_, f"{place}[{warp}]")
            earlier = f"if ({warp} < t / {WARP}) {before}"
            self.write(f"{earlier} = {self._both(scan, before, other)};")
            self.write(f"{carry} = {self._both(scan, carry, other)};")
        return before

    def _both(self, scan: Scan, a: str, b: str) -> str:
        return self.row(scan.combine, [a, b], [scan.dtype, scan.dtype], scan.dtype)


def _identity(scan: Scan) -> bool | int | float:
    return fold_identity(scan.combine, 0, scan.dtype)


def shuffle(how: str, name: str, dtype: DType, operand: int | str) -> str:
    """Another thread's value; what is smaller than a register goes as an integer."""
    function = f"__shfl_{how}_sync" if how else "__shfl_sync"
    if dtype.itemsize >= 4:
        return f"{function}({_ALL}, {name}, {operand})"
    return f"({register_type(dtype)}){function}({_ALL}, (int){name}, {operand})"
