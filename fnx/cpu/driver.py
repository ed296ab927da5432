"""The driver of a plan: one LLVM function that runs all of its steps.

Receives a `Plan` and prints `i32 run(ptr %pointers)`, where the pointers are those of
the inputs, the output buffers and the arena. Kernels are calls of the functions that
`emit.py` prints, matrix products are calls of `gemm.py` and BLAS, kernels of the user's
are calls of where they are (never kept on disk). Host steps are Fourier transforms
(`fft.py`) and calls of LAPACK, or call Python, and end the run when that fails
(`python.py`). The plans that branches and loops hold are printed in their place. Next
on the walk: `flow.py`, then `backend.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

from fnx.cpu import fft
from fnx.cpu.emit import RUN, Module, call_text
from fnx.cpu.flow import BASE, is_tight, looks, loop_places, print_flow
from fnx.cpu.grain import shares
from fnx.cpu.lapack_table import (
    DECLARATIONS,
    chunk,
    is_native,
    matrices,
    routine_text,
)
from fnx.cpu.library import BLAS_BEGIN, BLAS_END, has_set_threads
from fnx.cpu.llvm import Numbers
from fnx.cpu.products import is_own, product_text, rounds_and_chunk, routine
from fnx.cpu.python import define
from fnx.cpu.workers import has_pool
from fnx.kernel.ir import Kernel
from fnx.records import record
from fnx.runtime.plan import (
    BranchStep,
    CopyStep,
    ForeignStep,
    HostStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Native,
    Place,
    Plan,
    Step,
    all_steps,
    held_plans,
)
from fnx.sizes import Size, surely_at_most


@record
class Printed:
    """The module of a plan, what it must be linked with, and its callbacks.

    Symbols are BLAS routines, `BLAS_BEGIN` and `BLAS_END`, the pool's `RUN`, functions
    of Python's, and `SERVE`: the text holds no address, so that its machine code serves
    other processes too.
    """

    module: Module
    symbols: set[str]
    hosts: list[Hosted]
    arena: Any  # an int, or a formula where the plan is for many sizes


Hosted = HostStep | Exception
"""What Python does for a plan: a step, or an error that it raises."""


def print_plan(plan: Plan) -> Printed:
    """The module of a plan."""
    function = Function(Behind(plan))
    Driver(plan, function, {}).run()
    function.restore_threads()
    module = function.module
    module.define(function.text(), brief=True)
    python = define(module, bool(function.hosts), function.deadline is not None)
    symbols = function.symbols | python
    return Printed(module, symbols, function.hosts, function.behind.end)


class Behind:
    """Memory behind a plan's arena, in which one step after the other works.

    `slot` is the position of the arena's address among the pointers.
    """

    def __init__(self, plan: Plan) -> None:
        self.slot = len(plan.inputs) + len(plan.buffers)
        self.arena = plan.arena
        self.begin = -(-plan.arena // 64) * 64
        self.nbytes: Any = 0

    def need(self, nbytes: int | Size) -> None:
        """Has it be as long as a step needs."""
        if isinstance(nbytes, Size) or isinstance(self.nbytes, Size):
            self.nbytes = self.nbytes + nbytes  # nobody knows which one is larger
        else:
            self.nbytes = max(self.nbytes, nbytes)

    @property
    def end(self) -> Any:
        """The bytes of the arena, with what is behind it."""
        unused = not isinstance(self.nbytes, Size) and not self.nbytes
        return self.arena if unused else self.begin + self.nbytes


class Function:
    """The function of a plan while it is printed, with the plans that it holds.

    A tight loop has a function of its own, called from the one around it, in a module
    of its own; its pointers are in memory at `%operands`. `deadline` is the address of
    when to look for signals, which all loops of a call share.
    """

    def __init__(
        self, behind: Behind, name: str = "run", around: Function | None = None
    ) -> None:
        self.behind = behind
        self.name = name
        self.is_tight = around is not None
        self.module = Module()
        self.symbols: set[str] = set()
        self.hosts: list[Hosted] = []
        if around is not None:
            around.module.add_tight(self.module)
            self.symbols, self.hosts = around.symbols, around.hosts
        self.products: dict[MatmulStep, str] = {}
        self.routines: dict[Hashable, str] = {}
        self.allocated: list[str] = []
        self.lines: list[str] = []
        self.numbers = 0
        self.operands: str | None = None  # memory for those of a product
        self.temporary: str | None = None
        self.in_blas = False  # whether BLAS is told to use one thread
        self.in_loop = self.is_tight  # whether what is printed may run often
        self.deadline: str | None = None
        self.given = Numbers(self.module)

    def text(self) -> str:
        """The whole function."""
        body = "\n".join(f"  {line}" for line in (*self.allocated, *self.lines))
        operands = ", ptr %operands" if self.is_tight else ""
        head = f"define i32 @{self.name}(ptr %pointers{operands}) {{"
        last = "  ret i32 0\nfailed:\n  ret i32 1\n}"
        return "\n".join(["", head, "entry:", *self.given.lines, body, last])

    def number(self) -> int:
        """A new number, for a label or a register."""
        self.numbers += 1
        return self.numbers

    def label(self, what: str) -> str:
        """A new label."""
        return f"{what}{self.number()}"

    def size(self, number: int | Size) -> str:
        """A number as an operand."""
        return self.given.operand(number)

    def array(self, count: int) -> str:
        """Memory for so many pointers, on the stack."""
        name = f"%array{self.number()}"
        self.allocated.append(f"{name} = alloca [{max(count, 1)} x ptr]")
        return name

    def memory(self, nbytes: int) -> str:
        """So many bytes on the stack."""
        name = f"%memory{self.number()}"
        self.allocated.append(f"{name} = alloca [{max(nbytes, 1)} x i8], align 64")
        return name

    def behind_arena(self, nbytes: int | Size) -> str:
        """Memory behind the arena, which the steps before and after use, too."""
        self.behind.need(nbytes)
        if self.temporary is None:
            self.temporary = "%temporary"
            self.allocated += _loaded("%arena.begin", "%pointers", self.behind.slot)
            self.allocated.append(
                f"{self.temporary} = getelementptr i8, ptr %arena.begin, "
                f"i64 {self.size(self.behind.begin)}"
            )
        return self.temporary

    def at(self, pointer: str, nbytes: int | Size) -> str:
        """The address so many bytes further on."""
        name = f"%at{self.number()}"
        to = f"i64 {self.size(nbytes)}"
        self.lines.append(f"{name} = getelementptr i8, ptr {pointer}, {to}")
        return name

    def put(self, array: str, number: int, pointer: str) -> None:
        """Stores a pointer in such memory."""
        address = f"%put{self.number()}"
        self.lines += [
            f"{address} = getelementptr ptr, ptr {array}, i64 {number}",
            f"store ptr {pointer}, ptr {address}",
        ]

    def put_number(self, array: str, number: int, value: int | Size) -> None:
        """Stores a number in such memory."""
        address = f"%put{self.number()}"
        self.lines += [
            f"{address} = getelementptr ptr, ptr {array}, i64 {number}",
            f"store i64 {self.size(value)}, ptr {address}",
        ]

    def external(self, name: str, result: str, parameters: str) -> str:
        """The name of a function that the module is linked with."""
        self.symbols.add(name)
        self.module.declare(name, f"declare {result} @{name}({parameters})")
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

    def host(self, step: Hosted, operands: Sequence[str]) -> None:
        """Calls Python, and leaves if that failed."""
        self.restore_threads()
        array = self.array(len(operands))
        for number, pointer in enumerate(operands):
            self.put(array, number, pointer)
        number = len(self.hosts)
        self.hosts.append(step)
        if self.is_tight:
            declared = "declare i32 @call_python(i64, ptr)"
            self.module.declare("call_python", declared)
        self.checked(f"@call_python(i64 {number}, ptr {array})")

    def look_for_signals(self) -> None:
        """Looks at the clock, and for signals if it is time; leaves if one raised."""
        if self.is_tight:
            self.module.declare("look", "declare i32 @look(ptr)")
        self.checked(f"@look(ptr {self.common_deadline()})")

    def common_deadline(self) -> str:
        """The deadline of this call, which is 0 until somebody looks at the clock."""
        if self.deadline is None:
            self.deadline = "%deadline"
            self.allocated += ["%deadline = alloca i64", "store i64 0, ptr %deadline"]
        return self.deadline

    def checked(self, call: str) -> None:
        """Calls what gives 0, and leaves if it gives something else."""
        result, after = f"%result{self.number()}", self.label("after")
        stop = self.label("stop") if self.in_blas else "failed"
        self.lines += [
            f"{result} = call i32 {call}",
            f"{result}.bad = icmp ne i32 {result}, 0",
            f"br i1 {result}.bad, label %{stop}, label %{after}",
        ]
        if self.in_blas:
            self.lines.append(f"{stop}:")
            self.restore_threads()
            self.in_blas = True  # that block never goes on
            self.lines.append("br label %failed")
        self.lines.append(f"{after}:")

    def copy(self, target: str, source: str, nbytes: int | Size) -> None:
        """Copies so many bytes from one address to another."""
        memcpy = "llvm.memcpy.p0.p0.i64"
        self.module.declare(memcpy, f"declare void @{memcpy}(ptr, ptr, i64, i1)")
        self.lines.append(
            f"call void @{memcpy}(ptr {target}, ptr {source}, "
            f"i64 {self.size(nbytes)}, i1 false)"
        )


class Driver:
    """Prints the steps of one plan into a function.

    `pointers` are registers with the addresses of its inputs, outputs and arena; those
    of a plan that no other one holds are loaded from what the function is called with.
    """

    def __init__(
        self, plan: Plan, function: Function, pointers: dict[Place, str]
    ) -> None:
        self.plan = plan
        self.function = function
        self.pointers = pointers

    def run(self) -> None:
        """Prints all steps."""
        for step in self.plan.steps:
            self.step(step)

    def step(self, step: Step) -> None:
        """Prints one step."""
        match step:
            case KernelStep(kernel, buffers):
                pointers = [self.pointer(place) for place in buffers]
                call = call_text(self.kernel(kernel), pointers)
                self.function.lines.append(call)
            case MatmulStep():
                self.matmul(step)
            case CopyStep(out, source, nbytes):
                if out != source and nbytes != 0:
                    ends = self.pointer(out), self.pointer(source)
                    self.function.copy(*ends, nbytes)
            case HostStep() if is_native(step):
                self.lapack(step)
            case HostStep() if fft.is_native(step):
                self.fourier(step)
            case HostStep(inputs=inputs, outputs=outputs):
                places = [x for x in inputs if isinstance(x, Place)]
                operands = [self.pointer(place) for place in (*places, *outputs)]
                self.function.host(step, operands)
            case ForeignStep():
                self.foreign(step)
            case BranchStep() | LoopStep():
                self.flow(step)

    def foreign(self, step: ForeignStep) -> None:
        """A kernel of the user's: a call of the address where it is, or of Python."""
        cpu, host = step.code.cpu, step.host
        if cpu is None:
            raise step.code.missing("cpu")
        if not isinstance(cpu, Native):
            self.step(host)
            return
        self.function.restore_threads()
        places = (*host.inputs, *host.outputs)
        pointers = [self.pointer(x) for x in places if isinstance(x, Place)]
        sizes = [size for type in host.input_types for size in type.shape]
        counts = map(self.function.size, sizes)
        given = [*[f"ptr {x}" for x in pointers], *[f"i64 {n}" for n in counts]]
        callee = f"inttoptr (i64 {cpu.address} to ptr)"
        self.function.lines.append(f"call void {callee}({', '.join(given)})")

    def flow(self, step: BranchStep | LoopStep) -> None:
        """A branch or a loop; BLAS is told once what its products need."""
        held = [s for plan in held_plans(step) for s in all_steps(plan)]
        if any(_calls_blas(s) for s in held):
            self.function.one_blas_thread()
        if isinstance(step, LoopStep) and is_tight(step) and not self.function.is_tight:
            self.tight(step)
            return
        before = self.function.in_loop
        self.function.in_loop = before or isinstance(step, LoopStep)
        print_flow(self, step)
        self.function.in_loop = before

    def tight(self, step: LoopStep) -> None:
        """A loop of few instructions, in a function of its own."""
        outer = self.function
        inner = Function(outer.behind, outer.label("loop"), outer)
        places = loop_places(step)
        array = outer.array(len(places) + 1)
        registers = {}
        for number, place in enumerate(places):
            outer.put(array, number, self.pointer(place))
            registers[place] = f"%operand{number}"
            inner.lines += _loaded(registers[place], "%operands", number)
        if looks(step):
            outer.put(array, len(places), outer.common_deadline())
            inner.deadline = "%deadline"
            inner.lines += _loaded(inner.deadline, "%operands", len(places))
        print_flow(Driver(self.plan, inner, registers), step)
        inner.module.define(inner.text())
        outer.module.declare(inner.name, f"declare i32 @{inner.name}(ptr, ptr)")
        outer.checked(f"@{inner.name}(ptr %pointers, ptr {array})")

    def held(self, plan: Plan, pointers: dict[Place, str]) -> None:
        """Prints a held plan; BLAS uses as many threads after it as before it."""
        before = self.function.in_blas
        Driver(plan, self.function, pointers).run()
        if before:
            self.function.one_blas_thread()
        else:
            self.function.restore_threads()

    def kernel(self, kernel: Kernel) -> str:
        """The function of a kernel, which threads share where that pays."""
        shared = shares(kernel) if has_pool() else {}
        if shared:
            self.function.symbols.add(RUN)
        return self.function.module.add(kernel, shared, not self.function.in_loop)

    def pointer(self, place: Place) -> str:
        """The SSA name of a place's address, loaded once, at its first use."""
        found = self.pointers.get(place)
        if found is None:
            number = self.function.number()
            found = self.pointers[place] = f"%p{number}"
            if place.role == "arena":
                arena = self.pointer(BASE)
                self.function.lines.append(
                    f"{found} = getelementptr i8, ptr {arena}, "
                    f"i64 {self.function.size(place.index)}"
                )
            else:
                loaded = _loaded(found, "%pointers", self.slot(place))
                self.function.lines += loaded
        return found

    def slot(self, place: Place) -> int:
        """The position of a place's address among the pointers."""
        inputs, buffers = len(self.plan.inputs), len(self.plan.buffers)
        first = {"input": 0, "output": inputs, "base": inputs + buffers}
        return first[place.role] + place.index

    def matmul(self, step: MatmulStep) -> None:
        """The pieces of matrix products, which threads share where there are many."""
        function = self.function
        if _calls_blas(step):
            function.one_blas_thread()
        if function.operands is None:
            function.operands = function.array(3)
        operands = function.operands
        for number, place in enumerate((step.out, step.x, step.y)):
            function.put(operands, number, self.pointer(place))
        name, (rounds, chunk) = self.product(step), rounds_and_chunk(step.product)
        self.rounds(name, operands, rounds, chunk, _calls_blas(step))

    def rounds(
        self,
        name: str,
        context: str,
        count: int | Size,
        chunk: int | Size,
        blas: bool,
    ) -> None:
        """Calls a function for so many rounds; threads take a chunk of them each.

        If it calls `blas`, that must be one which can be told to use one thread.
        """
        some, few = self.function.size(count), surely_at_most(count, chunk)
        if not few and has_pool() and (not blas or has_set_threads()):
            self.function.external(RUN, "void", "ptr, ptr, i64, i64")
            ends = f"i64 {some}, i64 {self.function.size(chunk)}"
            call = f"@{RUN}(ptr @{name}, ptr {context}, {ends})"
        else:
            call = f"@{name}(ptr {context}, i64 0, i64 {some})"
        self.function.lines.append(f"call void {call}")

    def lapack(self, step: HostStep) -> None:
        """The matrices of a stack, one after the other; threads share large stacks."""
        function = self.function
        function.one_blas_thread()
        places = [x for x in step.inputs if isinstance(x, Place)]
        operands = [self.pointer(place) for place in (*places, *step.outputs)]
        context = function.array(len(operands))
        for number, pointer in enumerate(operands):
            function.put(context, number, pointer)
        name = self.routine(step)
        self.rounds(name, context, matrices(step), chunk(step), True)

    def fourier(self, step: HostStep) -> None:
        """The calls of a Fourier transform, which threads share."""
        function, calls = self.function, fft.calls(step)
        for call in calls.calls:
            context = function.array(len(call.numbers))
            for place, number in enumerate(call.numbers):
                if isinstance(number, Place) and number.role == fft.TEMPORARY.role:
                    memory = function.behind_arena(calls.nbytes)
                    function.put(context, place, function.at(memory, number.index))
                elif isinstance(number, Place):
                    function.put(context, place, self.pointer(number))
                elif isinstance(number, fft.Table):
                    function.put(context, place, self.table(number))
                else:
                    function.put_number(context, place, number)
            name = function.external(call.function, "void", "ptr, i64, i64")
            self.rounds(name[1:], context, call.rounds, call.chunk, False)

    def table(self, table: fft.Table) -> str:
        """A place in a table of roots that the module is linked with."""
        function = self.function
        function.symbols.add(table.name)
        declared = f"@{table.name} = external global i8"
        function.module.declare(table.name, declared)
        return function.at(f"@{table.name}", table.offset)

    def routine(self, step: HostStep) -> str:
        """The function of a routine of LAPACK; equal ones share it."""
        function = self.function
        params = tuple(sorted(step.params.items()))
        key = step.primitive, params, step.input_types
        name = function.routines.get(key)
        if name is None:
            name = function.routines[key] = f"lapack{len(function.routines)}"
            for symbol, text in DECLARATIONS.items():
                function.module.declare(symbol, text)
            text = routine_text(step, name, self.constant, function.external)
            function.module.define(text, brief=True)
        return name

    def product(self, step: MatmulStep) -> str:
        """The function of a product; equal products share one."""
        key = dataclasses.replace(step, out=_ANY, x=_ANY, y=_ANY)
        function, products = self.function, self.function.products
        name = products.get(key)
        if name is None:
            name = products[key] = f"product{len(products)}"
            symbol, parameters = routine(step)
            function.external(symbol, "void", parameters)
            for bound in ("umin", "smax"):
                declared = f"declare i64 @llvm.{bound}.i64(i64, i64)"
                function.module.declare(f"llvm.{bound}.i64", declared)
            numbers = Numbers(function.module)
            text = product_text(step, name, self.constant, numbers)
            function.module.define(text, brief=True)
        return name

    def constant(self, type_: str, value: str) -> str:
        """The name of a constant in memory: Fortran takes everything by address."""
        name = "c_" + "".join(c if c.isalnum() else "_" for c in f"{type_}_{value}")
        text = f"@{name} = private constant {type_} {value}"
        self.function.module.declare(name, text)
        return f"@{name}"


_ANY = Place("any", 0)


def _calls_blas(step: Step) -> bool:
    if isinstance(step, MatmulStep):
        return not is_own(step)
    return isinstance(step, HostStep) and is_native(step)


def _loaded(name: str, array: str, slot: int) -> list[str]:
    address = f"{name}.a"
    return [
        f"{address} = getelementptr ptr, ptr {array}, i64 {slot}",
        f"{name} = load ptr, ptr {address}",
    ]
