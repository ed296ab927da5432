"""The driver of a plan: one LLVM function that runs all of its steps.

Receives a `Plan` and prints `i32 run(ptr %pointers)`, where the pointers are those of
the inputs, the output buffers and the arena. Kernels are calls of the functions that
`emit.py` prints, matrix products are calls of BLAS, host steps call back into Python
and end the run when that fails. Next on the walk: `backend.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.cpu.emit import RUN, Module, call_text
from fnx.cpu.grain import shares
from fnx.cpu.library import SET_THREADS, has_set_threads
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

    Those are BLAS routines, `SET_THREADS`, the pool's `RUN` and `HOST`: the text holds
    no address, so that its machine code serves other processes too.
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
        self.constants: dict[str, str] = {}
        self.symbols: set[str] = set()
        # The basic block being printed, and the number of BLAS threads to restore.
        self.block = "entry"
        self.threads: str | None = None

    def step(self, number: int, step: Step) -> None:
        """Prints one step."""
        match step:
            case KernelStep(kernel, buffers):
                pointers = [self.pointer(place) for place in buffers]
                self.lines.append(call_text(self.kernel(kernel), pointers))
            case MatmulStep():
                self.matmul(number, step)
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
        globals_ = "\n".join(self.constants.values())
        body = "\n".join(f"  {line}" for line in self.lines)
        self.module.define(
            f"{globals_}\ndefine i32 @run(ptr %pointers) {{\nentry:\n{body}\n"
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

    def constant(self, type_: str, value: str) -> str:
        """The name of a constant in memory: Fortran takes everything by address."""
        name = "@c_" + "".join(c if c.isalnum() else "_" for c in f"{type_}_{value}")
        self.constants[name] = f"{name} = private constant {type_} {value}"
        return name

    def matmul(self, number: int, step: MatmulStep) -> None:
        """Row-major out = x @ y is column-major outᵀ = yᵀ @ xᵀ."""
        if not (step.batch and step.m and step.n):
            return
        if step.m * step.n * step.k < _THREADED_WORK:
            self.one_thread(number)
        else:
            self.restore_threads()
        sizes = [step.m * step.n, step.m * step.k, step.k * step.n]
        nbytes = [size * step.dtype.itemsize for size in sizes]
        pointers = [self.pointer(place) for place in (step.out, step.x, step.y)]
        if step.batch == 1:
            self.gemm(step, *pointers)
            return
        item, label = f"%i{number}", f"batch{number}"
        self.lines += [
            f"br label %{label}",
            f"{label}:",
            f"{item} = phi i64 [ 0, %{self.block} ], [ {item}.next, %{label} ]",
        ]
        self.gemm(step, *map(self.at(item), pointers, nbytes))
        self.lines += [
            f"{item}.next = add i64 {item}, 1",
            f"{item}.more = icmp ult i64 {item}.next, {step.batch}",
            f"br i1 {item}.more, label %{label}, label %after{number}",
            f"after{number}:",
        ]
        self.block = f"after{number}"

    def gemm(self, step: MatmulStep, out: str, x: str, y: str) -> None:
        """One call of BLAS."""
        routine, type_, one, zero = _GEMM[step.dtype.name]
        callee = self.external(routine, "void", ", ".join(["ptr"] * 13))
        args = [
            self.constant("i8", str(ord("T" if step.transpose_y else "N"))),
            self.constant("i8", str(ord("T" if step.transpose_x else "N"))),
            *[self.constant("i32", str(v)) for v in (step.n, step.m, step.k)],
            self.constant(type_, one),
            y,
            self.leading(step.k if step.transpose_y else step.n),
            x,
            self.leading(step.m if step.transpose_x else step.k),
            self.constant(type_, zero),
            out,
            self.leading(step.n),
        ]
        shown = ", ".join(f"ptr {arg}" for arg in args)
        self.lines.append(f"call void {callee}({shown})")

    def at(self, item: str) -> Callable[[str, int], str]:
        """A function from a pointer and the bytes of an item to that item's address."""

        def address(pointer: str, nbytes: int) -> str:
            name = f"%a{len(self.lines)}"
            self.lines += [
                f"{name}.o = mul i64 {item}, {nbytes}",
                f"{name} = getelementptr i8, ptr {pointer}, i64 {name}.o",
            ]
            return name

        return address

    def one_thread(self, number: int) -> None:
        """Has BLAS use one thread: waking others costs more than a small product."""
        if self.threads is None and has_set_threads():
            self.threads = f"%t{number}"
            self.set_threads(self.threads, "1")

    def restore_threads(self) -> None:
        """Has BLAS use as many threads as before."""
        if self.threads is not None:
            self.set_threads(f"%r{len(self.lines)}", self.threads)
        self.threads = None

    def set_threads(self, before: str, wanted: str) -> None:
        """Sets the number of BLAS threads; `before` is what it was."""
        callee = self.external(SET_THREADS, "i32", "i32")
        self.lines.append(f"{before} = call i32 {callee}(i32 {wanted})")

    def leading(self, size: int) -> str:
        """A leading dimension, which BLAS wants to be at least 1."""
        return self.constant("i32", str(max(size, 1)))

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
        self.block = f"after{number}"


# Products of fewer multiply-adds run on one thread.
_THREADED_WORK = 2**21

# BLAS routine, LLVM type, one and zero of each dtype.
_GEMM = {
    "float32": ("sgemm", "float", "1.0", "0.0"),
    "float64": ("dgemm", "double", "1.0", "0.0"),
    "complex64": ("cgemm", "[2 x float]", "[float 1.0, float 0.0]", "zeroinitializer"),
    "complex128": (
        "zgemm",
        "[2 x double]",
        "[double 1.0, double 0.0]",
        "zeroinitializer",
    ),
}


def _loaded(name: str, slot: int) -> list[str]:
    address = f"{name}.a"
    return [
        f"{address} = getelementptr ptr, ptr %pointers, i64 {slot}",
        f"{name} = load ptr, ptr {address}",
    ]
