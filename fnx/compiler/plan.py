"""The plan: the steps of a program in order, and where each stored value lives.

Receives what `fuse.py` decided, gives a `Plan` that a backend turns into one native
call. A step is a kernel, a matrix product, a copy, or a callback to the host, where an
operation without native code runs by its `reference` rule. Outputs are written where
the caller wants them; everything else shares one arena, in which a value's place is
used again after its last reader. Next on the walk: `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.compiler.fuse import Fused, Group
from fnx.compiler.loop import Asked, Loop, add_loop, scratch_of
from fnx.compiler.lower import constant, lower_step
from fnx.compiler.outline import Outlined
from fnx.compiler.places import (
    Draft,
    Place,
    Value,
    View,
    base_of,
    place_in_arena,
    takes_over,
)
from fnx.compiler.reading import function_values
from fnx.compiler.step import (
    AttentionStep,
    BranchStep,
    ConvolutionStep,
    CopyStep,
    ForeignStep,
    HostStep,
    MatmulStep,
    Output,
    Plan,
    Step,
    kernel_draft,
)
from fnx.core.foreign import Foreign, Launch
from fnx.core.layout import Convolved, Layout, Product
from fnx.core.program import Atom, Eqn, Literal, Program, Var
from fnx.core.types import ArrayType
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import linear_offset
from fnx.kernel.ir import Kernel
from fnx.sizes import Undecided

Held = Callable[[Program, int, int], "Plan"]
"""Plans a program that a step runs, whose carry are so many inputs from one on."""


def make_plan(
    fused: Fused,
    held: Held,
    carry: tuple[int, int] | None = None,
) -> Plan:
    """Orders the steps and places every stored value.

    `carry` is given for a program that another plan's step runs: its first outputs are
    what so many inputs, from that number on, become. All outputs are in buffers then,
    or in place of those inputs.
    """
    builder = PlanBuilder(fused, held)
    for number, step in enumerate(fused.steps):
        try:
            if isinstance(step, Group):
                builder.add_group(step, f"kernel{number}")
            else:
                builder.add_equation(step)
        except Undecided as error:
            eqn = step if isinstance(step, Eqn) else fused.makers[step.outputs[0]]
            raise Undecided(f"{error} ({eqn.primitive.name})") from None
    if carry is not None:
        builder.store_outputs(*carry)
    return builder.finish()


class PlanBuilder:
    """What a `steps` rule writes to; its operands are `Value`s or literals."""

    def __init__(self, fused: Fused, held: Held) -> None:
        self.fused = fused
        self.held = held
        self.outlined = Outlined(fused)
        self.permutes: dict[Hashable, Kernel] = {}
        self.program: Program = fused.program
        self.values: dict[Var, Value] = {v: Value(v.type) for v in self.program.inputs}
        self.drafts: list[Draft] = []
        self.outputs: tuple[Value, ...] = ()
        self.ends: list[Value | Literal] | None = None
        self.updated: dict[Value, int] = {}
        self._eqn: Eqn | None = None
        self._scope = ""

    # -- called by `make_plan`

    def add_group(self, group: Group, name: str) -> None:
        """One kernel for a fused group."""
        if group.outputs[0].type.size == 0:
            for var in group.outputs:
                self._value(var)
            return
        self._scope = common_scope([self.fused.makers[var] for var in group.outputs])
        lowered = self.outlined.lowered(group, name)
        values = tuple([self._value(var) for var in lowered.values])
        self._add_kernel(lowered.kernel, values)

    def add_equation(self, eqn: Eqn) -> None:
        """The steps of an equation that does not fuse."""
        if eqn.outputs and all(var in self.fused.views for var in eqn.outputs):
            return  # another value's bytes, already there
        self.outputs = tuple([self._value(var) for var in eqn.outputs])
        self._eqn = eqn
        self._scope = common_scope([eqn])
        inputs = [self._operand(eqn, n) for n in range(len(eqn.inputs))]
        if eqn.primitive.has("steps"):
            eqn.primitive.steps(self, *inputs, **eqn.params)
        else:
            self.host()

    def store_outputs(self, first: int, count: int) -> None:
        """Has every output in memory of its own, or in that of an input.

        That is the input of the carry that it belongs to, if nobody needs that any more
        when its copy is updated.
        """
        inputs = [self.values[var] for var in self.program.inputs]
        self.ends = []
        for number, atom in enumerate(self.program.outputs):
            own = inputs[first + number] if number < count else None
            self.ends.append(self._stored_output(atom, own, inputs))
        for number, own in enumerate(inputs[first : first + count]):
            end = self.ends[number]
            if isinstance(end, Value) and takes_over(self.drafts, own, end):
                self.updated[end] = first + number

    def _stored_output(
        self, atom: Atom, own: Value | None, inputs: Sequence[Value]
    ) -> Value:
        if isinstance(atom, Literal):
            return self.filled(atom, atom.type.shape)
        value = self._value(self.fused.base(atom))
        if value is own or (value not in inputs and value not in (self.ends or ())):
            return value
        out = Value(value.type)
        self.copy(out, value)
        return out

    def add_draft(self, draft: Draft) -> None:
        """One more step, of what is being added."""
        self.drafts.append(replace(draft, scope=self._scope) if self._scope else draft)

    def finish(self) -> Plan:
        """The plan, with every value placed."""
        buffers: dict[Value, int] = {}
        ends: Sequence[Any] = self.ends or self.program.outputs
        outputs = tuple(
            [
                self._output(end, atom.type, buffers)
                for end, atom in zip(ends, self.program.outputs, strict=True)
            ]
        )
        inputs = [self.values[var] for var in self.program.inputs]
        places = {value: Place("input", n) for n, value in enumerate(inputs)}
        places |= {value: Place("input", n) for value, n in self.updated.items()}
        places |= {value: Place("output", n) for value, n in buffers.items()}
        joins, drafts = self.fused.target.products.joins, self.drafts
        if joins is not None:
            drafts = joins(drafts, places)
        arena = place_in_arena(drafts, places)
        made = [(draft.make(places.__getitem__), draft.scope) for draft in drafts]
        rows = [(step, scope) for step, scope in made if not _is_idle(step)]
        steps = tuple([step for step, _ in rows])
        scopes = tuple([scope for _, scope in rows])
        types = tuple([value.type for value in buffers])
        functions = sum(map(function_values, self.program.eqns))
        inputs_of = self.program.input_types
        return Plan(inputs_of, outputs, types, steps, arena, scopes, functions)

    def _output(
        self, end: Atom | Value, type: ArrayType, buffers: dict[Value, int]
    ) -> Output:
        if isinstance(end, Literal):
            return Output("literal", 0, end, type)
        value = end if isinstance(end, Value) else self._value(self.fused.base(end))
        inputs = [self.values[var] for var in self.program.inputs]
        if value in inputs:
            return Output("input", inputs.index(value), None, type)
        if value in self.updated:
            return Output("input", self.updated[value], None, type)
        return Output("buffer", buffers.setdefault(value, len(buffers)), None, type)

    def _value(self, var: Var) -> Value:
        base = self.fused.base(var)
        if base not in self.values:
            self.values[base] = Value(base.type, self.fused.layouts.get(base))
        return self.values[base]

    def _operand(self, eqn: Eqn, position: int) -> Value | Literal:
        """The operand of a step; a view has its own type on the same bytes."""
        atom = eqn.inputs[position]
        if isinstance(atom, Literal):
            return atom
        origin = self.fused.origins.get((eqn, position))
        if origin is not None:
            return View(self._value(origin.var), atom.type, origin.layout)
        value = self._value(atom)
        return value if value.type is atom.type else View(value, atom.type)

    # -- the vocabulary of `steps` rules

    def kernel(
        self,
        name: str,
        reads: Sequence[Value],
        out: Value,
        domain: tuple[int, ...],
        build: Callable[..., None],
        role: str = "out",
    ) -> None:
        """A kernel of the rule's own: `build(k, index, out buffer, *operand pulls)`."""
        if 0 not in domain:
            kernel = self._built(name, reads, out, domain, build, role)
            self._add_kernel(kernel, (*reads, out))

    def _built(
        self,
        name: str,
        reads: Sequence[Value],
        out: Value,
        domain: tuple[int, ...],
        build: Callable[..., None],
        role: str = "out",
    ) -> Kernel:
        k = KernelBuilder()
        index = k.domain(domain)
        pulls = [_Stored(k, value, f"in{n}") for n, value in enumerate(reads)]
        buffer = k.buffer("out", out.dtype, out.type.size, role)
        build(k, index, buffer, *pulls)
        return k.finish(name, self.fused.target.schedule)

    def update(
        self,
        operand: Value,
        pulled: Sequence[int],
        domain: tuple[int, ...],
        element: Callable[..., Any],
        combine: str | None,
        apart: bool = False,
    ) -> None:
        """The operand's copy, updated in the order of `domain`.

        `element(k, index, *pulls)` gives the index in the output, the value and the
        condition under which it is written; `pulled` are the inputs' positions. If the
        updates lie `apart`, no two of them are to one element.
        """
        (out,) = self.outputs
        self.copy(out, operand)

        def build(k: Any, index: Any, buffer: Any, *pulls: Any) -> None:
            target, value, mask = element(k, index, *pulls)
            offset = linear_offset(target, out.shape)
            k.store(buffer, offset, value, combine, mask, apart)

        self.pulling("update", pulled, domain, build, "inout")

    def scan(self, combine: str, axis: int, reverse: bool) -> None:
        """What the input's elements up to each place of an axis combine to."""
        (out,) = self.outputs
        size = out.shape[axis]
        others = out.shape[:axis] + out.shape[axis + 1 :]

        def build(k: Any, index: Any, buffer: Any, x: Any) -> None:
            *outer, i = index
            at = size - 1 - i if reverse else i
            place = (*outer[:axis], at, *outer[axis:])
            value = k.scan(combine, i, x(place))
            k.store(buffer, linear_offset(place, out.shape), value)

        self.pulling("scan", (0,), (*others, size), build, "out")

    def pulling(
        self,
        name: str,
        pulled: Sequence[int],
        domain: tuple[int, ...],
        build: Callable[..., None],
        role: str,
    ) -> None:
        """A kernel that pulls elements of the equation's inputs."""
        eqn = self._eqn
        if eqn is None:
            raise errors.InternalError("a kernel outside of a steps rule")
        if 0 in domain:
            return
        operands = [eqn.inputs[position] for position in pulled]
        (target,) = eqn.outputs
        lowered = lower_step(name, self.fused, domain, target, role, operands, build)
        values = tuple([self._value(var) for var in lowered.values])
        self._add_kernel(lowered.kernel, values)

    def value(self, type: ArrayType) -> Value:
        """Memory for what a rule's steps compute on their way to the outputs."""
        return Value(type)

    def permuted(self, operand: Value, dims: tuple[int, ...]) -> Value:
        """A copy of the operand with its axes in another order."""
        out = Value(operand.type.with_shape(tuple([operand.shape[d] for d in dims])))
        source, target = operand, out
        if dtypes.is_complex(out.dtype):
            source, target, dims = _parts(operand), _parts(out), (*dims, len(dims))

        def build(k: Any, index: Any, buffer: Any, x: Any) -> None:
            place = [index[dims.index(axis)] for axis in range(len(dims))]
            k.store(buffer, linear_offset(index, target.shape), x(place))

        if 0 not in target.shape:
            key = source.type, source.layout, base_of(source).nbytes, dims
            kernel = self.permutes.get(key)
            if kernel is None:
                kernel = self._built("permute", [source], target, target.shape, build)
                self.permutes[key] = kernel
            self._add_kernel(kernel, (source, target))
        return out

    def multiplies(self, x: Value, y: Value) -> bool:
        """Whether the backend has matrix products of these operands for the output."""
        (out,) = self.outputs
        return x.dtype == y.dtype and self.fused.target.products.has(x.dtype, out.dtype)

    def matmul(
        self, out: Value, x: Value, y: Value, product: Product, tf32: bool
    ) -> None:
        """A stack of matrix products, of operands that may be rounded if `tf32`."""

        def make(place: Callable[[Value], Place]) -> Step:
            ends = place(out), place(base_of(x)), place(base_of(y))
            return MatmulStep(x.dtype, *ends, product, out.dtype, tf32)

        reads = base_of(x), base_of(y)
        self.add_draft(Draft(reads, (out,), make, multiplies=True))

    def convolution(self) -> Convolved | None:
        """What the backend computes of the current equation as it is, if anything."""
        if self._eqn is None:
            raise errors.InternalError("plan.convolution() outside of a steps rule")
        found = self.fused.target.products.convolution(self._eqn)
        return None if found is None else found[2]

    def innermost(self, x: Value, convolved: Convolved) -> str | None:
        """The axis of x that the backend wants innermost, so much that it is copied."""
        copies, (out,) = self.fused.target.products.copies, self.outputs
        return None if copies is None else copies(x.dtype, out.dtype, convolved)

    def convolve(
        self, x: Value, kernel: Value, convolved: Convolved, tf32: bool
    ) -> None:
        """A convolution, of operands that may be rounded if `tf32`."""
        (out,) = self.outputs

        def make(place: Callable[[Value], Place]) -> Step:
            ends = place(out), place(base_of(x)), place(base_of(kernel))
            return ConvolutionStep(x.dtype, *ends, convolved, out.dtype, tf32)

        self.add_draft(Draft((base_of(x), base_of(kernel)), (out,), make))

    def attend(self, program: Program, operands: Sequence[Value | Literal]) -> None:
        """The attention that the current equation is, with the plan of its program."""
        eqn = self._eqn
        known = None if eqn is None else eqn.primitive.attends(**eqn.params)
        if known is None:
            raise errors.InternalError("plan.attend() outside of an attention's rule")
        plan, outputs = self.held(program, 0, 0), self.outputs
        reads = [base_of(self._in_memory(x)) for x in operands]
        types = tuple([x.type for x in operands])
        scratch = scratch_of(plan)

        def make(place: Callable[[Value], Place]) -> Step:
            inputs = tuple([place(value) for value in reads])
            ends = tuple([place(out) for out in outputs])
            out_types = tuple([out.type for out in outputs])
            return AttentionStep(
                *known, plan, inputs, types, ends, out_types, place(scratch)
            )

        self.add_draft(Draft(tuple(reads), (*outputs, scratch), make))

    def copy(self, out: Value, source: Value) -> None:
        """Copies a value's bytes."""

        def make(place: Callable[[Value], Place]) -> Step:
            return CopyStep(place(out), place(base_of(source)), out.nbytes)

        self.add_draft(Draft((base_of(source),), (out,), make, copies=True))

    def reserve(self) -> None:
        """Has memory for the output, and writes nothing there."""
        (out,) = self.outputs

        def make(place: Callable[[Value], Place]) -> Step:
            return CopyStep(place(out), place(out), 0)

        self.add_draft(Draft((), (out,), make))

    def host(self) -> None:
        """Runs the current equation by its reference rule, in Python."""
        self._on_host(lambda host: host, stored=False)

    def _on_host(self, step: Callable[[HostStep], Step], stored: bool) -> None:
        """A step made of that of the host, for which literals may have to be stored."""
        eqn, outputs = self._eqn, self.outputs
        if eqn is None:
            raise errors.InternalError("plan.host() outside of a steps rule")
        atoms = eqn.inputs
        values: list[Value | Literal] = []
        for atom in atoms:
            if isinstance(atom, Literal):
                values.append(self.filled(atom, ()) if stored else atom)
            else:
                values.append(self._value(atom))

        def make(place: Callable[[Value], Place]) -> Step:
            return step(
                HostStep(
                    eqn.primitive,
                    eqn.params,
                    tuple([v if isinstance(v, Literal) else place(v) for v in values]),
                    tuple([atom.type for atom in atoms]),
                    tuple([place(out) for out in outputs]),
                    tuple([var.type for var in eqn.outputs]),
                )
            )

        reads = tuple([v for v in values if isinstance(v, Value)])
        aside = self.fused.target.streams and eqn.primitive.meets
        self.add_draft(Draft(reads, outputs, make, aside=aside))

    def foreign(self, code: Foreign, launch: Launch | None) -> None:
        """A kernel of the user's; a literal is stored for it."""
        self._on_host(lambda host: ForeignStep(code, launch, host), stored=True)

    def filled(self, literal: Literal, shape: tuple[int, ...]) -> Value:
        """A literal as a stored value."""
        out = Value(ArrayType(shape, literal.type.dtype))
        self.fill(out, literal)
        return out

    def fill(self, out: Value, literal: Literal) -> None:
        """Stores a literal at every place of a value."""

        def build(k: Any, index: Any, buffer: Any) -> None:
            k.store(buffer, linear_offset(index, out.shape), constant(k, literal))

        self.kernel("fill", [], out, out.shape, build)

    # -- branches and loops

    def branch(
        self,
        index: Value | Literal,
        operands: Sequence[Value | Literal],
        branches: Sequence[Program],
    ) -> None:
        """One of several programs, by an index."""
        plans = tuple([self.held(branch, 0, 0) for branch in branches])
        reads = [self._in_memory(x) for x in (index, *operands)]
        scratch = scratch_of(*plans)
        outputs = self.outputs

        def make(place: Callable[[Value], Place]) -> Step:
            inputs = [place(base_of(value)) for value in reads]
            ends = tuple([place(out) for out in outputs])
            return BranchStep(inputs[0], plans, tuple(inputs[1:]), ends, place(scratch))

        bases = tuple([base_of(value) for value in reads])
        self.add_draft(Draft(bases, (*outputs, scratch), make))

    def loop(
        self,
        body: Program,
        consts: Sequence[Value | Literal],
        carry: Sequence[Value | Literal],
        rows: Sequence[Value] = (),
        *,
        length: int | None = None,
        reverse: bool = False,
        count: Value | Literal | None = None,
        test: tuple[Program, Sequence[Value | Literal]] | None = None,
        full: Exception | None = None,
        outputs: Sequence[Value] | None = None,
    ) -> None:
        """A program that is run round after round.

        `test` is the program that decides about each round, and its constants. Where
        there are both a test and a `length`, the output behind the carry is the number
        of rounds, and `full` is the error if there are more than `length`. The outputs
        are those of the equation, unless others are given.
        """

        def stored(operands: Sequence[Value | Literal]) -> list[Value]:
            return [self._in_memory(x) for x in operands]

        asked = None if test is None else Asked(test[0], stored(test[1]))
        counted = None if count is None else self._in_memory(count)
        fixed, start = stored(consts), stored(carry)
        ends = self.outputs if outputs is None else outputs
        loop = Loop(
            body, fixed, start, rows, length, reverse, counted, asked, full, ends
        )
        add_loop(self, loop)

    def _in_memory(self, operand: Value | Literal) -> Value:
        """An operand that is stored, even if it is a literal."""
        return self.filled(operand, ()) if isinstance(operand, Literal) else operand

    def _add_kernel(self, kernel: Kernel, values: tuple[Value, ...]) -> None:
        self.add_draft(kernel_draft(kernel, values))


