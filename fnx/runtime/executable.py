"""Executable: a program that is ready to run, cached by the program's structure.

Receives a `Program`, which is compiled or found on disk. On a platform without LLVM the
reference rules run it, after one warning. Next on the walk: `compiling.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx import errors
from fnx.config import config, watching
from fnx.core import hooks
from fnx.core.cache import cached_by_structure
from fnx.core.primitive import Primitive
from fnx.core.program import Eqn, Program, Var
from fnx.core.reference import run_reference
from fnx.core.trace import current_source
from fnx.runtime import eager
from fnx.runtime.array import ConcreteArray, wrap
from fnx.runtime.backend import CallForm, CallPath, NativeProgram

if TYPE_CHECKING:
    from fnx.runtime.plan import Cost, Output, Plan

STAGES = ("program", "plan", "kernel", "llvm", "asm")


# Whether compiling is an error here; `fnx.no_recompile` sets it.
compiling_forbidden: ContextVar[bool] = ContextVar("fnx_no_recompile", default=False)


class Executable:
    """Runs a program on concrete arrays.

    `native` is `None` where the program runs by its reference rules.
    """

    __slots__ = ("_plan", "compile_seconds", "native", "program")

    def __init__(
        self, program: Program, native: NativeProgram | None, plan: Plan | None
    ) -> None:
        self.program = program
        self.native = native
        self._plan = plan
        self.compile_seconds = 0.0

    @property
    def plan(self) -> Plan:
        """The plan of the native code, made again if the code was found on disk."""
        if self._plan is None:
            self._plan = _compiling().plan_program(self.program)
        return self._plan

    def run(self, arrays: Sequence[ConcreteArray]) -> tuple[ConcreteArray, ...]:
        """The outputs for arrays of the program's input types."""
        if self.native is None:
            values = run_reference(self.program, [x._numpy() for x in arrays])
            types = self.program.output_types
            return tuple([wrap(*pair) for pair in zip(values, types, strict=True)])
        buffers = self.native([x._numpy() for x in arrays])
        return tuple([_output(o, arrays, buffers) for o in self.native.outputs])

    def call_path(self, form: CallForm) -> CallPath | None:
        """A call path in machine code, if there can be one for this form of call."""
        return None if self.native is None else self.native.call_path(form)

    def plan_of(self, program: Program) -> Plan:
        """The plan with the scopes of an equal program, which may be of other lines."""
        if program.lines == self.program.lines:
            return self.plan
        plan: Plan = _compiling().plan_program(program)
        return plan

    def cost(self) -> Cost:
        """What a run of the plan costs."""
        # lazy: the compiler takes longer to import than the rest
        from fnx.runtime.plan import plan_cost  # lazy: see above

        return plan_cost(self.plan)

    def as_text(self, stage: str, program: Program | None = None) -> str:
        """The program at a stage: "program", "plan", "kernel", "llvm" or "asm".

        `program` is an equal one whose lines are to be shown.
        """
        if stage not in STAGES:
            raise errors.OptionError(
                f"as_text(stage={stage!r}): the stages are {', '.join(STAGES)}"
            )
        if stage == "program":
            return str(self.program)
        if self.native is None:
            raise errors.OptionError(
                f"as_text(stage={stage!r}): this program runs by its reference rules, "
                "without a compiler; only the stage 'program' exists"
            )
        plan = self.plan if program is None else self.plan_of(program)
        text: str = _compiling().stage_text(plan, stage)
        return text


def _compiling() -> Any:
    # lazy: the compiler takes longer to import than the rest, and what runs no compiled
    # program does not need it
    from fnx.runtime import compiling  # lazy: see above

    return compiling


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


@cached_by_structure
def executable_for(program: Program) -> Executable:
    """The executable of a program; equal programs share one."""
    if compiling_forbidden.get():
        shown = ", ".join(map(str, program.input_types)) or "nothing"
        raise errors.RecompileError(
            errors.explain(
                f"inside of fnx.no_recompile() a program of {shown} would be compiled",
                "it has not run by itself before",
                "run it once before",
            )
        )
    start = time.perf_counter()
    native, plan = _compiling().compiled(program)
    executable = Executable(program, native, plan)
    executable.compile_seconds = time.perf_counter() - start
    if config.debug >= 1 or config.log_compiles:
        what = "found on disk" if plan is None else f"compiled {len(plan.steps)} steps"
        print(f"{what} in {executable.compile_seconds:.4f} s", file=sys.stderr)
    return executable


def run_compiled(
    primitive: Primitive, arrays: Sequence[ConcreteArray], params: Mapping[str, Any]
) -> Any:
    """Runs one primitive that holds programs, compiled as a one-equation program."""
    types = primitive.infer(*[x.type for x in arrays], **params)
    many = types if primitive.multiple else (types,)
    inputs = tuple([Var(x.type) for x in arrays])
    outputs = tuple([Var(type) for type in many])
    eqn = Eqn(primitive, inputs, outputs, params, current_source())
    program = Program(inputs, (eqn,), outputs)
    results = executable_for(program).run(arrays)
    if hooks.busy and watching():
        # lazy: few look for NaNs
        from fnx.runtime.nonfinite import check_program  # lazy: see above

        names = [f"operand {number}" for number in range(len(inputs))]
        ends = [f"result {number}" for number in range(len(outputs))]
        check_program(primitive.name, program, arrays, results, names, ends)
    if hooks.busy and eager.checked_kinds.get():
        # lazy: few look for what goes wrong
        from fnx.runtime.checks import look_at_program  # lazy: see above

        look_at_program(primitive.name, program, arrays)
    return results if primitive.multiple else results[0]


eager.run_compiled = run_compiled
