"""Text of a kernel for people, and the key that equal kernels share.

In the text loops are `i0 i1 …` by depth, computed values `v0 v1 …` and folds `f0 f1 …`
in the order in which they appear; in the key all of them are numbers in that order.
Receives a `Kernel`; next on the walk: the backends, `fnx/cpu/emit.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fnx.dtypes import short
from fnx.kernel.expr import (
    AsIndex,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    Fold,
    IndexExpr,
    IndexValue,
    Inside,
    Linear,
    Load,
    LoopIndex,
    Mod,
    Op,
    Part,
    Scan,
    Terms,
    split_terms,
)
from fnx.kernel.ir import Eval, Kernel, Launch, Loop, Recall, Run, Sort, Stmt, Store

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|"}
_INFIX |= {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def kernel_text(kernel: Kernel) -> str:
    """The kernel as text: its buffers with types, then one statement a line."""
    every = kernel.buffers + kernel.locals
    width = max((len(b.name) for b in every), default=0)
    lines = [f"kernel {kernel.name}"]
    for buffer in every:
        type_ = f"{short(buffer.dtype)}[{buffer.size!r}]"
        lines.append(f"  {buffer.role:5} {buffer.name:{width}} : {type_}")
    names = {buffer: buffer.name for buffer in every}
    printer = _Printer(names)
    lines += printer.body(kernel.body, 1)
    for each in kernel.launches:
        if isinstance(each, Sort):
            lines.append("  " + printer.sort(each))
        else:
            lines += printer.launch(each, 1)
    return "\n".join(lines) + "\n"


def structural_key(
    buffers: Sequence[Buffer],
    body: tuple[Stmt, ...],
    launches: tuple[Launch | Sort, ...] = (),
) -> Hashable:
    """Equal for kernels that differ only in their names and those of their buffers."""
    types = tuple((buffer.dtype.num, buffer.role) for buffer in buffers)
    key = _Key(buffers)
    key.body(body)
    for each in launches:
        if isinstance(each, Sort):
            key.sort(each)
        else:
            key.launch(each)
    return types, tuple(key.parts)


class _Key:
    """Numbers expressions in the order of the statements and says what they are."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = {buffer: n for n, buffer in enumerate(buffers)}
        self.numbers: dict[Expr, int] = {}
        self.parts: list[Hashable] = []

    def body(self, body: tuple[Stmt, ...]) -> None:
        number, parts = self.number, self.parts
        for stmt in body:
            match stmt:
                case Eval():
                    parts.append(number(stmt.expr))
                case Store():
                    place = self.buffers[stmt.buffer], number(stmt.offset)
                    mask = None if stmt.mask is None else number(stmt.mask)
                    value = number(stmt.value), stmt.combine, mask
                    parts.append((*place, *value, stmt.apart, stmt.atomic))
                case Recall():
                    place = self.buffers[stmt.buffer], number(stmt.offset)
                    parts.append((*place, number(stmt.expr)))
                case Loop():
                    how = stmt.width, stmt.overlaps, stmt.across, stmt.spread
                    parts.append((number(stmt.index), *how))
                    if stmt.run is not None:
                        run = stmt.run
                        start = self.buffers[run.keys], number(run.start)
                        parts.append((*start, run.end, run.least, run.most))
                    self.body(stmt.body)
                    parts.append(tuple(number(fold) for fold in stmt.carried))

    def launch(self, launch: Launch) -> None:
        self.parts.append(tuple(self.number(index) for index in launch.indices))
        self.parts.append((launch.threads, launch.width))
        self.body(launch.body)

    def sort(self, sort: Sort) -> None:
        ends = (sort.keys, sort.ordered, sort.places)
        self.parts.append((tuple(self.buffers[buffer] for buffer in ends), sort.bits))

    def number(self, expr: Expr) -> int:
        found = self.numbers.get(expr)
        if found is None:
            children = tuple([self.number(child) for child in expr.children])
            found = self.numbers[expr] = len(self.numbers)
            self.parts.append((type(expr), expr.dtype.num, children, self.own(expr)))
        return found

    def own(self, expr: Expr) -> Hashable:
        """What an expression is beside its type and children."""
        match expr:
            case Op():
                return expr.name
            case Const():
                return str(expr.value)  # tells zeros apart, and NaN equals itself
            case Load():
                return self.buffers[expr.buffer]
            case Linear():
                return tuple(c for _, c in expr.terms), expr.offset
            case LoopIndex() | Inside():
                return expr.extent
            case FloorDiv() | Mod():
                return expr.divisor
            case AsIndex():
                return expr.lo, expr.hi
            case Part():
                return expr.number
            case Fold() | Scan():
                return expr.combine, tuple(self.number(i) for i in expr.indices)
        return None


