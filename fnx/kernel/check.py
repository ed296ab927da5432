"""The checker of kernels: raises `InternalError` where one breaks an invariant.

Every value is computed before it is used and in a loop that encloses the use, offsets
lie inside their buffers where ranges tell, dtypes agree with the scalar table, loops do
not repeat an index, and folds are carried by exactly the loops of their indices.
Receives a `Kernel`, gives it back; next on the walk: `printer.py`.
"""

from __future__ import annotations

from fnx import dtypes
from fnx.dtypes import short
from fnx.errors import InternalError
from fnx.kernel import scalar
from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    IndexExpr,
    Load,
    LoopIndex,
    Op,
    Part,
    Scan,
    is_trivial,
    terms_of,
)
from fnx.kernel.ir import (
    LOCAL,
    Eval,
    Kernel,
    Launch,
    Loop,
    Recall,
    Run,
    Sort,
    Stmt,
    Store,
    loops,
)
from fnx.kernel.printer import kernel_text
from fnx.sizes import Size, surely_at_most, surely_below


def check_kernel(kernel: Kernel) -> Kernel:
    """The kernel itself, after every invariant has been found to hold."""
    checker = _Checker(kernel)
    checker.body(kernel.body, frozenset(), ())
    for each in kernel.launches:
        if isinstance(each, Sort):
            checker.sort(each)
        else:
            checker.launch(each)
    return kernel


