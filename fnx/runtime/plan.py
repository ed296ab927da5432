"""What a backend sees of the compiler: a plan, its steps, and where values live.

Passed on from here, so that a backend needs nothing else of the compiler.
Next on the walk: `fnx.cpu`.
"""

from fnx.compiler.cost import Cost, plan_cost, step_cost, type_bytes
from fnx.compiler.multiply import Products, is_small
from fnx.compiler.places import Draft, Place, Value, base_of
from fnx.compiler.step import (
    AttentionStep,
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
    kernel_draft,
)
from fnx.compiler.target import Target
from fnx.core.attended import GRADIENTS, Attended
from fnx.core.axes import is_replica, met
from fnx.core.communicator import Communicator, OnDevice
from fnx.core.foreign import Foreign, Native
from fnx.core.layout import Convolved, Layout, Matrices, Product, Sliding
from fnx.core.program import Literal
from fnx.core.sizing import Sizes, at_sizes
from fnx.core.stopping import listen
from fnx.core.types import ArrayType

__all__ = [
    "ArrayType",
    "Attended",
    "AttentionStep",
    "BranchStep",
    "Carry",
    "Communicator",
    "ConvolutionStep",
    "Convolved",
    "CopyStep",
    "Cost",
    "Draft",
    "GRADIENTS",
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
    "Target",
    "Test",
    "Value",
    "all_steps",
    "at_sizes",
    "base_of",
    "held_plans",
    "is_replica",
    "is_small",
    "kernel_draft",
    "listen",
    "met",
    "plan_cost",
    "step_cost",
    "type_bytes",
]
