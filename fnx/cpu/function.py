"""Functions of a plan while they are printed: lines, and what all of a plan share.

A `Function` has the instructions of the plan's function, of a tight loop, or of what
threads do of a loop; memory on the stack and behind the arena; and whether BLAS is told
to use one thread. `driver.py`, next on the walk, prints the steps into it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from fnx.cpu.emit import Module
from fnx.cpu.library import BLAS_BEGIN, BLAS_END, has_set_threads
from fnx.cpu.llvm import Numbers
from fnx.runtime.plan import HostStep, MatmulStep, Plan
from fnx.sizes import Size

Hosted = HostStep | Exception
"""What Python does for a plan: a step, or an error that it raises."""


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
    of its own; its pointers are in memory at `%operands`. So has the `part` of a loop
    that the thread pool calls, in the same module: there nothing calls Python, and no
    step is shared again. `deadline` is the address of when to look for signals, which
    all loops of a call share.
    """

    def __init__(
        self,
        behind: Behind,
        name: str = "run",
        around: Function | None = None,
        part: bool = False,
    ) -> None:
        self.behind = behind
        self.name = name
        self.is_part = part
        self.is_tight = around is not None and not part
        self.in_part: bool = part or (around is not None and around.in_part)
        self.module = Module()
        self.symbols: set[str] = set()
        self.hosts: list[Hosted] = []
        self.products: dict[MatmulStep, str] = {}
        self.routines: dict[Hashable, str] = {}
        if around is not None:
            self.symbols, self.hosts = around.symbols, around.hosts
        if around is not None and part:
            self.module, self.products = around.module, around.products
        elif around is not None:
            around.module.add_tight(self.module)
        self.allocated: list[str] = []
        self.lines: list[str] = []
        self.numbers = 0
        self.operands: str | None = None  # memory for those of a product
        self.temporary: str | None = None
        self.in_blas = part  # whether BLAS is told to use one thread
        self.in_loop = around is not None  # whether what is printed may run often
        self.deadline: str | None = None
        self.given = Numbers(self.module)

    def text(self) -> str:
        """The whole function."""
        body = "\n".join(f"  {line}" for line in (*self.allocated, *self.lines))
        if self.is_part:
            parameters = "ptr %operands, i64 %begin, i64 %end"
            head = f"define internal void @{self.name}({parameters}) {{"
            last = "  ret void\n}"
        else:
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

    def inner(self, what: str) -> str:
        """The name of a function that this one calls."""
        own = self.label(what)
        return own if self.name == "run" else f"{self.name}_{own}"

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
            self.allocated += loaded("%arena.begin", "%pointers", self.behind.slot)
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


def loaded(name: str, array: str, slot: int) -> list[str]:
    """The instructions that load a pointer of an array into a register."""
    address = f"{name}.a"
    return [
        f"{address} = getelementptr ptr, ptr {array}, i64 {slot}",
        f"{name} = load ptr, ptr {address}",
    ]
