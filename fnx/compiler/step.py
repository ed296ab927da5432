"""What a plan is: steps in order, over places in the caller's memory and in one arena.

A step is a kernel, a matrix product, a convolution, an attention, a copy, a callback to
the host (where an operation without native code runs by its `reference` rule), a kernel
of the user's, or a branch or loop over other plans.
Made by `plan.py`, read by backends. Next on the walk: `places.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.compiler.places import Draft, Place, Value, base_of
from fnx.core.attended import FORWARD, Attended
from fnx.core.foreign import Foreign, Launch
from fnx.core.layout import Convolved, Product
from fnx.core.primitive import Primitive
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.kernel.ir import Kernel
from fnx.records import record


@record
class KernelStep:
    """Runs a kernel on buffers."""

    kernel: Kernel
    buffers: tuple[Place, ...]


@record
class MatmulStep:
    """A stack of matrix products: out = x @ y.

    `dtype` is that of x and y. What backends have no product of is a fold in a kernel.
    If `tf32`, the operands may be rounded to 10 bits, for tensor cores.
    """

    dtype: np.dtype[Any]
    out: Place
    x: Place
    y: Place
    product: Product
    out_dtype: np.dtype[Any]
    tf32: bool = False


@record
class FollowedStep:
    """A matrix product and kernels behind it, which a backend may compute at once.

    `epilogue` is its number for that. Then it may leave the product's output as it is:
    what counts is `out`, with a `bias` that is read or made, and what derivatives need
    (`aux`).
    """

    product: MatmulStep
    kernels: tuple[KernelStep, ...]
    epilogue: int
    out: Place
    bias: Place | None = None
    aux: Place | None = None

    @property
    def parts(self) -> tuple[MatmulStep | KernelStep, ...]:
        """The steps that it is, one behind the other."""
        return self.product, *self.kernels


@record
class ConvolutionStep:
    """A convolution by a backend that has such: of x and a kernel of one dtype.

    If `tf32`, the operands may be rounded to 10 bits, for tensor cores.
    """

    dtype: np.dtype[Any]
    out: Place
    x: Place
    kernel: Place
    convolved: Convolved
    out_dtype: np.dtype[Any]
    tf32: bool = False


@record
class AttentionStep:
    """An attention or its gradients (`part`), by a routine that a backend may have.

    Where that does not serve, the plan does the same: it takes the inputs and fills the
    outputs; `scratch` is where its arena is.
    """

    part: str
    attended: Attended
    plan: Plan
    inputs: tuple[Place, ...]
    input_types: tuple[ArrayType, ...]
    outputs: tuple[Place, ...]
    output_types: tuple[ArrayType, ...]
    scratch: Place


@record
class CopyStep:
    """Copies bytes."""

    out: Place
    source: Place
    nbytes: int


@record
class HostStep:
    """Runs a primitive's `write` rule in Python; a literal input is its value.

    A backend that has code for the primitive's `routine` runs that in its place.
    """

    primitive: Primitive
    params: Mapping[str, Any]
    inputs: tuple[Place | Literal, ...]
    input_types: tuple[ArrayType, ...]
    outputs: tuple[Place, ...]
    output_types: tuple[ArrayType, ...]

    @property
    def routine(self) -> str | None:
        """The well-known routine that the primitive is, if any."""
        return self.primitive.routine

    @property
    def meets(self) -> bool:
        """Whether replicas exchange arrays, which may be in the memory of devices."""
        return self.primitive.meets


@record
class ForeignStep:
    """Runs a kernel of the user's, on arrays in row-major order (see `Native`).

    `host` says which arrays; it is the step that does the same by way of Python.
    """

    code: Foreign
    launch: Launch | None
    host: HostStep


@record
class BranchStep:
    """Runs the plan whose number is at `index`, which is moved inside.

    Each takes the inputs and fills the outputs; `scratch` is where its arena is.
    """

    index: Place
    branches: tuple[Plan, ...]
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    scratch: Place


@record
class Carry:
    """Where the carry of a loop is: before it, after it, and in every other round.

    Without a `spare` place, rounds update it where it is after the loop.
    """

    start: Place
    end: Place
    spare: Place | None
    nbytes: int


@record
class Rows:
    """An array whose rows, of so many bytes, a loop reads or writes one by one."""

    place: Place
    nbytes: int


@record
class Test:
    """What decides whether a loop makes one more round.

    `plan` takes the constants and the carry; its output is a byte at `answer`.
    """

    plan: Plan
    consts: tuple[Place, ...]
    answer: Place


@record
class LoopStep:
    """Runs a plan round after round.

    It takes the constants, the carry and rows; its outputs are the carry and rows. With
    a test there are `length` rounds at most, and more are the error `full`; without one
    there are so many, or as many as `count` says. `counter` is where the number of
    rounds is written.
    """

    body: Plan
    consts: tuple[Place, ...]
    carry: tuple[Carry, ...]
    rows: tuple[Rows, ...]
    results: tuple[Rows, ...]
    scratch: Place
    length: int | None
    reverse: bool = False
    count: Place | None = None
    test: Test | None = None
    counter: Place | None = None
    full: Exception | None = None


Step = (
    KernelStep
    | MatmulStep
    | FollowedStep
    | ConvolutionStep
    | AttentionStep
    | CopyStep
    | HostStep
    | ForeignStep
    | BranchStep
    | LoopStep
)


@record
class Output:
    """How the caller gets an output: buffer number `index`, an input, or a literal."""

    role: str
    index: int
    literal: Literal | None
    type: ArrayType


@record
class Plan:
    """A program ready for a backend.

    `buffers` are the types of the output buffers that the caller allocates. `scopes`
    are the names around what the steps compute, one for each step, for people, and
    `functions` is how many values of functions (`exp`, `sin`) the program computes.
    """

    inputs: tuple[ArrayType, ...]
    outputs: tuple[Output, ...]
    buffers: tuple[ArrayType, ...]
    steps: tuple[Step, ...]
    arena: int
    scopes: tuple[str, ...] = ()
    functions: int = 0

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in order of first use."""
        kernels = [s.kernel for s in all_steps(self) if isinstance(s, KernelStep)]
        return tuple({kernel.key: kernel for kernel in reversed(kernels)}.values())[
            ::-1
        ]

    def __str__(self) -> str:
        rows = [f"plan: {len(self.steps)} steps, arena {self.arena!r} bytes"]
        for number, step in enumerate(self.steps):
            scope = self.scopes[number] if self.scopes else ""
            inside = f"  # {scope}" if scope else ""
            rows.append(f"  {number:3d} {_describe(step)}{inside}")
            for plan in held_plans(step):
                rows += [f"      {row}" for row in str(plan).split("\n")]
        return "\n".join(rows)


