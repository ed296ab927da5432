"""What a backend is, and which one runs a program.

A backend receives a `Plan` and gives a callable over NumPy arrays. Backends live above
this layer and register themselves; the types of a plan's steps are passed on from here,
so that a backend needs nothing else of the compiler. Next on the walk: `fnx.cpu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

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


class NativeProgram(Protocol):
    """A built plan."""

    def __call__(
        self, inputs: Sequence[np.ndarray[Any, Any]]
    ) -> list[np.ndarray[Any, Any]]:
        """The plan's output buffers for arrays of its input types."""
        ...

    def as_text(self, stage: str) -> str:
        """What was printed for the machine: "llvm" or "asm"."""
        ...


class Backend(Protocol):
    """Turns plans into native code."""

    name: str

    def build(self, plan: Plan) -> NativeProgram:
        """The plan as one native call; `ImportError` if the machine lacks the means."""


_backends: dict[str, Backend] = {}


def register(backend: Backend) -> None:
    """Makes a backend available under its name."""
    _backends[backend.name] = backend


def backend(name: str = "cpu") -> Backend | None:
    """The backend of that name, if there is one."""
    return _backends.get(name)


__all__ = [
    "Backend",
    "CopyStep",
    "HostStep",
    "KernelStep",
    "Literal",
    "MatmulStep",
    "NativeProgram",
    "Output",
    "Place",
    "Plan",
    "Step",
    "backend",
    "register",
]
