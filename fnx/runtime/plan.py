"""What a backend sees of the compiler: a plan, its steps, and where values live.

Passed on from here, so that a backend needs nothing else of the compiler.
Next on the walk: `fnx.cpu`.
"""

from fnx.compiler.cost import Cost, plan_cost
from fnx.compiler.places import Place
from fnx.compiler.step import (
    BranchStep,
    Carry,
    CopyStep,
    HostStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Output,
    Plan,
    Rows,
    Step,
    Test,
    all_steps,
    held_plans,
)
from fnx.core.layout import Matrices, Product
from fnx.core.program import Literal

__all__ = [
    "BranchStep",
    "Carry",
    "CopyStep",
    "Cost",
    "HostStep",
    "KernelStep",
    "Literal",
    "LoopStep",
    "MatmulStep",
    "Matrices",
    "Output",
    "Place",
    "Plan",
    "Product",
    "Rows",
    "Step",
    "Test",
    "all_steps",
    "held_plans",
    "plan_cost",
]
