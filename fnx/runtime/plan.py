"""What a backend sees of the compiler: a plan, its steps, and where values live.

Passed on from here, so that a backend needs nothing else of the compiler.
Next on the walk: `fnx.cpu`.
"""

from fnx.compiler.cost import Cost, plan_cost, step_cost, type_bytes
from fnx.compiler.multiply import Products, is_small
from fnx.compiler.places import Place
from fnx.compiler.step import (
    BranchStep,
    Carry,
    ConvolutionStep,
    CopyStep,
    FollowedStep,
    ForeignStep,
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
from fnx.core.axes import is_replica, met
from fnx.core.communicator import Communicator, OnDevice
from fnx.core.foreign import Foreign, Native
from fnx.core.layout import Convolved, Layout, Matrices, Product, Sliding
from fnx.core.program import Literal
from fnx.core.sizing import Sizes, at_sizes
from fnx.core.stopping import listen

__all__ = [
    "BranchStep",
    "Carry",
    "Communicator",
    "ConvolutionStep",
    "Convolved",
    "CopyStep",
    "Cost",
    "Foreign",
    "FollowedStep",
    "ForeignStep",
    "HostStep",
    "KernelStep",
    "Layout",
    "Literal",
    "LoopStep",
    "MatmulStep",
    "Matrices",
    "Native",
    "OnDevice",
    "Output",
    "Place",
    "Plan",
    "Product",
    "Products",
    "Rows",
    "Sizes",
    "Sliding",
    "Step",
    "Test",
    "all_steps",
    "at_sizes",
    "held_plans",
    "is_replica",
    "is_small",
    "listen",
    "met",
    "plan_cost",
    "step_cost",
    "type_bytes",
]