def kernel_draft(kernel: Kernel, values: Sequence[Value]) -> Draft:
    """The draft of a kernel on the values of its buffers."""
    bases = tuple([base_of(value) for value in values])
    pairs = list(zip(bases, kernel.buffers, strict=True))
    writes = tuple([v for v, buffer in pairs if buffer.role != "in"])
    reads = tuple([v for v, buffer in pairs if buffer.role != "out"])

    def make(place: Callable[[Value], Place]) -> Step:
        return KernelStep(kernel, tuple([place(v) for v in bases]))

    return Draft(reads, writes, make, kernel=(kernel, bases))


def held_plans(step: Step) -> tuple[Plan, ...]:
    """The plans that a step runs."""
    match step:
        case BranchStep():
            return step.branches
        case AttentionStep():
            return (step.plan,)
        case LoopStep(body, test=test):
            return (body,) if test is None else (test.plan, body)
    return ()


def all_steps(plan: Plan) -> Iterator[Step]:
    """The steps of a plan, those that they join and of plans that they run included."""
    for step in plan.steps:
        if isinstance(step, FollowedStep):
            yield from step.parts
            continue
        yield step
        for held in held_plans(step):
            yield from all_steps(held)


def _describe(step: Step) -> str:
    match step:
        case KernelStep(kernel, buffers):
            sizes = [b.size * b.dtype.itemsize for b in kernel.buffers]
            shown = ", ".join(f"{p}" for p in buffers)
            return f"{kernel.name}({shown})  {sum(sizes)!r} bytes"
        case MatmulStep():
            p = step.product
            x = f"{step.x}{'ᵀ' if p.x.transposed else ''}"
            y = f"{step.y}{'ᵀ' if p.y.transposed else ''}"
            size = f"{p.stack!r}×{p.m!r}×{p.n!r}×{p.k!r}"
            dtype = f"{step.dtype}"
            if step.out_dtype != step.dtype:
                dtype += f" to {step.out_dtype}"
            return f"{step.out} = {x} @ {y}  {size} {dtype}"
        case FollowedStep():
            return ", then ".join(map(_describe, step.parts))
        case ConvolutionStep(dtype, out, x, kernel, c):
            size = "×".join(map(str, (c.groups, c.batch * c.places, c.outs, c.summed)))
            return f"{out} = {x} convolved with {kernel}  {size} {dtype}"
        case AttentionStep(part, attended):
            ends = ", ".join(map(str, step.outputs))
            inputs = ", ".join(map(str, step.inputs))
            what = "attention" if part == FORWARD else "gradients of attention"
            return f"{ends} = {what}({inputs})  {attended.shown}"
        case CopyStep(out, source, nbytes):
            return f"{out} = copy {source}  {nbytes!r} bytes"
        case HostStep():
            ends = ", ".join(map(str, step.outputs))
            inputs = ", ".join(map(str, step.inputs))
            return f"{ends} = host {step.primitive.name}({inputs})"
        case ForeignStep():
            ends = ", ".join(map(str, step.host.outputs))
            inputs = ", ".join(map(str, step.host.inputs))
            return f"{ends} = foreign {step.code.name}({inputs})"
        case BranchStep():
            ends = ", ".join(map(str, step.outputs))
            inputs = ", ".join(map(str, step.inputs))
            return f"{ends} = one of {len(step.branches)} by {step.index} ({inputs})"
        case LoopStep():
            ends = ", ".join([str(slot.end) for slot in step.carry])
            rows = ", ".join([str(rows.place) for rows in step.results])
            count = repr(step.length) if step.count is None else str(step.count)
            rounds = "while" if step.test else f"{count} rounds"
            return f"{ends}; {rows} = {rounds}"
