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
from typing import Any

from fnx.cpu import fft
from fnx.cpu.apart import Stretch, stretch
from fnx.cpu.emit import Module, call_text
from fnx.cpu.flow import BASE, is_tight, looks, loop_places, print_flow
from fnx.cpu.function import Behind, Function, Hosted, loaded
from fnx.cpu.grain import Share, shares
from fnx.cpu.lapack_table import (
    DECLARATIONS,
    chunk,
    is_native,
    matrices,
    routine_text,
)
from fnx.cpu.library import has_set_threads
from fnx.cpu.llvm import Numbers
from fnx.cpu.pool import RUN
from fnx.cpu.products import is_own, product_text, routine, shared_pieces
from fnx.cpu.python import define, has_clock
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
from fnx.sizes import surely_at_most


@record
class Printed:
    """The module of a plan, what it must be linked with, and its callbacks.

    Symbols are BLAS routines, `BLAS_BEGIN` and `BLAS_END`, the pool's `RUNS`, functions
    of Python's, and `SERVE`: the text holds no address, so that its machine code serves
    other processes too.
    """

    module: Module
    symbols: set[str]
    hosts: list[Hosted]
    arena: Any  # an int, or a formula where the plan is for many sizes


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
        blas = any(_calls_blas(s) for s in held)
        if blas:
            self.function.one_blas_thread()
        inside = self.function.in_part or self.function.is_tight
        if isinstance(step, LoopStep) and not inside and _has_threads(blas):
            share = stretch(step)
            if share is not None:
                self.apart(step, share)
                return
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
        inner = Function(outer.behind, outer.inner("loop"), outer)
        array, registers = self.handed(step, inner, 1)
        if looks(step) and not outer.in_part:
            outer.put(array, len(registers), outer.common_deadline())
            inner.deadline = "%deadline"
            inner.lines += loaded(inner.deadline, "%operands", len(registers))
        print_flow(Driver(self.plan, inner, registers), step)
        inner.module.define(inner.text())
        outer.module.declare(inner.name, f"declare i32 @{inner.name}(ptr, ptr)")
        call = f"@{inner.name}(ptr %pointers, ptr {array})"
        if outer.in_part:
            outer.lines.append(f"call i32 {call}")  # nothing in it fails
        else:
            outer.checked(call)

    def handed(
        self, step: LoopStep, inner: Function, more: int
    ) -> tuple[str, dict[Place, str]]:
        """Memory with the operands of a loop, and the registers that they are within.

        There is room for some more of them.
        """
        outer, places = self.function, loop_places(step)
        array = outer.array(len(places) + more)
        registers = {}
        for number, place in enumerate(places):
            outer.put(array, number, self.pointer(place))
            registers[place] = f"%operand{number}"
            inner.lines += loaded(registers[place], "%operands", number)
        return array, registers

    def apart(self, step: LoopStep, share: Stretch) -> None:
        """A loop whose rounds threads share, stretch after stretch."""
        outer = self.function
        inner = Function(outer.behind, outer.inner("part"), outer, part=True)
        array, registers = self.handed(step, inner, 4)
        count = len(registers)
        outer.put(array, count, "%pointers")
        outer.put(array, count + 1, outer.behind_arena(share.nbytes))
        outer.put_number(array, count + 2, (1 << share.arenas) - 1)
        inner.lines += loaded("%pointers", "%operands", count)
        inner.lines += loaded("%arenas", "%operands", count + 1)
        inner.lines += _taken_arena(count + 2, share.arena)
        inner.lines += [
            f"%first.a = getelementptr ptr, ptr %operands, i64 {count + 3}",
            "%first = load i64, ptr %first.a",
            "%from = add i64 %first, %begin",
            "%to = add i64 %first, %end",
        ]
        registers[step.scratch] = "%arena"
        print_flow(Driver(self.plan, inner, registers), step, ("%from", "%to"))
        inner.lines += [
            "%bit = shl i64 1, %number",
            "%given.back = atomicrmw or ptr %free.a, i64 %bit release",
        ]
        inner.module.declare("llvm.cttz.i64", "declare i64 @llvm.cttz.i64(i64, i1)")
        inner.module.declare("sched_yield", "declare i32 @sched_yield()")
        inner.module.define(inner.text(), brief=True)
        outer.external(RUN, "void", "ptr, ptr, i64, i64")
        self.stretches(step, share, f"ptr @{inner.name}, ptr {array}", array, count + 3)

    def stretches(
        self, step: LoopStep, share: Stretch, given: str, array: str, slot: int
    ) -> None:
        """Has the pool run all stretches; `slot` is where it finds the first round."""
        outer, name, length = self.function, self.function.label("apart"), step.length
        first = f"%{name}.first"
        outer.module.declare("llvm.umin.i64", "declare i64 @llvm.umin.i64(i64, i64)")
        outer.lines += [
            f"br label %{name}.enter",
            f"{name}.enter:",
            f"br label %{name}.head",
            f"{name}.head:",
            f"{first} = phi i64 [ 0, %{name}.enter ], [ {first}.next, %{name}.looked ]",
            f"{first}.at = getelementptr ptr, ptr {array}, i64 {slot}",
            f"store i64 {first}, ptr {first}.at",
            f"%{name}.left = sub i64 {length}, {first}",
            f"%{name}.here = call i64 @llvm.umin.i64("
            f"i64 %{name}.left, i64 {share.rounds})",
            f"call void @{RUN}({given}, i64 %{name}.here, i64 {share.chunk})",
            f"{first}.next = add i64 {first}, {share.rounds}",
            f"%{name}.more = icmp ult i64 {first}.next, {length}",
            f"br i1 %{name}.more, label %{name}.look, label %{name}.leave",
            f"{name}.look:",
        ]
        if has_clock():
            outer.look_for_signals()
        outer.lines += [
            f"br label %{name}.looked",
            f"{name}.looked:",
            f"br label %{name}.head",
            f"{name}.leave:",
        ]

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
        alone = self.function.in_part or not has_pool()
        shared = {} if alone else shares(kernel)
        self.function.symbols.update(share.run for share in shared.values())
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
                self.function.lines += loaded(found, "%pointers", self.slot(place))
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
        name, share = self.product(step), shared_pieces(step)
        self.rounds(name, operands, share, _calls_blas(step))

    def rounds(self, name: str, context: str, share: Share, blas: bool) -> None:
        """Calls a function for some rounds; threads take a chunk of them each.

        If it calls `blas`, that must be one which can be told to use one thread.
        """
        some = self.function.size(share.rounds)
        few = surely_at_most(share.rounds, share.chunk)
        if not few and not self.function.in_part and _has_threads(blas):
            run = self.function.external(share.run, "void", "ptr, ptr, i64, i64")
            ends = f"i64 {some}, i64 {self.function.size(share.chunk)}"
            call = f"{run}(ptr @{name}, ptr {context}, {ends})"
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
        self.rounds(name, context, Share(matrices(step), chunk(step)), True)

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
            self.rounds(name[1:], context, call.share, False)

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