class _Checker:
    """Walks the statements with the set of what has been computed so far."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.kept: dict[Buffer, tuple[Store, tuple[Loop, ...]]] = {}
        self.indices: frozenset[LoopIndex] = frozenset()  # of the launch
        self.sorted: set[Buffer] = set()
        every = kernel.buffers + kernel.locals
        self.require(
            len({buffer.name for buffer in every}) == len(every),
            "two buffers have the same name",
        )

    def require(self, holds: bool, reason: str) -> None:
        if not holds:
            text = kernel_text(self.kernel)
            raise InternalError(f"kernel {self.kernel.name!r}: {reason}\n{text}")

    def launch(self, launch: Launch) -> None:
        """Check one launch, which knows nothing but its indices and what is stored."""
        whole = launch.threads == 1 or launch.threads % 32 == 0
        self.require(whole and launch.threads <= 1024, "a group is not made of warps")
        if launch.width > 1:
            even = launch.indices[-1].extent % launch.width == 0
            self.require(even and launch.threads == 1, "lanes beyond the last index")
        shared = any(loop.spread for loop in loops(launch.body))
        self.require(not shared or launch.threads > 1, "one thread shares a loop")
        self.indices = frozenset[LoopIndex](launch.indices)
        self.body(launch.body, frozenset(launch.indices), ())

    def sort(self, sort: Sort) -> None:
        """Check a sort, after which what it stores may be read."""
        ends = sort.keys, sort.ordered, sort.places
        for buffer in ends:
            self.buffer(buffer, "in")
            apart = buffer.role == "local" and dtypes.is_integer(buffer.dtype)
            self.require(apart, f"{buffer.name} is no memory for a sort")
        self.require(sort.keys in self.kept, "a sort of what nobody has stored")
        alike = {buffer.size for buffer in ends} == {sort.keys.size}
        same = sort.keys.dtype is sort.ordered.dtype
        self.require(alike and same, "a sort of other sizes or dtypes")
        self.sorted |= {sort.ordered, sort.places}

    def body(
        self, body: tuple[Stmt, ...], known: frozenset[Expr], loops: tuple[Loop, ...]
    ) -> frozenset[Expr]:
        """Check statements in order; gives what is known after them."""
        for stmt in body:
            match stmt:
                case Eval():
                    self.eval(stmt.expr, known)
                    if isinstance(stmt.expr, Scan):
                        self.carriers(stmt.expr, loops)
                    known |= {stmt.expr}
                case Store():
                    self.store(stmt, known)
                    if stmt.buffer.role in LOCAL:
                        self.keep(stmt, loops)
                case Recall():
                    self.recall(stmt, known, loops)
                    known |= {stmt.expr}
                case Loop():
                    known |= self.loop(stmt, known, loops)
        return known

    def loop(
        self, loop: Loop, known: frozenset[Expr], loops: tuple[Loop, ...]
    ) -> frozenset[Expr]:
        """Check a loop; gives the folds that are complete after it."""
        fixed = not isinstance(loop.extent, Size)
        self.require(not fixed or loop.extent > 1, f"a loop of extent {loop.extent!r}")
        if loop.width > 1:
            self.require(
                all(outer.width == 1 for outer in loops), "nested vector loops"
            )
            fits = not fixed or loop.width <= loop.extent
            self.require(fits, "a vector wider than its loop")
            self.require(fixed or not loop.overlaps, "perhaps fewer rounds than lanes")
        self.require(loop.width > 1 or not loop.overlaps, "overlaps without lanes")
        bare = loop.width == 1 and not loop.carried
        self.require(bare or not loop.across, "a loop across lanes has more to do")
        if loop.run is not None:
            self.run(loop, loop.run, known)
        for carried in loop.carried:
            self.require(loop.index in carried.indices, "a loop carries a foreign fold")
        chain = (*loops, loop)
        inside = self.body(loop.body, self.entered(loop, known), chain)
        nested = {f for s in loop.body if isinstance(s, Loop) for f in s.carried}
        for fold in loop.folds:
            if fold not in nested:
                self.fold(fold, inside, chain)
        for scan in loop.scans:
            serial = loop.width == 1 or loop.spread
            self.require(serial, "a scan has lanes along its own loop")
            if scan not in nested:
                self.carriers(scan, chain)
                self.known(scan, inside)
        begun = {fold for outer in loops for fold in outer.folds}
        return frozenset(fold for fold in loop.folds if fold not in begun)

    def run(self, loop: Loop, run: Run, known: frozenset[Expr]) -> None:
        """Check a loop over a run of sorted keys, which combines with one element."""
        self.require(run.keys in self.sorted, f"{run.keys.name} is not sorted")
        self.require(run.keys.size == loop.extent, "a run of other keys")
        self.require(loop.width == 1 and not loop.carried, "a run has lanes or folds")
        for atom, _ in terms_of(run.start)[0]:
            self.known(atom, known)
        stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
        steady = all(
            store.combine and loop.index not in store.offset.free and not store.mask
            for store in stores
        )
        self.require(steady and bool(stores), "a run does more than to combine")

    def entered(self, loop: Loop, known: frozenset[Expr]) -> frozenset[Expr]:
        """What is known inside a loop: not what an outer loop of its index computed."""
        kept = (expr for expr in known if loop.index not in expr.free)
        return frozenset((*kept, loop.index))

    def fold(self, fold: Fold, known: frozenset[Expr], loops: tuple[Loop, ...]) -> None:
        """The innermost loop of a fold: its bodies are there, and all of its loops."""
        self.carriers(fold, loops)
        for body in fold.bodies:
            self.known(body, known)
        if fold.combine.startswith("arg"):
            self.require(
                len(fold.bodies) == 2 and dtypes.is_integer(fold.bodies[1].dtype),
                f"{fold.combine} needs a value and a position",
            )

    def carriers(self, fold: Fold | Scan, loops: tuple[Loop, ...]) -> None:
        """The loops that carry a fold or a scan are the inner ones, and all of its."""
        carriers = [loop.index for loop in loops if fold in loop.carried]
        innermost = [loop.index for loop in loops[-len(carriers) :]]
        self.require(
            carriers == innermost == list(fold.indices),
            f"a fold by {fold.combine} is not carried by the loops of its indices",
        )

    def known(self, expr: Expr, known: frozenset[Expr]) -> None:
        if isinstance(expr, Part):
            expr = expr.fold
        elif isinstance(expr, LoopIndex):
            self.require(expr in known, f"loop index {expr.tag} is out of scope")
        elif is_trivial(expr):
            return
        what = f"{type(expr).__name__}: {short(expr.dtype)}"
        self.require(expr in known, f"a value ({what}) is used before it is computed")

    def eval(self, expr: Expr, known: frozenset[Expr]) -> None:
        self.require(not is_trivial(expr), "a trivial expression has a statement")
        self.require(expr not in known, "a value is computed twice")
        for child in expr.children:
            self.known(child, known)
        match expr:
            case Op():
                self.op(expr)
            case Load():
                self.buffer(expr.buffer, "out")
                if expr.buffer.role in LOCAL:
                    there = expr.buffer in self.kept or expr.buffer in self.sorted
                    self.require(there, f"nothing is kept in {expr.buffer.name}")
                if expr.mask is None:
                    self.offset(expr.buffer, expr.offset)
                else:
                    self.is_bool(expr.mask)

    def op(self, op: Op) -> None:
        row = scalar.TABLE[op.name]
        self.require(row.llvm is not None, f"{op.name} has not been expanded")
        self.require(len(op.args) == row.arity, f"{op.name} has {row.arity} operands")
        types = [arg.dtype for arg in op.args]
        if op.name == "select":
            self.is_bool(op.args[0])
            types = types[1:]
        given = ", ".join(map(short, types))
        alike = len(set(types)) == 1 and types[0] in row.dtypes
        self.require(alike, f"{op.name}({given}) is not in the scalar table")
        if op.name not in ("convert", "bitcast"):
            right = row.result(tuple(types)) is op.dtype
            self.require(right, f"{op.name}({given}) does not give {short(op.dtype)}")

    def store(self, store: Store, known: frozenset[Expr]) -> None:
        self.buffer(store.buffer, "in")
        self.known(store.offset, known)
        self.known(store.value, known)
        same = store.value.dtype is store.buffer.dtype
        self.require(same, f"a store into {store.buffer.name} has another dtype")
        if store.mask is None:
            self.offset(store.buffer, store.offset)
        else:
            self.known(store.mask, known)
            self.is_bool(store.mask)

    def keep(self, store: Store, loops: tuple[Loop, ...]) -> None:
        """A local buffer keeps one value, plainly; more may be combined with it."""
        whole = store.mask is None and (not store.combine or store.buffer in self.kept)
        self.require(whole, f"{store.buffer.name} does not keep every element")
        if store.combine:
            return
        if self.kernel.launches and store.buffer.role != "row":
            self.kept.setdefault(store.buffer, (store, loops))  # each a part of it
            return
        self.require(
            store.buffer not in self.kept, f"{store.buffer.name} keeps two values"
        )
        self.kept[store.buffer] = store, loops

    def recall(
        self, stmt: Recall, known: frozenset[Expr], loops: tuple[Loop, ...]
    ) -> None:
        """What is recalled has been kept, by loops that have ended since."""
        self.require(stmt.expr not in known, "a value is computed twice")
        self.known(stmt.offset, known)
        self.require(stmt.buffer in self.kept, f"nothing is kept in {stmt.buffer.name}")
        store, keepers = self.kept[stmt.buffer]
        same = store.value is stmt.expr and store.offset is stmt.offset
        self.require(same, f"{stmt.buffer.name} keeps something else")
        ended = {loop.index for loop in keepers if loop not in loops}
        around = self.indices.union(loop.index for loop in keepers if loop in loops)
        self.require(
            ended == stmt.offset.free and stmt.expr.free <= ended | around,
            f"{stmt.buffer.name} does not hold all values yet, or no more",
        )

    def buffer(self, buffer: Buffer, forbidden: str) -> None:
        every = self.kernel.buffers + self.kernel.locals
        self.require(buffer in every, f"unknown buffer {buffer.name}")
        self.require(
            buffer.role != forbidden, f"buffer {buffer.name} is {buffer.role} only"
        )

    def offset(self, buffer: Buffer, offset: IndexExpr) -> None:
        lo, hi = offset.range
        self.require(
            surely_at_most(0, lo) and surely_below(hi, buffer.size),
            f"offset in {lo!r}..{hi!r} of buffer {buffer.name} with {buffer.size!r} "
            "elements",
        )

    def is_bool(self, expr: Expr) -> None:
        self.require(expr.dtype is dtypes.bool_, "a mask or condition is not a bool")
