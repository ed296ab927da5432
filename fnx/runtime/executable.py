"""Executable: a program that is ready to run, cached by the program's structure.

Receives a `Program` and which backend is to run it; it is compiled or found on disk. On
a platform without LLVM the reference rules run it, after one warning. What runs on
another device is started and not waited for. Next on the walk: `placed.py`,
`compiling.py`.
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
from fnx.control.spmd import spmd
from fnx.core import hooks
from fnx.core.cache import cached_by_structure
from fnx.core.primitive import Primitive
from fnx.core.program import Eqn, Literal, Program, Var, walk
from fnx.core.reference import run_reference
from fnx.core.trace import current_source
from fnx.core.types import ArrayType
from fnx.runtime import array as making
from fnx.runtime import eager
from fnx.runtime.array import ConcreteArray, at_host, wrap
from fnx.runtime.backend import CallForm, CallPath, device_platforms
from fnx.runtime.device import Placement

if TYPE_CHECKING:
    from fnx.runtime.plan import Cost, Output, Plan

# The stages of a program on the CPU; the last are what its backend prints.
STAGES = ("program", "plan", "kernel", "llvm", "asm")
_ALL = STAGES[:3]


# Whether compiling is an error here; `fnx.no_recompile` sets it.
compiling_forbidden: ContextVar[bool] = ContextVar("fnx_no_recompile", default=False)


class Executable:
    """Runs a program on concrete arrays, on the CPU.

    `native` is `None` where the program runs by its reference rules.
    """

    __slots__ = ("_plan", "compile_seconds", "native", "program")

    native: Any
    backend = "cpu"

    def __init__(self, program: Program, native: Any, plan: Plan | None) -> None:
        self.program = program
        self.native = native
        self._plan = plan
        self.compile_seconds = 0.0

    @property
    def plan(self) -> Plan:
        """The plan of the native code, made again if the code was found on disk."""
        if self._plan is None:
            self._plan = _compiling().plan_for(self.program, self.backend)
        return self._plan

    def run(self, arrays: Sequence[ConcreteArray]) -> tuple[ConcreteArray, ...]:
        """The outputs for arrays of the program's input types."""
        if self.native is None:
            values = run_reference(self.program, [x._numpy() for x in arrays])
            types = self.program.output_types
            return tuple([wrap(*pair) for pair in zip(values, types, strict=True)])
        buffers = self.native([x._numpy() for x in arrays])
        return tuple([_output(o, arrays, buffers) for o in self.native.outputs])

    def run_into(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
    ) -> None:
        """Writes the outputs for NumPy arrays into arrays, which are contiguous."""
        if self.native is None:
            for out, value in zip(
                outputs, run_reference(self.program, arrays), strict=True
            ):
                out[...] = value
            return
        ends = list(zip(self.native.outputs, outputs, strict=True))
        given: dict[int, Any] = {}
        for output, out in ends:
            if output.role == "buffer":
                given.setdefault(output.index, out)
        buffers = self.native(arrays, given)
        for output, out in ends:
            if output.literal is not None:
                out[...] = output.literal.value
            elif output.role == "input":
                out[...] = arrays[output.index].reshape(out.shape)
            elif buffers[output.index] is not out:
                out[...] = buffers[output.index].reshape(out.shape)

    def run_at(
        self,
        arrays: Sequence[ConcreteArray],
        placement: Placement,
        what: str,
        donated: Sequence[bool] = (),
    ) -> tuple[ConcreteArray, ...]:
        """The outputs, on a device of the backend.

        `what` is what an error of the run says that ran; the memory of arrays that are
        `donated` may be used for the outputs.
        """
        return tuple([at_host(x, placement) for x in self.run(arrays)])

    def call_path(self, form: CallForm) -> CallPath | None:
        """A call path in machine code, if there can be one for this form of call."""
        return None if self.native is None else self.native.call_path(form)

    def plan_of(self, program: Program) -> Plan:
        """The plan with the scopes of an equal program, which may be of other lines."""
        if program.lines == self.program.lines:
            return self.plan
        plan: Plan = _compiling().plan_for(program, self.backend)
        return plan

    def cost(self) -> Cost:
        """What a run of the plan costs."""
        # lazy: the compiler takes longer to import than the rest
        from fnx.runtime.plan import plan_cost

        return plan_cost(self.plan)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that `as_text` shows."""
        if self.native is None:
            return _ALL[:1]
        return (*_ALL, *_compiling().stages_of(self.backend))

    def as_text(self, stage: str, program: Program | None = None) -> str:
        """The program at a stage: "program", "plan", "kernel", or what is printed.

        `program` is an equal one whose lines are to be shown.
        """
        if stage == "program":
            return str(self.program)
        name = self._printer(stage)
        if name != self.backend:
            plan = _compiling().plan_for(program or self.program, name)
        else:
            plan = self.plan if program is None else self.plan_of(program)
        text: str = _compiling().stage_text(plan, stage, name)
        return text

    def _printer(self, stage: str) -> str:
        """The backend that shows a stage: this one if it can, else another."""
        stages = list(self.stages)
        if stage in stages:
            return self.backend
        for name in device_platforms() if self.native else ():
            shown = _compiling().stages_of(name)
            if stage in shown:
                return name
            stages += [other for other in shown if other not in stages]
        why = "" if self.native else "; this program runs without a compiler"
        raise errors.OptionError(
            f"as_text(stage={stage!r}): the stages are {', '.join(stages)}{why}"
        )


def _compiling() -> Any:
    # lazy: the compiler takes longer to import than the rest, and what runs no compiled
    # program does not need it
    from fnx.runtime import compiling

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
def executable_for(program: Program, backend: str = "cpu") -> Executable:
    """The executable of a program on a backend; equal programs share one."""
    if compiling_forbidden.get():
        shown = ", ".join(map(str, program.input_types)) or "nothing"
        raise errors.RecompileError(
            errors.explain(
                f"inside of fnx.no_recompile() a program of {shown} would be compiled",
                "it has not run by itself before",
                "run it once before",
            )
        )
    apart = _in_pieces(program, backend)
    if apart is not None:
        return apart
    start = time.perf_counter()
    executable: Executable
    if backend == "cpu":
        native, plan = _compiling().compiled(program)
        executable = Executable(program, native, plan)
    else:
        # lazy: few have other devices
        from fnx.runtime.placed import DeviceExecutable

        native, plan = _compiling().compiled_for(program, backend)
        executable = DeviceExecutable(program, native, plan, backend)
    executable.compile_seconds = time.perf_counter() - start
    if config.debug >= 1 or config.log_compiles:
        what = "found on disk" if plan is None else f"compiled {len(plan.steps)} steps"
        print(f"{what} in {executable.compile_seconds:.4f} s", file=sys.stderr)
    return executable


def _in_pieces(program: Program, backend: str) -> Executable | None:
    """A program in which replicas run on other devices, cut there."""
    if not any(eqn.primitive is spmd for eqn in walk(program)):
        return None
    # lazy: few have several devices
    from fnx.runtime.pieces import in_pieces, is_apart

    return in_pieces(program, backend, lambda eqn: is_apart(eqn, backend))


def run_program(
    program: Program,
    arrays: Sequence[ConcreteArray],
    placement: Placement | None,
    what: str,
) -> tuple[ConcreteArray, ...]:
    """The outputs of a program at a place; `None` is the CPU, uncommitted."""
    if placement is None:
        return executable_for(program).run(arrays)
    executable = executable_for(program, placement.device.backend)
    return executable.run_at(arrays, placement, what)


def run_compiled(
    primitive: Primitive,
    arrays: Sequence[ConcreteArray],
    params: Mapping[str, Any],
    placement: Placement | None = None,
) -> Any:
    """Runs one primitive that holds programs, compiled as a one-equation program."""
    program = single(primitive, [x.type for x in arrays], params)
    results = run_program(program, arrays, placement, primitive.name)
    if hooks.busy and watching():
        # lazy: few look for NaNs
        from fnx.runtime.nonfinite import check_program

        names = [f"operand {number}" for number in range(len(arrays))]
        ends = [f"result {number}" for number in range(len(results))]
        check_program(primitive.name, program, arrays, results, names, ends)
    if hooks.busy and eager.checked_kinds.get():
        # lazy: few look for what goes wrong
        from fnx.runtime.checks import look_at_program

        look_at_program(primitive.name, program, arrays)
    return results if primitive.multiple else results[0]


# The kernels of elementwise primitives are for these numbers of elements: powers of 2.
_LEAST_KERNEL, _MOST_KERNEL = 32, 1 << 16


def run_kernel(
    primitive: Primitive, arrays: Sequence[Any], params: Mapping[str, Any]
) -> np.ndarray[Any, Any]:
    """Runs a primitive compiled, on NumPy arrays and numbers.

    An elementwise one has few kernels, whatever the shape is: what is left of the last
    piece is filled up with its last elements.
    """
    if not primitive.lanewise:
        whole = [making.from_numpy(x) for x in arrays]
        program = single(primitive, [x.type for x in whole], params)
        (made,) = executable_for(program).run(whole)
        return made._numpy()
    wide = np.broadcast_arrays(*arrays)
    flat, shape = [x.reshape(-1) for x in wide], wide[0].shape
    pieces = []
    for start in range(0, flat[0].size, _MOST_KERNEL):
        piece = [x[start : start + _MOST_KERNEL] for x in flat]
        n = piece[0].size
        size = max(_LEAST_KERNEL, 1 << (n - 1).bit_length())
        full = [making.from_numpy(np.pad(x, (0, size - n), "edge")) for x in piece]
        program = single(primitive, [x.type for x in full], params)
        (found,) = executable_for(program).run(full)
        pieces.append(found._numpy()[:n])
    return np.concatenate(pieces).reshape(shape)


def single(
    primitive: Primitive, given: Sequence[Any], params: Mapping[str, Any]
) -> Program:
    """A program of one equation; `given` are types of its inputs, arrays, or literals.

    Literals are no inputs of the program.
    """
    types = [x if isinstance(x, ArrayType) else x.type for x in given]
    found = primitive.infer(*types, **params)
    rows = zip(given, types, strict=True)
    atoms = tuple([x if isinstance(x, Literal) else Var(type) for x, type in rows])
    outputs = tuple([Var(t) for t in (found if primitive.multiple else (found,))])
    eqn = Eqn(primitive, atoms, outputs, params, current_source())
    inputs = tuple([atom for atom in atoms if isinstance(atom, Var)])
    return Program(inputs, (eqn,), outputs)


eager.run_compiled = run_compiled
eager.run_kernel = run_kernel
