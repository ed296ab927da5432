"""The CPU backend: builds a plan into one native call over NumPy arrays.

Receives a `Plan` and compiles it; what that gives can be kept on disk and loaded by any
process. Loaded, it is a callable that allocates the output buffers and an arena, passes
all addresses to the plan's driver function and serves its callbacks.
This is the end of the walk from a user's function to running code.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from fnx import errors
from fnx.config import config
from fnx.cpu import jit
from fnx.cpu.driver import Hosted, print_plan
from fnx.cpu.effort import rounds
from fnx.cpu.entry import layout, memory
from fnx.cpu.entry.table import ArenaCell, Runnable, Table, make_table
from fnx.cpu.fft import PREFIX, address
from fnx.cpu.gemm import gemm_address
from fnx.cpu.library import (
    BLAS_BEGIN,
    BLAS_END,
    blas_address,
    blas_threads_address,
)
from fnx.cpu.llvm import SIZES
from fnx.cpu.pool import RUNS
from fnx.cpu.products import OWN
from fnx.cpu.python import CALL, LISTEN, SERVE
from fnx.cpu.threads import cpus, num_threads
from fnx.cpu.workers import divided, run_address
from fnx.records import record
from fnx.runtime.backend import CallForm
from fnx.runtime.plan import (
    Literal,
    Place,
    Plan,
    Sizes,
    at_sizes,
    listen,
)
from fnx.sizes import Size

Arrays = Sequence[np.ndarray[Any, Any]]
# The function lets other Python threads run, and cannot fail; or it lets them run, too,
# and leaves an exception set if it fails.
_Run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_Call = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

# Letting other Python threads run costs a tenth of a microsecond and more; a plan that
# does less than this many rounds of a loop is over before they would get going.
_SHORT_ROUNDS = 20_000


@record
class Compiled:
    """A plan as machine code for this CPU, without an address of this process.

    `plan` has no steps any more; `hosts` are those that run in Python. The code is
    linked with `symbols`. `rounds` says how much it does. The code of a plan for many
    sizes is linked with `SIZES`, where the values of these formulas are.
    """

    plan: Plan
    hosts: tuple[Hosted, ...]
    code: jit.Code
    symbols: tuple[str, ...]
    rounds: float
    sizes: tuple[Size, ...] = ()


_NONE: Mapping[int, np.ndarray[Any, Any]] = {}


class CpuBackend:
    """Prints plans as LLVM IR and compiles them in this process."""

    stages = ("llvm", "asm")

    def machine(self) -> str:
        """What machine code depends on; `ImportError` without llvmlite."""
        return f"{jit.machine()} {cpus()} CPUs"

    def compile(self, plan: Plan) -> Compiled:
        """The plan as machine code; `ImportError` without llvmlite."""
        printed = print_plan(plan)
        module = printed.module
        if config.debug >= 5:
            print(f"--- llvm\n{module.text()}", file=sys.stderr)
        if config.debug >= 6:
            print(f"--- asm\n{jit.assembly(module)}", file=sys.stderr)
        return Compiled(
            plan=dataclasses.replace(plan, steps=(), arena=printed.arena),
            hosts=tuple(printed.hosts),
            code=jit.assemble_module(module, num_threads()),
            symbols=tuple(sorted(printed.symbols)),
            rounds=sum(map(rounds, plan.steps)),
            sizes=tuple(module.sizes),
        )

    def load(self, compiled: Compiled) -> _NativePlan:
        """The plan as one native call."""
        return _NativePlan(compiled)

    def load_at(self, compiled: Compiled, sizes: Sizes) -> _NativePlan:
        """The plan for many sizes as one native call for these."""
        values = np.array([size.at(sizes) for size in compiled.sizes], np.int64)
        plan, hosts = at_sizes((compiled.plan, compiled.hosts), sizes)
        known = dataclasses.replace(compiled, plan=plan, hosts=hosts)
        return _NativePlan(known, values)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array whose memory was used before, if it is large."""
        return memory.empty(shape, dtype)

    def divided(self, count: int) -> AbstractContextManager[None]:
        """Has each of so many threads be helped by its share of the workers."""
        return divided(count)

    def as_text(self, plan: Plan, stage: str) -> str:
        """The plan's LLVM IR ("llvm") or machine code as assembly ("asm")."""
        module = print_plan(plan).module
        return module.text() if stage == "llvm" else jit.assembly(module)


