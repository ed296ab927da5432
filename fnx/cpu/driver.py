"""The driver of a plan: one LLVM function that runs all of its steps.

Receives a `Plan` and prints `i32 run(ptr %pointers)`, where the pointers are those of
the inputs, the output buffers and the arena. Kernels are calls of the functions that
`emit.py` prints, matrix products are calls of BLAS, host steps call back into Python
and end the run when that fails. Branches and loops call functions of the plans that
they hold, of the same kind. Next on the walk: `flow.py`, then `backend.py`.
"""

from __future__ import annotations

import dataclasses

from fnx.cpu.emit import RUN, Module, call_text
from fnx.cpu.flow import print_flow
from fnx.cpu.grain import shares
from fnx.cpu.library import BLAS_BEGIN, BLAS_END, has_set_threads
from fnx.cpu.products import product_text, rounds_and_chunk, routine
from fnx.cpu.workers import has_pool
from fnx.kernel.ir import Kernel
from fnx.records import record
from fnx.runtime.plan import (
    BranchStep,
    CopyStep,
    HostStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Place,
    Plan,
    Step,
    all_steps,
    held_plans,
)

HOST = "fnx_host"
"""The symbol of the callback into Python, `i32 (i64 step, ptr pointers)`."""


@record
class Hosted:
    """What Python does for a plan: a step, or the error that it raises.

    `inputs` and `buffers` are how many the plan has: they tell where its pointers are.
    """

    step: HostStep | Exception
    inputs: int
    buffers: int


@record
class Printed:
    """The module of a plan, what it must be linked with, and its callbacks.

    Symbols are BLAS routines, `BLAS_BEGIN` and `BLAS_END`, the pool's `RUN` and `HOST`:
    the text holds no address, so that its machine code serves other processes too.
    """

    module: Module
    symbols: set[str]
    hosts: list[Hosted]


def print_plan(plan: Plan) -> Printed:
    """The module of a plan."""
    shared = _Shared()
    shared.module.define(Driver(plan, shared).function("run", "define"))
    return Printed(shared.module, shared.symbols, shared.hosts)


class _Shared:
    """What the drivers of a plan and of the plans that it holds have in common."""

    def __init__(self) -> None:
        self.module = Module()
        self.symbols: set[str] = set()
        self.hosts: list[Hosted] = []
        self.products: dict[MatmulStep, str] = {}
        self.functions = 0


class Driver:
    """Prints the function of one plan."""

    def __init__(self, plan: Plan, shared: _Shared, in_blas: bool = False) -> None:
        self.plan = plan
        self.shared = shared
        self.module = shared.module
        self.allocated: list[str] = []
        self.lines: list[str] = []
        self.pointers: dict[Place, str] = {}
        self.labels = 0
        self.operands = False  # whether there is memory for those of a product
        # Whether BLAS is told to use one thread, and whether it was from the start.
        self.in_blas = self.was_in_blas = in_blas

    def function(self, name: str, define: str = "define internal") -> str:
        """The whole function, once all steps are printed."""
        for step in self.plan.steps:
            self.step(step)
        if self.was_in_blas:
            self.one_blas_thread()
        else:
            self.restore_threads()
        body = "\n".join(f"  {line}" for line in (*self.allocated, *self.lines))
        return (
            f"\n{define} i32 @{name}(ptr %pointers) {{\nentry:\n{body}\n"
            "  ret i32 0\nfailed:\n  ret i32 1\n}"
        )

    def held(self, plan: Plan) -> str:
        """The name of the function of a plan that a step holds."""
        name = f"plan{self.shared.functions}"
        self.shared.functions += 1
        driver = Driver(plan, self.shared, self.in_blas)
        self.module.define(driver.function(name))
        return name

    def step(self, step: Step) -> None:
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
                self.host(step)
            case BranchStep() | LoopStep():
                steps = [s for plan in held_plans(step) for s in all_steps(plan)]
                if any(isinstance(s, MatmulStep) for s in steps):
                    self.one_blas_thread()
                print_flow(self, step)

    def kernel(self, kernel: Kernel) -> str:
        """The function of a kernel, which threads share where that pays."""
        shared = shares(kernel) if has_pool() else {}
        if shared:
            self.shared.symbols.add(RUN)
        return self.module.add(kernel, shared)

    def external(self, name: str, result: str, parameters: str) -> str:
        """The name of a function that the module is linked with."""
        self.shared.symbols.add(name)
        self.module.declare(name, f"declare {result} @{name}({parameters})")
        return f"@{name}"

    def label(self, what: str) -> str:
        """A new label."""
        self.labels += 1
        return f"{what}{self.labels}"

    def array(self, count: int) -> str:
        """Memory for so many pointers, on the stack."""
        name = f"%array{len(self.allocated)}"
        self.allocated.append(f"{name} = alloca [{max(count, 1)} x ptr]")
        return name

    def put(self, array: str, number: int, pointer: str) -> None:
        """Stores a pointer in such memory."""
        address = f"%put{self.label('')}"
        self.lines += [
            f"{address} = getelementptr ptr, ptr {array}, i64 {number}",
            f"store ptr {pointer}, ptr {address}",
        ]

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
        if not self.operands:
            self.operands = True
            self.allocated.append("%operands = alloca [3 x ptr]")
        for number, place in enumerate((step.out, step.x, step.y)):
            self.put("%operands", number, self.pointer(place))
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
        products = self.shared.products
        name = products.get(key)
        if name is None:
            name = products[key] = f"product{len(products)}"
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

    def host(self, step: HostStep | Exception) -> None:
        """Calls back into Python, and leaves if that failed."""
        self.restore_threads()
        callee = self.external(HOST, "i32", "i64, ptr")
        number = len(self.shared.hosts)
        inputs, buffers = len(self.plan.inputs), len(self.plan.buffers)
        self.shared.hosts.append(Hosted(step, inputs, buffers))
        self.checked_call(f"{callee}(i64 {number}, ptr %pointers)")

    def checked_call(self, call: str) -> None:
        """Calls what gives 0, and leaves if it gives something else."""
        result, after = f"%r{self.label('')}", self.label("after")
        self.lines += [
            f"{result} = call i32 {call}",
            f"{result}.bad = icmp ne i32 {result}, 0",
            f"br i1 {result}.bad, label %failed, label %{after}",
            f"{after}:",
        ]


_ANY = Place("any", 0)


def _loaded(name: str, slot: int) -> list[str]:
    address = f"{name}.a"
    return [
        f"{address} = getelementptr ptr, ptr %pointers, i64 {slot}",
        f"{name} = load ptr, ptr {address}",
    ]
