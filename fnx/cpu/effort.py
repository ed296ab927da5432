"""How long steps take, roughly, before they have run: in rounds of their inner loops.

A round is a few nanoseconds, or some hundred if it computes many functions. Receives a
step of a plan; what nobody can know before is infinite. Next on the walk: `driver.py`.
"""

from __future__ import annotations

import math

from fnx.cpu.grain import kernel_rounds
from fnx.runtime.plan import (
    BranchStep,
    CopyStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Step,
)
from fnx.sizes import Size, usual


def rounds(step: Step) -> float:
    """How many rounds of its loops a step runs; infinitely many if nobody knows."""
    match step:
        case KernelStep(kernel, _):
            return kernel_rounds(kernel)
        case CopyStep(_, _, nbytes):
            return float(usual(nbytes)) / 64
        case MatmulStep(product=product):
            return float(usual(product.work)) / 32
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
