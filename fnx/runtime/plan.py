"""What a backend sees of the compiler: a plan, its steps, and where values live.

Passed on from here, so that a backend needs nothing else of the compiler.
Next on the walk: `fnx.cpu`.
"""

from fnx.compiler.plan import (
    CopyStep,
    HostStep,
    KernelStep,
    MatmulStep,
    Output,
    Place,
    Plan,
    Step,
)
from fnx.core.program import Literal

__all__ = [
    "CopyStep",
    "HostStep",
    "KernelStep",
    "Literal",
    "MatmulStep",
    "Output",
    "Place",
    "Plan",
    "Step",
]
