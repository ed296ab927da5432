"""The driver of a plan: one LLVM function that runs all of its steps.

Receives a `Plan` and prints `i32 run(ptr %pointers)`, where the pointers are those of
the inputs, the output buffers and the arena. Kernels are calls of the functions that
`emit.py` prints, matrix products are calls of BLAS, host steps call back into Python
and end the run when that fails. Next on the walk: `backend.py`.
"""

from __future__ import annotations

import dataclasses

from fnx.cpu.emit import RUN, Module, call_text
from fnx.cpu.grain import shares
from fnx.cpu.library import BLAS_BEGIN, BLAS_END, has_set_threads
from fnx.cpu.products import product_text, rounds_and_chunk, routine
from fnx.cpu.workers import has_pool
from fnx.kernel.ir import Kernel
from fnx.runtime.plan import (
    CopyStep,
    HostStep,
    KernelStep,
    MatmulStep,
    Place,
    Plan,
    Step,
)

HOST = "fnx_host"
"""The symbol of the callback into Python, `i32 (i64 step, ptr pointers)`."""


def print_plan(plan: Plan) -> tuple[Module, set[str]]:
    """The module of a plan, and the symbols that it must be linked with.

    Those are BLAS routines, `BLAS_BEGIN` and `BLAS_END`, the pool's `RUN` and `HOST`:
    the text holds no address, so that its machine code serves other processes too.
    """
    driver = _Driver(plan)
    for number, step in enumerate(plan.steps):
        driver.step(number, step)
    return driver.printed(), driver.symbols


class _Driver:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.module = Module()
        self.lines: list[str] = []
        self.pointers: dict[Place, str] = {}
        self.products: dict[MatmulStep, str] = {}
        self.symbols: set[str] = set()
        self.in_blas = False  # whether BLAS is told to use one thread

    def step(self, number: int, step: Step) -> None:
        """Prints one step."""
        match step:
            case KernelStep(kernel, buffers):
                pointers = [self.pointer(place) for place in buffers]
                self.lines.append(call_text(self.kernel(kernel), pointers))
            case MatmulStep():
                self.matmul(step)
            case CopyStep(out, source, nbytes):
                self.copy(out, source, nbytes)
            case HostStep():
                self.host(number)

    def kernel(self, kernel: Kernel) -> str:
        """The function of a kernel, which threads share where that pays."""
        shared = shares(kernel) if has_pool() else {}
        if shared:
            self.symbols.add(RUN)
        return self.module.add(kernel, shared)

    def external(self, name: str, result: str, parameters: str) -> str:
        """The name of a function that the module is linked with."""
        self.symbols.add(name)
        self.module.declare(name, f"declare {result} @{name}({parameters})")
        return f"@{name}"

    def printed(self) -> Module:
        """The whole module."""
        self.restore_threads()
        if self.products:
            self.lines.insert(0, "%operands = alloca [3 x ptr]")
        body = "\n".join(f"  {line}" for line in self.lines)
        self.module.define(
            f"\ndefine i32 @run(ptr %pointers) {{\nentry:\n{body}\n"
            "  ret i32 0\nfailed:\n  ret i32 1\n}"
        )
        return self.module

    def pointer(self, place: Place) -> str:
        """The SSA name of a place's address, loaded once, at its first use."""
        found = self.pointers.get(place)
        if found is None:
            found = self.pointers[place] = f"%p{len(self.pointers)}"
            if place.role == "arena":
                arena = self.pointer(Place("base", 0))
                self.lines.append(
                    f"{found} = getelementptr i8, ptr {arena}, i64 {place.index}"
                )
            else:
                self.lines += _loaded(found, self.slot(place))
        return found

    def slot(self, place: Place) -> int:
        """The position of a place's address among the pointers."""
        inputs, buffers = len(self.plan.inputs), len(self.plan.buffers)
        first = {"input": 0, "output": inputs, "base": inputs + buffers}
        return first[place.role] + place.index

    def matmul(self, step: MatmulStep) -> None:
        """The pieces of matrix products, which threads share where there are many."""
        if not (step.batch and step.m and step.n):
            return
        self.one_blas_thread()
        places = (step.out, step.x, step.y)
        for number, pointer in enumerate(map(self.pointer, places)):
            address = f"%a{len(self.lines)}"
            self.lines += [
                f"{address} = getelementptr ptr, ptr %operands, i64 {number}",
                f"store ptr {pointer}, ptr {address}",
            ]
        name = self.product(step)
        rounds, chunk = rounds_and_chunk(step)
        if chunk < rounds and has_pool() and has_set_threads():
            self.external(RUN, "void", "ptr, ptr, i64, i64")
            call = f"@{RUN}(ptr @{name}, ptr %operands, i64 {rounds}, i64 {chunk})"
        else:
            call = f"@{name}(ptr %operands, i64 0, i64 {rounds})"
        self.lines.append(f"call void {call}")

    def product(self, step: MatmulStep) -> str:
        """The function of a product; equal products share one."""
        key = dataclasses.replace(step, out=_ANY, x=_ANY, y=_ANY)
        name = self.products.get(key)
        if name is None:
            name = self.products[key] = f"product{len(self.products)}"
            self.external(routine(step), "void", ", ".join(["ptr"] * 13))
            self.module.declare("llvm.umin.i64", "declare i64 @llvm.umin.i64(i64, i64)")
            self.module.define(product_text(step, name, self.constant))
        return name

    def constant(self, type_: str, value: str) -> str:
        """The name of a constant in memory: Fortran takes everything by address."""
        name = "c_" + "".join(c if c.isalnum() else "_" for c in f"{type_}_{value}")
        text = f"@{name} = private constant {type_} {value}"
        self.module.declare(name, text)
        return f"@{name}"

    def one_blas_thread(self) -> None:
        """Has BLAS use one thread: the threads are ours, and each calls BLAS."""
        if not self.in_blas and has_set_threads():
            self.in_blas = True
            self.lines.append(f"call void {self.external(BLAS_BEGIN, 'void', '')}()")

    def restore_threads(self) -> None:
        """Has BLAS use as many threads as before."""
        if self.in_blas:
            self.lines.append(f"call void {self.external(BLAS_END, 'void', '')}()")
        self.in_blas = False

    def copy(self, out: Place, source: Place, nbytes: int) -> None:
        """Copies bytes."""
        if out == source or not nbytes:
            return
        memcpy = "llvm.memcpy.p0.p0.i64"
        self.module.declare(memcpy, f"declare void @{memcpy}(ptr, ptr, i64, i1)")
        target, origin = self.pointer(out), self.pointer(source)
        self.lines.append(
            f"call void @{memcpy}(ptr {target}, ptr {origin}, i64 {nbytes}, i1 false)"
        )

    def host(self, number: int) -> None:
        """Calls back into Python, and leaves if that failed."""
        self.restore_threads()
        callee = self.external(HOST, "i32", "i64, ptr")
        self.lines += [
            f"%h{number} = call i32 {callee}(i64 {number}, ptr %pointers)",
            f"%f{number} = icmp ne i32 %h{number}, 0",
            f"br i1 %f{number}, label %failed, label %after{number}",
        ]
        self.lines.append(f"after{number}:")


_ANY = Place("any", 0)


def _loaded(name: str, slot: int) -> list[str]:
    address = f"{name}.a"
    return [
        f"{address} = getelementptr ptr, ptr %pointers, i64 {slot}",
        f"{name} = load ptr, ptr {address}",
    ]