class _Printer:
    """Names expressions as it meets the statements that compute them."""

    def __init__(self, buffers: dict[Buffer, str]) -> None:
        self.buffers = buffers
        self.names: dict[Expr, str] = {}
        self.sums: dict[Terms, str] = {}
        self.values = 0
        self.folds = 0
        self.loops: list[LoopIndex] = []

    def body(self, body: tuple[Stmt, ...], indent: int) -> list[str]:
        space = "  " * indent
        lines = []
        for stmt in body:
            match stmt:
                case Eval():
                    text = self.definition(stmt.expr)
                    lines.append(space + self.named(stmt.expr, text))
                case Recall():
                    text = f"{self.buffers[stmt.buffer]}[{self.use(stmt.offset)}]"
                    lines.append(space + self.named(stmt.expr, text))
                case Store():
                    lines.append(space + self.store(stmt))
                case Loop():
                    lines += self.loop(stmt, indent)
        return lines

    def named(self, expr: Expr, text: str) -> str:
        """The statement that gives a value a name."""
        name = f"v{self.values}"
        self.values += 1
        self.names[expr] = name
        if isinstance(expr, Linear) and expr.offset == 0:
            self.sums[expr.terms] = name
        type_ = "index" if isinstance(expr, IndexExpr) else short(expr.dtype)
        return f"{name}: {type_} = {text}"

    def store(self, store: Store) -> str:
        target = f"{self.buffers[store.buffer]}[{self.use(store.offset)}]"
        value = self.use(store.value)
        how = "=" if store.combine is None else f"= {store.combine} with"
        text = f"{target} {how} {value}" + " atomically" * store.atomic
        return text if store.mask is None else f"if {self.use(store.mask)}: {text}"

    def loop(self, loop: Loop, indent: int) -> list[str]:
        index = self.names[loop.index] = f"i{len(self.loops)}"
        self.loops.append(loop.index)
        step = f" by {loop.width}" if loop.width > 1 else ""
        step += " across" if loop.across else ""
        step += " spread" if loop.spread else ""
        if loop.run is not None:
            step += self.run(loop.run)
        new = [fold for fold in loop.folds if fold not in self.names]
        for fold in new:
            self.names[fold] = f"f{self.folds}"
            self.folds += 1
        lines = ["  " * indent + f"for {index} in 0..{loop.extent!r}{step}:"]
        outside = self.names, self.sums
        self.names, self.sums = dict(self.names), dict(self.sums)
        lines += self.body(loop.body, indent + 1)
        nested = {f for s in loop.body if isinstance(s, Loop) for f in s.folds}
        for fold in loop.folds:
            if fold not in nested:
                bodies = ", ".join(self.use(body) for body in fold.bodies)
                types = ", ".join(short(body.dtype) for body in fold.bodies)
                update = f"{self.names[fold]}: {types} = {fold.combine} over {bodies}"
                lines.append("  " * (indent + 1) + update)
        self.loops.pop()
        self.names, self.sums = outside
        return lines

    def launch(self, launch: Launch, indent: int) -> list[str]:
        shown = list[str]()
        for index in launch.indices:
            name = self.names[index] = f"i{len(self.loops)}"
            self.loops.append(index)
            shown.append(f"{name} in 0..{index.extent!r}")
        step = f" by {launch.width}" if launch.width > 1 else ""
        where = f" for {', '.join(shown)}{step}" if shown else ""
        head = f"launch{where}, {launch.threads} threads each:"
        outside = self.names, self.sums
        self.names, self.sums = dict(self.names), dict(self.sums)
        lines = ["  " * indent + head, *self.body(launch.body, indent + 1)]
        self.loops.clear()
        self.names, self.sums = outside
        return lines

    def run(self, run: Run) -> str:
        least = f" of at least {run.least}" if run.least > 1 else ""
        most = "" if run.most is None else f" of at most {run.most}"
        start, keys = self.use(run.start), self.buffers[run.keys]
        return f" in the run{least}{most} of {keys} that begins at {start}"

    def sort(self, sort: Sort) -> str:
        ends = [self.buffers[x] for x in (sort.ordered, sort.places, sort.keys)]
        return "{}, {} = sort {} by {} bits".format(*ends, sort.bits)

    def use(self, expr: Expr) -> str:
        """The name of what was computed, or the text of what is trivial."""
        if isinstance(expr, Part):
            return self.part(expr)
        return self.names.get(expr) or self.definition(expr)

    def part(self, part: Part) -> str:
        name = self.names[part.fold]
        return name if len(part.fold.bodies) == 1 else f"{name}.{part.number}"

    def definition(self, expr: Expr) -> str:
        match expr:
            case Op():
                return self.op(expr)
            case Const():
                return str(expr.value)
            case Load():
                return self.load(expr)
            case Linear():
                return self.linear(expr)
            case LoopIndex():
                return f"<{expr.tag}>"
            case FloorDiv():
                return f"{self.group(expr.index)} // {expr.divisor!r}"
            case Mod():
                return f"{self.group(expr.index)} % {expr.divisor!r}"
            case AsIndex():
                return f"index {self.use(expr.value)} in {expr.lo!r}..{expr.hi!r}"
            case IndexValue():
                return f"value {self.use(expr.index)}"
            case Inside():
                return f"0 <= {self.use(expr.index)} < {expr.extent!r}"
            case Fold():
                return f"{expr.combine} fold"
            case Scan():
                return f"{expr.combine} over {self.use(expr.bodies[0])} so far"
        return type(expr).__name__

    def group(self, index: IndexExpr) -> str:
        text = self.use(index)
        return text if " " not in text else f"({text})"

    def linear(self, linear: Linear) -> str:
        outer, terms = split_terms(linear.terms, self.loops)
        name = self.sums.get(outer)
        parts = [] if name is None else [name]
        for atom, c in linear.terms if name is None else terms:
            parts.append(self.use(atom) if c == 1 else f"{self.use(atom)}*{c!r}")
        if linear.offset != 0 or not parts:
            parts.append(str(linear.offset))
        return " + ".join(parts).replace("+ -", "- ")

    def load(self, load: Load) -> str:
        text = f"{self.buffers[load.buffer]}[{self.use(load.offset)}]"
        return text if load.mask is None else f"{text} if {self.use(load.mask)} else 0"

    def op(self, op: Op) -> str:
        args = [self.use(arg) for arg in op.args]
        if op.name in _INFIX and len(args) == 2:
            return f"{args[0]} {_INFIX[op.name]} {args[1]}"
        return f"{op.name}({', '.join(args)})"