def _taken_arena(slot: int, nbytes: int) -> list[str]:
    """Takes a free arena: the word at `slot` of the operands has a bit for each.

    There is one for each thread of the machine; if more are at work, some wait.
    """
    return [
        f"%free.a = getelementptr ptr, ptr %operands, i64 {slot}",
        "br label %seek",
        "seek:",
        "%free = load atomic i64, ptr %free.a monotonic, align 8",
        "%some = icmp ne i64 %free, 0",
        "br i1 %some, label %take, label %wait",
        "wait:",
        "call i32 @sched_yield()",
        "br label %seek",
        "take:",
        "%number = call i64 @llvm.cttz.i64(i64 %free, i1 true)",
        "%less = sub i64 %free, 1",
        "%others = and i64 %free, %less",
        "%pair = cmpxchg ptr %free.a, i64 %free, i64 %others acquire monotonic",
        "%won = extractvalue { i64, i1 } %pair, 1",
        "br i1 %won, label %mine, label %seek",
        "mine:",
        f"%arena.to = mul i64 %number, {nbytes}",
        "%arena = getelementptr i8, ptr %arenas, i64 %arena.to",
    ]


def _has_threads(blas: bool) -> bool:
    """Whether threads share what calls `blas`, which must do with one, or does not."""
    return has_pool() and (not blas or has_set_threads())


def _calls_blas(step: Step) -> bool:
    if isinstance(step, MatmulStep):
        return not is_own(step)
    return isinstance(step, HostStep) and is_native(step)
