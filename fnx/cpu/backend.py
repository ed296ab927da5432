"""The CPU backend: builds a plan into one native call over NumPy arrays.

Receives a `Plan`, gives a callable that allocates the output buffers and an arena,
passes all addresses to the plan's driver function and serves its callbacks.
This is the end of the walk from a user's function to running code.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.config import config
from fnx.cpu import jit
from fnx.cpu.driver import print_plan
from fnx.cpu.entry import NativeCalls, native_calls
from fnx.cpu.entry.table import ArenaCell, Table, make_table
from fnx.cpu.library import blas_address
from fnx.kernel.ir import Loop, Stmt
from fnx.runtime.backend import (
    CallForm,
    CallSite,
    CopyStep,
    HostStep,
    KernelStep,
    Literal,
    Place,
    Plan,
    Step,
    register,
)

Arrays = Sequence[np.ndarray[Any, Any]]
_HostCall = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_Run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

# Letting other Python threads run costs a tenth of a microsecond and more; a plan that
# does less than this many rounds of a loop is over before they would get going.
_SHORT_ROUNDS = 20_000


class CpuBackend:
    """Prints plans as LLVM IR and compiles them in this process."""

    name = "cpu"

    def build(self, plan: Plan) -> _NativePlan:
        """The plan as one native call; `ImportError` without llvmlite."""
        return _NativePlan(plan)

    def native_calls(self, site: CallSite) -> NativeCalls | None:
        """The native `__call__` of a class, where this interpreter is a known one."""
        return native_calls(site)


class _NativePlan:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.callback = _HostCall(self._serve)
        address = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.llvm, libraries = print_plan(plan, address or 0)
        if config.debug >= 5:
            print(f"--- llvm\n{self.llvm}", file=sys.stderr)
        if config.debug >= 6:
            print(f"--- asm\n{self.as_text('asm')}", file=sys.stderr)
        imports = {name: blas_address(name) for name in sorted(libraries)}
        self.code = jit.load(jit.assemble(self.llvm), ["run"], imports)
        self.function = _Run(self.code.address("run"))
        self.arenas: list[np.ndarray[Any, Any]] = []
        self.failures: dict[int, BaseException] = {}
        self.cell: ArenaCell | None = None

    def __call__(self, inputs: Arrays) -> list[np.ndarray[Any, Any]]:
        """The output buffers for these inputs."""
        outputs = [np.empty(t.shape, t.dtype) for t in self.plan.buffers]
        arena = self._arena()
        everything = [*inputs, *outputs, arena]
        pointers = (ctypes.c_void_p * len(everything))(
            *[array.ctypes.data for array in everything]
        )
        address = ctypes.addressof(pointers)
        if self.function(address):
            self._raise(address)
        self.arenas.append(arena)
        return outputs

    def call_path(self, form: CallForm) -> Table | None:
        """A table by which the walker runs this plan, if the form can have one."""
        if self.cell is None:
            self.cell = ArenaCell()
        # From now on the walker keeps an arena; two would be one too many.
        self.arenas.clear()
        rounds = sum(map(_rounds, self.plan.steps))
        return make_table(
            self.plan,
            self.code.address("run"),
            self.cell,
            form,
            release=rounds > _SHORT_ROUNDS,
            failed=self._raise,
            keep=self,
        )

    def _raise(self, address: int) -> None:
        """Raises what a host step of the call with these pointers raised."""
        raise self.failures.pop(address)

    def as_text(self, stage: str) -> str:
        """The plan's LLVM IR ("llvm") or machine code as assembly ("asm")."""
        return self.llvm if stage == "llvm" else jit.assembly(self.llvm)

    def _arena(self) -> np.ndarray[Any, Any]:
        # Fresh pages cost more than most programs, so arenas are kept; calls from
        # several threads at once each have their own.
        try:
            return self.arenas.pop()
        except IndexError:
            return np.empty(max(self.plan.arena, 1), np.uint8)

    def _serve(self, number: int, address: int) -> int:
        """Runs a host step on the memory of a call; 1 if it raised."""
        step = self.plan.steps[number]
        try:
            self._run_host(step, address)
        except BaseException as error:  # carried through native code to the caller
            self.failures[address] = error
            return 1
        return 0

    def _run_host(self, step: Any, address: int) -> None:
        if not isinstance(step, HostStep):
            raise errors.InternalError("a callback for a step that is not the host's")
        inputs = [
            item.value if isinstance(item, Literal) else self._view(item, type, address)
            for item, type in zip(step.inputs, step.input_types, strict=True)
        ]
        with np.errstate(all="ignore"):
            results = step.primitive.reference(*inputs, **step.params)
        many = results if step.primitive.multiple else (results,)
        for place, type, value in zip(
            step.outputs, step.output_types, many, strict=True
        ):
            self._view(place, type, address)[...] = value

    def _view(self, place: Place, type: Any, address: int) -> np.ndarray[Any, Any]:
        slots = {"input": 0, "output": len(self.plan.inputs)}
        arena = len(self.plan.inputs) + len(self.plan.buffers)
        slot = arena if place.role == "arena" else slots[place.role] + place.index
        offset = place.index if place.role == "arena" else 0
        pointers = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
        start = (pointers[slot] or 0) + offset
        nbytes = type.size * type.dtype.itemsize
        memory = (ctypes.c_uint8 * nbytes).from_address(start)
        return np.frombuffer(memory, type.dtype).reshape(type.shape)


def _rounds(step: Step) -> float:
    """How many rounds of its loops a step runs; infinitely many if nobody knows."""
    match step:
        case KernelStep(kernel, _):
            return sum(map(_statement_rounds, kernel.body))
        case CopyStep(_, _, nbytes):
            return nbytes / 64
    return math.inf


def _statement_rounds(stmt: Stmt) -> int:
    if not isinstance(stmt, Loop):
        return 0
    inner = sum(map(_statement_rounds, stmt.body))
    return stmt.extent * max(inner, 1) // stmt.width


register(CpuBackend())
