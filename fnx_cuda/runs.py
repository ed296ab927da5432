"""Loops over a run of equal keys: what many updates of one element come to, in order.

The thread at which a run begins finds its end, by steps that double and then halve, so
that the rounds after that are known in number and their reads may be under way
together. The element is read once, combined in a register, and written once. Where the
threads of a warp share the rounds, each of them reads some values, and all of them
combine all of those, in their order. Used by `emit.py`; below it `threads.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fnx import dtypes
from fnx.kernel.ir import Loop, Run, Stmt, Store
from fnx_cuda.threads import WARP, Threads, shuffle
from fnx_cuda.values import literal, register_type

UNROLL = 16
"""Rounds of a thread whose reads may be under way together."""

TURNS = 4
"""Turns of a warp whose reads may be under way together."""


class Runs(Threads, ABC):
    """A printer that knows loops with a run."""

    @abstractmethod
    def body(self, body: Sequence[Stmt]) -> None:
        """Print statements in order."""

    def run_loop(self, loop: Loop, run: Run) -> None:
        """A loop over a run, if one begins here that the loop is for."""
        stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
        start = self.new(self.word, self.index(run.start, 0), "i")
        keys, type_ = self.names[run.keys], register_type(run.keys.dtype)
        end = literal(run.end, run.keys.dtype)
        inside = f"{start} < {loop.extent}"
        key = self.new(type_, f"{inside} ? {keys}[{start}] : {end}")
        conditions = [
            f"{key} < {end}",
            f"({start} == 0 || {keys}[{start} - 1] != {key})",
        ]
        if run.least > 1:
            conditions.append(_same(keys, key, start, f"{run.least - 1}", loop))
        if run.most is not None:
            more = _same(keys, key, start, f"{run.most}", loop)
            conditions.append(f"!({more})")
        with self.block(f"if ({' && '.join(conditions)})"):
            limit = self._end(keys, key, start, loop)
            with self._elements(stores) as values:
                if loop.spread:
                    self._shared_rounds(loop, stores, values, start, limit)
                else:
                    self._rounds(loop, stores, values, start, limit)

    def _end(self, keys: str, key: str, start: str, loop: Loop) -> str:
        """The name of the first index behind the run."""
        step, low, high = self.name("i"), self.name("i"), self.name("i")
        self.write(f"{self.word} {step} = 1;")
        same = _same(keys, key, start, step, loop)
        self.write(f"while ({same}) {step} *= 2;")
        self.write(f"{self.word} {low} = {start} + {step} / 2;")
        left = f"{loop.extent} - {start}"
        known = f"{start} + ({step} < {left} ? {step} : {left})"
        self.write(f"{self.word} {high} = {known};")
        with self.block(f"while ({high} - {low} > 1)"):
            middle = self.new(self.word, f"{low} + ({high} - {low}) / 2", "i")
            self.write(f"if ({keys}[{middle}] == {key}) {low} = {middle};")
            self.write(f"else {high} = {middle};")
        return high

    @contextmanager
    def _elements(self, stores: Sequence[Store]) -> Iterator[list[str]]:
        """Registers with the stores' elements, which are written behind."""
        found = []
        for store in stores:
            place = f"{self.names[store.buffer]}[{self.index(store.offset, 0)}]"
            value = self.name("v")
            self.write(f"{register_type(store.buffer.dtype)} {value} = {place};")
            found.append((place, value))
        yield [value for _, value in found]
        if self.threads > 1:
            self.write("__syncwarp();")  # all have read what one writes
        for place, value in found:
            line = f"{place} = {value};"
            self.write(line if self.threads == 1 else f"if (t == 0) {line}")

    def _rounds(
        self,
        loop: Loop,
        stores: Sequence[Store],
        values: Sequence[str],
        start: str,
        end: str,
    ) -> None:
        """Every round, by this thread."""
        index = self.name("i")
        self.write(f"#pragma unroll {UNROLL}")
        head = f"for ({self.word} {index} = {start}; {index} < {end}; ++{index})"
        with self.block(head):
            self.know(loop.index, [index])
            self.body([stmt for stmt in loop.body if not isinstance(stmt, Store)])
            for store, value in zip(stores, values, strict=True):
                new = self.combined(store, value, self.use(store.value, 0))
                self.write(f"{value} = {new};")

    def _shared_rounds(
        self,
        loop: Loop,
        stores: Sequence[Store],
        values: Sequence[str],
        start: str,
        end: str,
    ) -> None:
        """Turns of as many rounds as a warp has threads, some of them read at once."""
        base, turn = self.name("i"), self.name("q")
        turns = f"for (int {turn} = 0; {turn} < {TURNS}; ++{turn})"
        head = f"for ({self.word} {base} = {start}; {base} < {end}; "
        with self.block(f"{head}{base} += {TURNS * WARP})"):
            own = [self.name("v") for _ in stores]
            for store, name in zip(stores, own, strict=True):
                self.write(f"{register_type(store.buffer.dtype)} {name}[{TURNS}];")
            self.write("#pragma unroll")
            with self.block(turns):
                place = self.new(self.word, f"{base} + {turn} * {WARP} + t", "i")
                last = f"{place} < {end} ? {place} : {end} - 1"
                self.know(loop.index, [self.new(self.word, last, "i")])
                self.body([stmt for stmt in loop.body if not isinstance(stmt, Store)])
                for store, name in zip(stores, own, strict=True):
                    self.write(f"{name}[{turn}] = {self.use(store.value, 0)};")
            self.write("#pragma unroll")
            with self.block(turns):
                left = self.new("int", f"(int)({end} - {base}) - {turn} * {WARP}", "i")
                lane = self.name("q")
                self.write("#pragma unroll")
                with self.block(f"for (int {lane} = 0; {lane} < {WARP}; ++{lane})"):
                    for store, name, value in zip(stores, own, values, strict=True):
                        dtype = store.buffer.dtype
                        given = shuffle("", f"{name}[{turn}]", dtype, lane)
                        other = self.new(register_type(dtype), given)
                        new = self.combined(store, value, other)
                        self.write(f"if ({lane} < {left}) {value} = {new};")

    def combined(self, store: Store, old: str, new: str) -> str:
        """An element's value combined with another one; 16-bit as float32."""
        assert store.combine is not None
        dtype = store.buffer.dtype
        wide = dtypes.compute_dtype(dtype)
        if wide is dtype:
            return self.row(store.combine, [old, new], [dtype, dtype], dtype)
        both = [self.row("convert", [x], [dtype], wide) for x in (old, new)]
        result = self.row(store.combine, both, [wide, wide], wide)
        return self.row("convert", [result], [wide], dtype)


def _same(keys: str, key: str, start: str, distance: str, loop: Loop) -> str:
    """The condition that there is the same key so far behind the start."""
    inside = f"{distance} < {loop.extent} - {start}"
    return f"{inside} && {keys}[{start} + {distance}] == {key}"
