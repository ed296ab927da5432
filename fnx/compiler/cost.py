"""What a plan costs to run: operations, bytes, and what of it nobody knows.

Counted are the statements of the kernels, round by round, so that a value that two
kernels compute counts twice and a fused one is not loaded: what the machine does, not
what the program says. Receives a `Plan`, gives `Cost`. Next on the walk: `pipeline.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fnx import dtypes
from fnx.compiler.step import (
    AttentionStep,
    BranchStep,
    ConvolutionStep,
    CopyStep,
    FollowedStep,
    ForeignStep,
    HostStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Plan,
    Step,
)
from fnx.core.layout import Matrices, Product
from fnx.core.types import ArrayType
from fnx.kernel.expr import Buffer, Expr, Fold, Load, Op, Scan
from fnx.kernel.ir import Eval, Kernel, Launch, Loop, Sort, Stmt, Store
from fnx.kernel.scalar import TABLE
from fnx.records import record


@record
class Cost:
    """What a plan does, each number as if it ran once.

    `operations` are those on floats, with which functions are computed too; `functions`
    is how many values of functions (`exp`, `sin`) they make. `nbytes` is what kernels
    and products read and write, in memory or caches. Loops whose number of rounds only
    the run tells are counted with one round; there are so many `unknown_loops`.
    `host_calls` are operations that run in Python, or by code of the user's, whose
    operations are not counted.
    Of a branch, the costliest of each number counts.
    """

    operations: float = 0
    functions: float = 0
    nbytes: float = 0
    unknown_loops: int = 0
    host_calls: float = 0

    def __add__(self, other: Cost) -> Cost:
        return _total([self, other])

    def times(self, rounds: float) -> Cost:
        """The cost of so many rounds; a loop in it is still one loop."""
        return Cost(
            self.operations * rounds,
            self.functions * rounds,
            self.nbytes * rounds,
            self.unknown_loops,
            self.host_calls * rounds,
        )


def plan_cost(plan: Plan) -> Cost:
    """The cost of running a plan once."""
    return _total([Cost(functions=plan.functions), *map(step_cost, plan.steps)])


def _total(costs: Iterable[Cost]) -> Cost:
    rows = [cost._values() for cost in costs]  # type: ignore[attr-defined]
    return Cost(*map(sum, zip(*rows, strict=True)))


def step_cost(step: Step) -> Cost:
    """The cost of running a step once."""
    match step:
        case KernelStep(kernel):
            return kernel_cost(kernel)
        case MatmulStep(dtype, product=product, out_dtype=out_dtype):
            each = 8 if dtype.kind == "c" else 2  # a product and a sum
            written = product.stack * product.m * product.n
            nbytes = _read(product) * dtype.itemsize + written * out_dtype.itemsize
            return Cost(each * product.work, nbytes=nbytes)
        case FollowedStep():
            return _total(map(step_cost, step.parts))
        case ConvolutionStep(dtype, convolved=c, out_dtype=out_dtype):
            made = c.groups * c.batch * c.places * c.outs
            nbytes = c.read * dtype.itemsize + made * out_dtype.itemsize
            each = 8 if dtype.kind == "c" else 2
            return Cost(each * c.work, nbytes=nbytes)
        case CopyStep(nbytes=nbytes):
            return Cost(nbytes=2 * nbytes)
        case HostStep(input_types=inputs, output_types=outputs):
            return Cost(nbytes=type_bytes([*inputs, *outputs]), host_calls=1)
        case ForeignStep(host=host):
            return step_cost(host)
        case AttentionStep(plan=plan):
            return plan_cost(plan)
        case BranchStep(branches=plans):
            rows = [plan_cost(plan)._values() for plan in plans]  # type: ignore[attr-defined]
            return Cost(*map(max, zip(*rows, strict=True)))
        case LoopStep():
            return _loop_cost(step)


def _read(product: Product) -> int:
    """The elements of both operands; of a matrix that several products take, once."""

    def count(matrices: Matrices) -> int:
        rows = zip(product.batch, matrices.strides, strict=True)
        return math.prod([size for size, stride in rows if stride])

    x, y = count(product.x) * product.m, count(product.y) * product.n
    return product.k * (x + y)


def _loop_cost(loop: LoopStep) -> Cost:
    body = plan_cost(loop.body)
    if loop.test is not None:
        body = _total([body, plan_cost(loop.test.plan)])
    known = loop.test is None and loop.count is None
    rounds = loop.length if known and loop.length is not None else 1
    return _total([body.times(rounds), Cost(unknown_loops=int(not known))])


def type_bytes(types: Iterable[ArrayType]) -> int:
    """The bytes of arrays of these types."""
    return sum(type.size * type.dtype.itemsize for type in types)


# ---------------------------------------------------------------- kernels


def kernel_cost(kernel: Kernel) -> Cost:
    """The cost of one run of a kernel.

    A buffer's bytes are those of the accesses, but of each element once: what is read
    again comes from a cache. A launch on a GPU runs its body for each combination of
    its indices, however many threads share that; what one launch keeps for a later one
    is written and read.
    """
    touched: dict[Buffer, float] = {}
    operations = _operations(kernel.body, 1, touched)
    for each in kernel.launches:
        match each:
            case Launch(indices, body):
                groups = math.prod([index.extent for index in indices])
                operations += _operations(body, groups, touched)
            case Sort():
                for buffer in (each.keys, each.ordered, each.places):
                    touched[buffer] = buffer.size
    kept = [b for b in kernel.locals if kernel.launches and b.role == "local"]
    nbytes = 0.0
    for buffer in (*kernel.buffers, *kept):
        elements = min(touched.get(buffer, 0), buffer.size)
        ways = 2 if buffer.role in ("inout", "local") else 1
        nbytes += ways * elements * buffer.dtype.itemsize
    return Cost(operations, nbytes=nbytes)


def _operations(
    body: tuple[Stmt, ...], rounds: int, touched: dict[Buffer, float]
) -> float:
    """The operations of statements that run so often; notes what they access."""
    total = 0.0
    for stmt in body:
        match stmt:
            case Eval(Load() as load):
                touched[load.buffer] = touched.get(load.buffer, 0) + rounds
            case Eval(Op() as op) if _is_float(op):
                total += rounds * TABLE[op.name].operations
            case Store(buffer, value=value, combine=combine):
                touched[buffer] = touched.get(buffer, 0) + rounds
                total += rounds if combine is not None and _is_float(value) else 0
            case Loop():
                # Runs of equal keys share the keys: each is in one of them.
                inner = rounds if stmt.run is not None else rounds * stmt.extent
                total += _operations(stmt.body, inner, touched)
                total += inner * sum(map(_combined, _own(stmt)))
    return total


def _own(loop: Loop) -> list[Fold | Scan]:
    """What is combined in the rounds of a loop, and not in those of one inside."""
    inside = {each for s in loop.body if isinstance(s, Loop) for each in s.carried}
    return [each for each in loop.carried if each not in inside]


def _combined(carried: Fold | Scan) -> int:
    """The operations of one round of a fold."""
    if carried.combine.startswith("arg"):
        return int(_is_float(carried.bodies[0]))
    return sum(map(_is_float, carried.bodies))


def _is_float(expr: Expr) -> bool:
    kinds = (expr.dtype, *(child.dtype for child in expr.children))
    return any(map(dtypes.is_float, kinds))