class _NativePlan:
    def __init__(self, compiled: Compiled, sizes: Any = None) -> None:
        self.sizes = sizes  # kept: the code reads them
        self.plan = compiled.plan
        self.outputs = compiled.plan.outputs
        self.hosts = compiled.hosts
        self.rounds = compiled.rounds
        self.serve = self._serve  # kept: the code has its address
        self.tables: list[object] = []  # kept, too
        imports = {name: self._address(name) for name in compiled.symbols}
        if compiled.sizes:
            imports[SIZES] = sizes.ctypes.data
        exports = ["run", CALL] if _calls_python(compiled) else ["run"]
        self.code = jit.load(compiled.code, exports, imports)
        self.function: Any = (
            _Call(self.code.address(CALL))
            if _calls_python(compiled)
            else _Run(self.code.address("run"))
        )
        self.arenas: list[np.ndarray[Any, Any]] = []
        self.cell: ArenaCell | None = None

    def _address(self, symbol: str) -> int:
        """Where a symbol is in this process; `ImportError` if it is not."""
        if symbol == SERVE:
            return id(self.serve)
        if symbol == LISTEN:
            return id(listen)
        if symbol.startswith("Py"):
            return layout.python_address(symbol)
        if symbol in RUNS:
            return run_address(symbol)
        if symbol in (BLAS_BEGIN, BLAS_END):
            return blas_threads_address(symbol)
        if symbol in OWN:
            return gemm_address(OWN[symbol])
        if symbol.startswith(PREFIX):
            place, table = address(symbol)
            self.tables.append(table)
            return place
        return blas_address(symbol)

    def __call__(
        self, inputs: Arrays, given: Mapping[int, np.ndarray[Any, Any]] = _NONE
    ) -> list[np.ndarray[Any, Any]]:
        """The output buffers for these inputs; those of some numbers may be given."""
        outputs = [
            memory.empty(t.shape, t.dtype) if n not in given else given[n]
            for n, t in enumerate(self.plan.buffers)
        ]
        arena = self._arena()
        everything = [*inputs, *outputs, arena]
        pointers = (ctypes.c_void_p * len(everything))(
            *[array.ctypes.data for array in everything]
        )
        self.function(ctypes.addressof(pointers))
        if self.sizes is None:  # else there are many like this one
            self.arenas.append(arena)
        return outputs

    def call_path(self, form: CallForm) -> Table | None:
        """A table by which the walker runs this plan, if the form can have one.

        It has none if it reserves more than there may be, which the walker cannot.
        """
        outputs = [t.size * t.dtype.itemsize for t in self.plan.buffers]
        if max([self.plan.arena, *outputs]) >= memory.PROMISED:
            return None
        if self.cell is None:
            self.cell = ArenaCell()
        # From now on the walker keeps an arena; two would be one too many.
        self.arenas.clear()
        return make_table(
            Runnable.of(self.plan),
            self.code.address("run"),
            self.cell,
            form,
            release=self.rounds > _SHORT_ROUNDS,
            keep=self,
        )

    def _arena(self) -> np.ndarray[Any, Any]:
        # Fresh pages cost more than most programs, so arenas are kept; calls from
        # several threads at once each have their own.
        try:
            return self.arenas.pop()
        except IndexError:
            if self.sizes is not None:
                return memory.empty((self.plan.arena,), np.dtype(np.uint8))
            return memory.scratch(self.plan.arena)

    @errors.api_boundary
    def _serve(self, number: int, operands: int) -> None:
        """Runs a host step on the addresses of its inputs and outputs."""
        _run_host(self.hosts[number], operands)


def _calls_python(compiled: Compiled) -> bool:
    return "PyEval_SaveThread" in compiled.symbols


def _run_host(step: Hosted, operands: int) -> None:
    """Runs a step on the addresses of its inputs and outputs."""
    if isinstance(step, Exception):
        raise step.with_traceback(None)
    stored = [item for item in step.inputs if isinstance(item, Place)]
    addresses = iter(
        (ctypes.c_void_p * (len(stored) + len(step.outputs))).from_address(operands)
    )
    rows = zip(step.inputs, step.input_types, strict=True)
    inputs = [
        item.value if isinstance(item, Literal) else _view(next(addresses), type)
        for item, type in rows
    ]
    outputs = [_view(next(addresses), type) for type in step.output_types]
    with np.errstate(all="ignore"):
        step.primitive.write(outputs, *inputs, **step.params)


def _view(address: int | None, type: Any) -> Any:
    """A value as an array on its memory."""
    nbytes = type.size * type.dtype.itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(address or 0)
    return np.frombuffer(memory, type.dtype).reshape(type.shape)


BACKEND = CpuBackend()
