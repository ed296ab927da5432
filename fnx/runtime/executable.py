"""Executable: a program that is ready to run, cached by the program's structure.

Receives a `Program`; the compiler plans it and a backend builds the plan. On a platform
without LLVM the reference rules run it, after one warning.
Next on the walk: `backend.py`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fnx import errors
from fnx.compiler.pipeline import plan_program
from fnx.config import config
from fnx.core.cache import cached
from fnx.core.primitive import Primitive
from fnx.core.program import Eqn, Program, Var
from fnx.core.reference import run_reference
from fnx.kernel.printer import kernel_text
from fnx.runtime import eager
from fnx.runtime.array import ConcreteArray, wrap
from fnx.runtime.backend import (
    CallForm,
    CallPath,
    NativeProgram,
    Output,
    Plan,
    backend,
)

STAGES = ("program", "plan", "kernel", "llvm", "asm")


class Executable:
    """Runs a program on concrete arrays.

    `plan` is `None` where the program runs by its reference rules.
    """

    __slots__ = ("compile_seconds", "native", "plan", "program")

    def __init__(
        self, program: Program, plan: Plan | None, native: NativeProgram | None
    ) -> None:
        self.program = program
        self.plan = plan
        self.native = native
        self.compile_seconds = 0.0

    def run(self, arrays: Sequence[ConcreteArray]) -> tuple[ConcreteArray, ...]:
        """The outputs for arrays of the program's input types."""
        if self.plan is None or self.native is None:
            values = run_reference(self.program, [x._numpy() for x in arrays])
            types = self.program.output_types
            return tuple([wrap(*pair) for pair in zip(values, types, strict=True)])
        buffers = self.native([x._numpy() for x in arrays])
        return tuple([_output(o, arrays, buffers) for o in self.plan.outputs])

    def call_path(self, form: CallForm) -> CallPath | None:
        """A call path in machine code, if there can be one for this form of call."""
        return None if self.native is None else self.native.call_path(form)

    def as_text(self, stage: str) -> str:
        """The program at a stage: "program", "plan", "kernel", "llvm" or "asm"."""
        if stage not in STAGES:
            raise errors.OptionError(
                f"as_text(stage={stage!r}): the stages are {', '.join(STAGES)}"
            )
        if stage == "program":
            return str(self.program)
        if self.plan is None or self.native is None:
            raise errors.OptionError(
                f"as_text(stage={stage!r}): this program runs by its reference rules, "
                "without a compiler; only the stage 'program' exists"
            )
        if stage == "plan":
            return str(self.plan)
        if stage == "kernel":
            return "\n\n".join(map(kernel_text, self.plan.kernels))
        return self.native.as_text(stage)


def _output(
    output: Output,
    arrays: Sequence[ConcreteArray],
    buffers: Sequence[np.ndarray[Any, Any]],
) -> ConcreteArray:
    if output.literal is not None:
        return eager.constant(output.literal)
    if output.role == "input":
        data = arrays[output.index]._numpy()
    else:
        data = buffers[output.index]
    return wrap(data.reshape(output.type.shape), output.type)


@cached
def executable_for(program: Program) -> Executable:
    """The executable of a program; equal programs share one."""
    start = time.perf_counter()
    plan = plan_program(program)
    executable = Executable(program, plan, _build(plan))
    executable.compile_seconds = time.perf_counter() - start
    if config.debug >= 1:
        seconds = f"{executable.compile_seconds:.4f} s"
        print(f"compiled {len(plan.steps)} steps in {seconds}", file=sys.stderr)
    return executable


def _build(plan: Plan) -> NativeProgram | None:
    cpu = backend("cpu")
    try:
        return None if cpu is None else cpu.build(plan)
    except ImportError as error:
        _warn_once(str(error))
        return None


@lru_cache(maxsize=1)
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"fnx runs without its compiler, by NumPy, since LLVM is not there ({reason}); "
        "install llvmlite to compile",
        RuntimeWarning,
        stacklevel=2,
    )


def run_compiled(
    primitive: Primitive, arrays: Sequence[ConcreteArray], params: Mapping[str, Any]
) -> Any:
    """Runs one primitive that holds programs, compiled as a one-equation program."""
    types = primitive.infer(*[x.type for x in arrays], **params)
    many = types if primitive.multiple else (types,)
    inputs = tuple([Var(x.type) for x in arrays])
    outputs = tuple([Var(type) for type in many])
    eqn = Eqn(primitive, inputs, outputs, params, None)
    results = executable_for(Program(inputs, (eqn,), outputs)).run(arrays)
    return results if primitive.multiple else results[0]


eager.run_compiled = run_compiled