def _parts(value: Value) -> View:
    """A complex value as real numbers, with an axis of real and imaginary parts."""
    real = ArrayType((*value.shape, 2), dtypes.real_dtype(value.dtype))
    strides = [2 * stride for stride in value.layout.strides]
    return View(base_of(value), real, Layout(2 * value.layout.offset, (*strides, 1)))


class _Stored:
    """A stored operand as a kernel of a `steps` rule sees it."""

    __slots__ = ("buffer", "k", "layout", "type")

    def __init__(self, k: KernelBuilder, value: Value, name: str) -> None:
        self.k = k
        self.type = value.type
        self.layout = value.layout
        size = base_of(value).nbytes // value.dtype.itemsize
        self.buffer = k.buffer(name, value.dtype, size, "in")

    @property
    def shape(self) -> tuple[int, ...]:
        """The operand's shape."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The operand's dtype."""
        return self.type.dtype

    def __call__(self, index: Sequence[Any]) -> Any:
        """The element at an index."""
        steps = zip(index, self.layout.strides, strict=True)
        offset = sum([i * stride for i, stride in steps], self.layout.offset)
        return self.k.load(self.buffer, offset)


def common_scope(eqns: Sequence[Eqn]) -> str:
    """The names that are around all of these equations."""
    scopes = [() if eqn.source is None else eqn.source.scope for eqn in eqns]
    shared = scopes[0]
    for scope in scopes[1:]:
        pairs = enumerate(zip(shared, scope, strict=False))
        differ = (n for n, (name, other) in pairs if name != other)
        shared = shared[: next(differ, min(len(shared), len(scope)))]
    return "/".join(shared)


def _is_idle(step: Step) -> bool:
    """Whether a step copies something to where it is."""
    return isinstance(step, CopyStep) and step.out == step.source
