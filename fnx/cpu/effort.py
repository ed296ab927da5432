"""How long steps take, roughly, before they have run: in rounds of their inner loops.

A round is a few nanoseconds, or some hundred if it computes many functions. Receives a
step of a plan; what nobody can know before is infinite. Kernels that do next to nothing
are told by the number of their statements. Next on the walk: `driver.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.cpu.grain import kernel_rounds
from fnx.kernel.ir import Kernel, Loop, Stmt
from fnx.runtime.plan import (
    BranchStep,
    CopyStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Step,
)
from fnx.sizes import Size, usual

FEW = 4
"""So many statements for each operand take no longer than what passes the operand."""


def rounds(step: Step) -> float:
    """How many rounds of its loops a step runs; infinitely many if nobody knows."""
    match step:
        case KernelStep(kernel, _):
            return kernel_rounds(kernel)
        case CopyStep(_, _, nbytes):
            return float(usual(nbytes)) / 64
        case MatmulStep(product=product):
            return float(usual(product.work)) / 128
        case BranchStep(branches=plans):
            return max(sum(map(rounds, plan.steps)) for plan in plans)
        case LoopStep(test=None, length=int() | Size() as length):
            # not 0 * inf
            return float(usual(length)) * one_round(step) if length != 0 else 0.0
    return math.inf


def one_round(step: LoopStep) -> float:
    """The same for one round of a loop."""
    test = [] if step.test is None else step.test.plan.steps
    return 1 + sum(map(rounds, (*test, *step.body.steps)))


def is_little(kernel: Kernel) -> bool:
    """Whether a kernel does no more than what passing its operands takes, or so."""
    loops = any(isinstance(stmt, Loop) for stmt in kernel.body)
    return not loops and len(kernel.body) <= FEW * len(kernel.buffers)


def work(body: Sequence[Stmt]) -> float:
    """How many statements run, in all rounds of the loops; infinitely many perhaps."""
    total = 0.0
    for stmt in body:
        if not isinstance(stmt, Loop):
            total += 1
        elif isinstance(stmt.extent, Size):
            return math.inf
        else:
            total += -(-stmt.extent // stmt.width) * work(stmt.body)
    return total
