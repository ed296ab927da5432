"""What takes memory in a program: the table in an out-of-memory error.

Receives a plan; gives rows for its largest steps, and the text of the table.
Next on the walk: `interop.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fnx.records import record
from fnx.runtime.plan import (
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
from fnx_cuda.memory import readable

_ROWS = 8


@record
class Row:
    """The largest value of a step: its bytes, what the step is, the scope around it."""

    nbytes: int
    what: str
    scope: str


def largest(plan: Plan) -> tuple[Row, ...]:
    """Rows for the steps with the largest values, the largest first."""
    scopes = plan.scopes or ("",) * len(plan.steps)
    rows = [
        Row(nbytes, what, scope)
        for step, scope in zip(plan.steps, scopes, strict=True)
        for nbytes, what in _values(step)
    ]
    return tuple(sorted(rows, key=lambda row: -row.nbytes)[:_ROWS])


def usage_text(plan: Plan, rows: tuple[Row, ...]) -> str:
    """The table of a program's memory."""
    inputs = sum(type.size * type.dtype.itemsize for type in plan.inputs)
    outputs = sum(type.size * type.dtype.itemsize for type in plan.buffers)
    lines = [
        f"The program has inputs of {readable(inputs)}, outputs of "
        f"{readable(outputs)} and an arena of {readable(plan.arena)}. "
        "Its largest values:"
    ]
    for row in rows:
        inside = f"  in {row.scope}" if row.scope else ""
        lines.append(f"  {readable(row.nbytes):>11}  {row.what}{inside}")
    return "\n".join(lines)


def _values(step: Step) -> Iterator[tuple[int, str]]:
    """The largest value of a step, with what the step is."""
    match step:
        case KernelStep(kernel):
            sizes = [buffer.size * buffer.dtype.itemsize for buffer in kernel.buffers]
            if sizes:
                yield max(sizes), kernel.name
        case MatmulStep(dtype, product=p, out_dtype=out_dtype):
            one = max(p.m * p.k, p.k * p.n) * dtype.itemsize
            name = f"product {p.stack}×{p.m}×{p.n}×{p.k}"
            yield p.stack * max(one, p.m * p.n * out_dtype.itemsize), name
        case FollowedStep():
            for each in step.parts:
                yield from _values(each)
        case ConvolutionStep(dtype, convolved=c, out_dtype=out_dtype):
            made = c.groups * c.batch * c.places * c.outs * out_dtype.itemsize
            name = f"convolution {c.groups}×{c.batch * c.places}×{c.outs}×{c.summed}"
            yield max(made, c.read * dtype.itemsize), name
        case AttentionStep(plan=plan):
            yield plan.arena, "scratch of an attention"
        case CopyStep(nbytes=nbytes):
            yield nbytes, "copy"
        case ForeignStep(host=host):
            yield from _values(host)
        case HostStep(primitive, output_types=types):
            sizes = [type.size * type.dtype.itemsize for type in types]
            if sizes:
                yield max(sizes), f"{primitive.name} on the host"
        case BranchStep(branches=branches):
            yield max(branch.arena for branch in branches), "scratch of a branch"
        case LoopStep(rows=rows, results=results, carry=carry, length=length):
            stacks = [(length or 1) * row.nbytes for row in (*rows, *results)]
            sizes = [*stacks, *[slot.nbytes for slot in carry]]
            if sizes:
                yield max(sizes), "values of a loop"
