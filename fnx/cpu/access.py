"""Loads and stores: rows of elements side by side, or single elements gathered.

Masked loads read nothing where the mask is false: side by side they are LLVM's masked
loads; elsewhere the offset becomes 0 there (every buffer has an element 0) and what is
read is dropped. Receives `Load` and `Store`; next on the walk: `positions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx import dtypes
from fnx.cpu.llvm import Text, literal, memory_type, overload
from fnx.cpu.values import Values, index_bits, signed_integer
from fnx.dtypes import DType
from fnx.kernel import scalar
from fnx.kernel.expr import Buffer, IndexExpr, Load, LoopIndex, stride
from fnx.kernel.ir import Recall, Store
from fnx.sizes import Size


class Access(Values):
    """A writer that reads and writes the kernel's buffers."""

    def __init__(self, module: Text, buffers: Sequence[Buffer]) -> None:
        super().__init__(module)
        self.pointers = {buffer: f"%b{n}" for n, buffer in enumerate(buffers)}
        # In a square, the loop across the lanes, its round, and transposed loads.
        self.across: LoopIndex | None = None
        self.round = 0
        self.columns: dict[Load, list[str]] = {}
        self.memory: list[str] = []  # what the function's first block allocates

    def row(
        self, name: str, args: list[str], types: list[DType], result: DType, lanes: int
    ) -> str:
        """Print a row of the scalar table."""
        printer = scalar.TABLE[name].llvm
        assert printer is not None, f"math.py should have expanded {name}"
        return printer(self, args, types, result, lanes)

    # -- elements in memory

    def pointer(self, buffer: Buffer) -> str:
        """Where a buffer begins; a local one is allocated when it is first used."""
        if buffer not in self.pointers:
            assert buffer.role == "local", f"{buffer.name} is no buffer of the kernel"
            most = buffer.size
            if isinstance(most, Size):
                most = most.bounds[1]
            type_ = f"[{most} x {memory_type(buffer.dtype)}]"
            self.pointers[buffer] = self.allocate(type_)
        return self.pointers[buffer]

    def allocate(self, type_: str) -> str:
        """The address of memory that the function has."""
        name = f"%m{len(self.memory)}"
        self.memory.append(f"  {name} = alloca {type_}, align 64")
        return name

    def address(self, buffer: Buffer, offset: str) -> str:
        """The address of an element."""
        type_, pointer = memory_type(buffer.dtype), self.pointer(buffer)
        if offset == "0":
            return pointer
        return self.emit(f"getelementptr {type_}, ptr {pointer}, i64 {offset}")

    def get(self, buffer: Buffer, offset: str, lanes: int = 1) -> str:
        """Elements side by side, as they are in memory."""
        address, size = self.address(buffer, offset), buffer.dtype.itemsize
        type_ = memory_type(buffer.dtype, lanes)
        return self.emit(f"load {type_}, ptr {address}, align {size}")

    def put(self, buffer: Buffer, offset: str, value: str, lanes: int = 1) -> None:
        """Write elements side by side."""
        address, size = self.address(buffer, offset), buffer.dtype.itemsize
        type_ = memory_type(buffer.dtype, lanes)
        self.write(f"store {type_} {value}, ptr {address}, align {size}")

    def to_register(self, value: str, dtype: DType, lanes: int) -> str:
        """What was read as a value: bytes become bools."""
        if dtype is not dtypes.bool_:
            return value
        zero = "0" if lanes == 1 else "zeroinitializer"
        return self.emit(f"icmp ne {self.integer(8, lanes)} {value}, {zero}")

    def to_memory(self, value: str, dtype: DType, lanes: int) -> str:
        """A value as it is written: bools become bytes."""
        if dtype is not dtypes.bool_:
            return value
        source, target = self.type(dtype, lanes), self.integer(8, lanes)
        return self.emit(f"zext {source} {value} to {target}")

    def zero(self, dtype: DType, lanes: int) -> str:
        """Zero as it is in memory."""
        if lanes > 1:
            return "zeroinitializer"
        return "0" if dtype is dtypes.bool_ else literal(0, dtype)

    # -- loads

    def recall(self, stmt: Recall) -> str:
        """The value that an earlier loop has kept."""
        return self.load(Load(stmt.buffer, stmt.offset, None))

    def load(self, load: Load) -> str:
        """The value of a load."""
        lanes = self.lanes(load)
        raw = self.load_scalar(load) if lanes == 1 else self.load_lanes(load)
        return self.to_register(raw, load.dtype, lanes)

    def load_scalar(self, load: Load) -> str:
        """One element; where masked off, element 0 is read in its place and dropped."""
        offset = self.index(load.offset)
        if load.mask is None:
            return self.get(load.buffer, offset)
        mask = self.use(load.mask, 1)
        offset = self.emit(f"select i1 {mask}, i64 {offset}, i64 0")
        value = self.get(load.buffer, offset)
        return self.chosen(f"i1 {mask}", value, load.dtype, 1)

    def chosen(self, mask: str, value: str, dtype: DType, lanes: int) -> str:
        """What was read, and zero where the mask is false."""
        type_, zero = memory_type(dtype, lanes), self.zero(dtype, lanes)
        return self.emit(f"select {mask}, {type_} {value}, {type_} {zero}")

    def load_lanes(self, load: Load) -> str:
        """A vector of elements, by the stride at which they lie."""
        assert self.vector is not None
        step = stride(load.offset, self.vector)
        if load.mask is not None:
            # Smaller elements have no masked loads before AVX-512.
            if step == 1 and load.dtype.itemsize >= 4:
                return self.load_masked(load)
            return self.gather(load)
        if step is None or isinstance(step, Size):
            return self.gather(load)
        first = self.index(load.offset)
        if step == 1:
            return self.get(load.buffer, first, self.width)
        if step == -1:
            return self.load_reversed(load.buffer, first)
        across = self.across
        if across is not None and stride(load.offset, across) == 1:
            number = self.round % self.width
            if number == 0:
                self.columns[load] = self.transposed(load.buffer, first, step)
            return self.columns[load][number]
        if 2 <= step <= 3:
            return self.load_spaced(load.buffer, first, step)
        offsets = [self.emit(f"add i64 {first}, {n * step}") for n in range(self.width)]
        return self.collect(load.buffer, offsets)

    def load_spaced(self, buffer: Buffer, first: str, step: int) -> str:
        """Every second or third element, from rows of which the last ends with one."""
        width, type_ = self.width, memory_type(buffer.dtype)
        wanted = [n * step for n in range(width)]
        row = self.get(buffer, first, width)
        chosen = [n if n < width else 0 for n in wanted]
        found = self.shuffle(row, type_, width, chosen)
        for begin in range(width, wanted[-1] + 1, width):
            begins = min(begin, wanted[-1] + 1 - width)
            offset = self.emit(f"add i64 {first}, {begins}")
            row = self.get(buffer, offset, width)
            places = [n - begins + width for n in wanted]
            chosen = [
                place if begin <= n < begin + width else lane
                for lane, (n, place) in enumerate(zip(wanted, places, strict=True))
            ]
            found = self.blend(found, row, type_, chosen)
        return found

    def transposed(self, buffer: Buffer, first: str, step: int) -> list[str]:
        """The columns of a square whose rows lie side by side, so many steps apart."""
        width, type_ = self.width, memory_type(buffer.dtype)
        rows = []
        for n in range(width):
            offset = self.emit(f"add i64 {first}, {n * step}") if n else first
            rows.append(self.get(buffer, offset, width))
        lanes = min(16 // buffer.dtype.itemsize, width)  # of a half of a register
        groups = [rows[n : n + lanes] for n in range(0, width, lanes)]
        halves = [self.interleaved(group, type_) for group in groups]
        if len(halves) == 1:
            return halves[0]
        columns = []
        for first_lane in range(0, width, lanes):
            chosen = range(first_lane, first_lane + lanes)
            both = [*chosen, *(width + lane for lane in chosen)]
            for low, high in zip(*halves, strict=True):
                columns.append(self.blend(low, high, type_, both))
        return columns

    def interleaved(self, rows: list[str], type_: str) -> list[str]:
        """Rows transposed within each half of a register.

        Each turn interleaves the first rows with the others: a perfect shuffle, which
        brings every element home after log2(n) turns.
        """
        width, lanes = self.width, len(rows)
        turn = lanes
        while turn > 1:
            middle, shuffled = lanes // 2, list[str]()
            for a, b in zip(rows[:middle], rows[middle:], strict=True):
                for first in (0, middle):
                    chosen = [
                        n
                        for half in range(0, width, lanes)
                        for low in range(half + first, half + first + middle)
                        for n in (low, low + width)
                    ]
                    shuffled.append(self.blend(a, b, type_, chosen))
            rows, turn = shuffled, turn // 2
        return rows

    def blend(self, a: str, b: str, type_: str, chosen: Sequence[int]) -> str:
        """Lanes of two vectors; those of the second count on from the first's."""
        vector = f"<{self.width} x {type_}>"
        mask = ", ".join(f"i32 {lane}" for lane in chosen)
        mask = f"<{len(chosen)} x i32> <{mask}>"
        return self.emit(f"shufflevector {vector} {a}, {vector} {b}, {mask}")

    def load_reversed(self, buffer: Buffer, last: str) -> str:
        """Elements side by side, the last one first."""
        width = self.width
        first = self.emit(f"add i64 {last}, {1 - width}")
        row = self.get(buffer, first, width)
        backwards = range(width - 1, -1, -1)
        return self.shuffle(row, memory_type(buffer.dtype), width, backwards)

    def load_masked(self, load: Load) -> str:
        """Elements side by side, zero where the mask is false."""
        assert load.mask is not None
        address = self.address(load.buffer, self.index(load.offset))
        type_ = self.type(load.dtype, self.width)
        return self.call(
            f"llvm.masked.load.{self.suffix(load.dtype, self.width)}.p0",
            type_,
            ("ptr", address),
            ("i32", str(load.dtype.itemsize)),
            (f"<{self.width} x i1>", self.use(load.mask, self.width)),
            (type_, "zeroinitializer"),
        )

    def gather(self, load: Load) -> str:
        """Elements anywhere; where masked off, element 0 is read and dropped."""
        width, bits = self.width, index_bits(load.offset)
        lanes = self.lanes_of(load.offset, bits)
        if load.mask is None:
            return self.collect(load.buffer, self.offsets(lanes, bits))
        wide = self.integer(bits, width)
        mask = f"<{width} x i1> {self.use(load.mask, width)}"
        lanes = self.emit(f"select {mask}, {wide} {lanes}, {wide} zeroinitializer")
        row = self.collect(load.buffer, self.offsets(lanes, bits))
        return self.chosen(mask, row, load.dtype, width)

    def offsets(self, lanes: str, bits: int) -> list[str]:
        """The lanes of an index as scalars."""
        numbers = range(self.width)
        each = (self.lane(lanes, f"i{bits}", self.width, n) for n in numbers)
        return [self.resized(offset, signed_integer(bits), 64, 1) for offset in each]

    def collect(self, buffer: Buffer, offsets: Sequence[str]) -> str:
        """A vector made element by element."""
        row, type_ = "poison", memory_type(buffer.dtype)
        for n, offset in enumerate(offsets):
            value = self.get(buffer, offset)
            row = self.with_lane(row, type_, len(offsets), value, n)
        return row

    # -- stores

    def store(self, store: Store) -> None:
        """Write a value."""
        lanes = self.lanes(store.offset)
        if lanes == 1 or store.combine is not None:
            self.store_whole(store, lanes)
            return
        assert self.vector is not None
        value = self.to_memory(self.use(store.value, lanes), store.buffer.dtype, lanes)
        if stride(store.offset, self.vector) != 1:
            self.scatter(store.buffer, store.offset, value)
        elif store.mask is not None:
            self.store_masked(store, value)
        else:
            self.put(store.buffer, self.index(store.offset), value, lanes)

    def store_interleaved(self, stores: Sequence[Store]) -> None:
        """Write what several stores write side by side: the lanes of all in turn."""
        count, width, buffer = len(stores), self.width, stores[0].buffer
        values = [
            self.to_memory(self.use(store.value, width), buffer.dtype, width)
            for store in stores
        ]
        first = self.index(stores[0].offset)
        for begin in range(0, count * width, width):
            row = values[0]
            for number, value in enumerate(values):
                chosen = [
                    (begin + lane) // count + (width if number else 0)
                    if (begin + lane) % count == number
                    else lane
                    for lane in range(width)
                ]
                row = self.blend(row, value, memory_type(buffer.dtype), chosen)
            offset = self.emit(f"add i64 {first}, {begin}")
            self.put(buffer, offset, row, width)

    def store_masked(self, store: Store, value: str) -> None:
        """Write elements side by side where the mask is true."""
        assert store.mask is not None
        dtype, width = store.buffer.dtype, self.width
        self.call_void(
            f"llvm.masked.store.{overload(dtype, width, of_memory=True)}.p0",
            (memory_type(dtype, width), value),
            ("ptr", self.address(store.buffer, self.index(store.offset))),
            ("i32", str(dtype.itemsize)),
            (f"<{width} x i1>", self.use(store.mask, width)),
        )

    def scatter(self, buffer: Buffer, offset: IndexExpr, value: str) -> None:
        """Write elements anywhere, in the order of the lanes."""
        type_, bits = memory_type(buffer.dtype), index_bits(offset)
        offsets = self.offsets(self.lanes_of(offset, bits), bits)
        for n, place in enumerate(offsets):
            self.put(buffer, place, self.lane(value, type_, self.width, n))

    def store_whole(self, store: Store, lanes: int) -> None:
        """Write elements (or combine them with the old ones) if the mask is true."""
        value, offset = self.use(store.value, lanes), self.index(store.offset)
        if store.mask is None:
            self.put_whole(store, offset, value, lanes)
            return
        mask, then, after = self.use(store.mask, 1), self.label(), self.label()
        self.write(f"br i1 {mask}, label %{then}, label %{after}")
        self.start(then)
        self.put_whole(store, offset, value, lanes)
        self.write(f"br label %{after}")
        self.start(after)

    def put_whole(self, store: Store, offset: str, value: str, lanes: int) -> None:
        """Write elements, or combine them with the old ones."""
        if store.combine is not None:
            value = self.combined(store.combine, store.buffer, offset, value, lanes)
        value = self.to_memory(value, store.buffer.dtype, lanes)
        self.put(store.buffer, offset, value, lanes)

    def combined(
        self, name: str, buffer: Buffer, offset: str, value: str, lanes: int
    ) -> str:
        """The old elements with values; 16-bit floats in float32, as everywhere."""
        dtype = buffer.dtype
        wide = dtypes.compute_dtype(dtype)
        old = self.to_register(self.get(buffer, offset, lanes), dtype, lanes)
        both = [old, value]
        if wide is dtype:
            return self.row(name, both, [dtype, dtype], dtype, lanes)
        both = [self.row("convert", [x], [dtype], wide, lanes) for x in both]
        new = self.row(name, both, [wide, wide], wide, lanes)
        return self.row("convert", [new], [wide], dtype, lanes)
