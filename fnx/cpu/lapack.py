"""Linear algebra in machine code: LAPACK, called for every matrix of a stack.

Receives a `HostStep` whose primitive is one of the routines here; gives the text of
`void name(ptr context, i64 begin, i64 end)`, which does so many matrices, so that the
thread pool shares a stack. The context holds the addresses of inputs and outputs. What
is computed is what the primitive's `reference` rule does, by the same routines: where
the transposed problem is as good, row-major matrices are given as they are, and are
transposed elsewhere. Next on the walk: the routines, in
`lapack_solving.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx import dtypes
from fnx.cpu.assembly import Assembly, Index
from fnx.runtime.plan import HostStep

Constant = Callable[[str, str], str]
External = Callable[[str, str, str], str]

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_UNITARY = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}

BLOCK = 64
"""The columns that LAPACK works on at once: so many rows of memory it is given."""


class Routine(Assembly):
    """The body of a function, for one matrix of the stack.

    `inputs` and `outputs` are the addresses of its operands. Memory to work in is one
    block for all of them, taken before the first matrix and given back after the last.
    """

    def __init__(self, step: HostStep, constant: Constant, external: External) -> None:
        super().__init__()
        self.step = step
        self.params = step.params
        self.input_types = step.input_types
        self.output_types = step.output_types
        self.constant = constant
        self.external = external
        self.dtype = step.input_types[0].dtype
        self.is_complex = dtypes.is_complex(self.dtype)
        self.item = self.dtype.itemsize
        self.real_item = self.item // 2 if self.is_complex else self.item
        self.real = "double" if self.real_item == 8 else "float"
        matrices = max(step.input_types, key=lambda type: type.ndim)
        self.count = math.prod(matrices.shape[:-2])
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.info = "%info"
        self._memory = 0

    # -- operands

    def shape(self, number: int) -> tuple[int, int]:
        """Rows and columns of an input."""
        rows, columns = self.input_types[number].shape[-2:]
        return rows, columns

    def memory(self, count: int, item: int | None = None) -> str:
        """Memory for so many elements, of the matrices' dtype or of so many bytes."""
        begin = self._memory
        nbytes = max(count, 1) * (item or self.item)
        self._memory += -(-nbytes // 64) * 64
        return self.at("%memory", begin)

    @property
    def taken(self) -> int:
        """The bytes of memory that have been asked for."""
        return self._memory

    def number(self, value: int) -> str:
        """The address of an integer."""
        return self.constant("i32", str(value))

    def letter(self, letter: str) -> str:
        """The address of a letter."""
        return self.constant("i8", str(ord(letter)))

    # -- calls

    def call(self, name: str, *arguments: str) -> None:
        """Calls a routine of LAPACK or BLAS for the dtype, by addresses."""
        if self.is_complex:
            name = _UNITARY.get(name, name)
        symbol = _LETTERS[self.dtype.name] + name
        callee = self.external(symbol, "void", ", ".join(["ptr"] * len(arguments)))
        self.write(f"call void {callee}({', '.join([f'ptr {a}' for a in arguments])})")

    def failed(self) -> str:
        """Whether the routine has reported a failure."""
        return self.value(f"icmp ne i32 {self.load('i32', self.info)}, 0")

    # -- matrices

    @property
    def element(self) -> str:
        """The type that holds an element's bits."""
        return {4: "i32", 8: "i64", 16: "<2 x i64>"}[self.item]

    def copy(self, out: str, x: str, count: int) -> None:
        """Copies so many elements."""
        nbytes = count * self.item
        memcpy = "llvm.memcpy.p0.p0.i64"
        self.write(f"call void @{memcpy}(ptr {out}, ptr {x}, i64 {nbytes}, i1 false)")

    def transpose(self, out: str, x: str, rows: int, columns: int) -> None:
        """Writes a row-major matrix column by column.

        It goes by squares of 4 by 4 in vectors, in blocks that stay in the cache; what
        is left at the borders goes one by one.
        """
        whole = (rows // 4 * 4, columns // 4 * 4) if self.item <= 8 else (0, 0)
        if min(whole):
            with self.loop(0, whole[0], 32) as i0, self.loop(0, whole[1], 32) as j0:
                i1 = self._bound(i0, 32, whole[0])
                j1 = self._bound(j0, 32, whole[1])
                with self.loop(i0, i1, 4) as i, self.loop(j0, j1, 4) as j:
                    self._transpose_square(out, x, rows, columns, i, j)
        else:
            whole = (0, columns)
        self._transpose_each(out, x, (rows, columns), (whole[0], rows), (0, columns))
        self._transpose_each(
            out, x, (rows, columns), (0, whole[0]), (whole[1], columns)
        )

    def _transpose_each(
        self,
        out: str,
        x: str,
        shape: tuple[int, int],
        rows: tuple[int, int],
        columns: tuple[int, int],
    ) -> None:
        """One element after the other, of some rows and columns."""
        if rows[0] == rows[1] or columns[0] == columns[1]:
            return
        with self.loop(*rows) as i:
            row = self.mul(i, shape[1])
            with self.loop(*columns) as j:
                value = self.load(self.element, x, self.add(row, j))
                self.store(self.element, value, out, self.add(self.mul(j, shape[0]), i))

    def _transpose_square(
        self, out: str, x: str, rows: int, columns: int, i: str, j: str
    ) -> None:
        """Four pieces of rows become four pieces of columns."""
        type_, align = f"<4 x {self.element}>", f", align {self.item}"
        lines = []
        for n in range(4):
            place = self.add(self.mul(self.add(i, n), columns), j)
            address = self.place(self.element, x, place)
            lines.append(self.value(f"load {type_}, ptr {address}{align}"))

        def mixed(a: str, b: str, order: tuple[int, ...]) -> str:
            mask = ", ".join([f"i32 {place}" for place in order])
            pair = f"{type_} {a}, {type_} {b}"
            return self.value(f"shufflevector {pair}, <4 x i32> <{mask}>")

        for orders in (((0, 4, 1, 5), (2, 6, 3, 7)), ((0, 1, 4, 5), (2, 3, 6, 7))):
            first = orders[0] == (0, 4, 1, 5)
            pairs = ((0, 1), (2, 3)) if first else ((0, 2), (1, 3))
            lines = [mixed(lines[a], lines[b], o) for a, b in pairs for o in orders]
        for n, line in enumerate(lines):
            place = self.add(self.mul(self.add(j, n), rows), i)
            address = self.place(self.element, out, place)
            self.write(f"store {type_} {line}, ptr {address}{align}")

    def _bound(self, begin: Index, step: int, end: int) -> str:
        after = self.add(begin, step)
        return self.value(f"call i64 @llvm.smin.i64(i64 {after}, i64 {end})")

    def transposed(self, number: int) -> str:
        """A copy of an input, column by column."""
        rows, columns = self.shape(number)
        out = self.memory(rows * columns)
        self.transpose(out, self.inputs[number], rows, columns)
        return out

    def conjugate(self, x: str, count: int) -> None:
        """Conjugates so many elements where they are."""
        if not self.is_complex:
            return
        with self.loop(0, count) as i:
            place = self.add(self.mul(i, 2), 1)
            value = self.load(self.real, x, place)
            self.store(self.real, self.value(f"fneg {self.real} {value}"), x, place)

    def clear(self, x: str, rows: int, columns: int, lower: bool) -> None:
        """Zeros below (`lower`) or above the diagonal of a row-major matrix."""
        with self.loop(0, rows) as i:
            after = self.add(i, 1)
            begin, end = (0, self._bound(i, 0, columns)) if lower else (after, columns)
            with self.loop(begin, end) as j:
                place = self.add(self.mul(i, columns), j)
                self.store(self.element, "zeroinitializer", x, place)

    def spoil(self, x: str, count: Index, parts: int | None = None) -> None:
        """Writes NaN to so many elements, of as many real numbers as the dtype's."""
        parts = parts or (2 if self.is_complex else 1)
        with self.loop(0, self.mul(count, parts)) as i:
            self.store(self.real, NAN, x, i)

    def spoil_outputs(self) -> None:
        """Writes NaN to all outputs."""
        for out, type in zip(self.outputs, self.output_types, strict=True):
            parts = 2 if dtypes.is_complex(type.dtype) else 1
            self.spoil(out, type.size // self.count, parts)

    def all_finite(self, x: str, count: int) -> str:
        """Whether there is no NaN and no infinity among so many elements.

        Zero times each of them is added: the sum is 0 then.
        """
        total = "%total"
        self.store(self.real, "0.0", total)
        with self.loop(0, count * (2 if self.is_complex else 1)) as i:
            value = self.load(self.real, x, i)
            zero = self.value(f"fmul {self.real} {value}, 0.0")
            old = self.load(self.real, total)
            self.store(self.real, self.value(f"fadd {self.real} {old}, {zero}"), total)
        return self.value(f"fcmp oeq {self.real} {self.load(self.real, total)}, 0.0")


NAN = "0x7FF8000000000000"
