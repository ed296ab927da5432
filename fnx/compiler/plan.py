"""The plan: the steps of a program in order, and where each stored value lives.

Receives what `fuse.py` decided, gives a `Plan` that a backend turns into one native
call. A step is a kernel, a matrix product, a copy, or a callback to the host, where an
operation without native code runs by its `reference` rule. Outputs are written where
the caller wants them; everything else shares one arena, in which a value's place is
used again after its last reader. Next on the walk: `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx import errors
from fnx.compiler.fuse import Fused, Group
from fnx.compiler.lower import constant, lower_step
from fnx.compiler.outline import Outlined
from fnx.core.primitive import Primitive
from fnx.core.program import Atom, Eqn, Literal, Program, Var
from fnx.core.types import ArrayType
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import linear_offset
from fnx.kernel.ir import Kernel

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value's bytes are: input or output number `index`, or an arena offset."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}{self.index}" if self.role != "arena" else f"@{self.index}"


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Runs a kernel on buffers."""

    kernel: Kernel
    buffers: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """`batch` products of row-major matrices: out[m,n] = x[m,k] @ y[k,n].

    A transposed operand lies in memory as [k,m] or [n,k].
    """

    dtype: np.dtype[Any]
    out: Place
    x: Place
    y: Place
    batch: int
    m: int
    n: int
    k: int
    transpose_x: bool
    transpose_y: bool


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copies bytes."""

    out: Place
    source: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class HostStep:
    """Runs a primitive's `reference` rule in Python; a literal input is its value."""

    primitive: Primitive
    params: Mapping[str, Any]
    inputs: tuple[Place | Literal, ...]
    input_types: tuple[ArrayType, ...]
    outputs: tuple[Place, ...]
    output_types: tuple[ArrayType, ...]


Step = KernelStep | MatmulStep | CopyStep | HostStep


@dataclass(frozen=True, slots=True)
class Output:
    """How the caller gets an output: buffer number `index`, an input, or a literal."""

    role: str
    index: int
    literal: Literal | None
    type: ArrayType


@dataclass(frozen=True, slots=True)
class Plan:
    """A program ready for a backend.

    `buffers` are the types of the output buffers that the caller allocates.
    """

    inputs: tuple[ArrayType, ...]
    outputs: tuple[Output, ...]
    buffers: tuple[ArrayType, ...]
    steps: tuple[Step, ...]
    arena: int

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in order of first use."""
        kernels = [s.kernel for s in self.steps if isinstance(s, KernelStep)]
        return tuple({kernel.key: kernel for kernel in reversed(kernels)}.values())[
            ::-1
        ]

    def __str__(self) -> str:
        rows = [f"plan: {len(self.steps)} steps, arena {self.arena} bytes"]
        rows += [f"  {n:3d} {_describe(step)}" for n, step in enumerate(self.steps)]
        return "\n".join(rows)


class Value:
    """A stored value while the plan is made: its type, and the step that writes it."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType) -> None:
        self.type = type

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's shape."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The value's dtype."""
        return self.type.dtype

    @property
    def nbytes(self) -> int:
        """The value's bytes."""
        return self.type.size * self.type.dtype.itemsize


@dataclass(frozen=True, slots=True)
class _Draft:
    """A step over values: what it reads and writes, and how to make it from places."""

    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    make: Callable[[Callable[[Value], Place]], Step]
    copies: bool = False


def make_plan(fused: Fused) -> Plan:
    """Orders the steps and places every stored value."""
    builder = PlanBuilder(fused)
    for number, step in enumerate(fused.steps):
        if isinstance(step, Group):
            builder.add_group(step, f"kernel{number}")
        else:
            builder.add_equation(step)
    return builder.finish()


class PlanBuilder:
    """What a `steps` rule writes to; its operands are `Value`s or literals."""

    def __init__(self, fused: Fused) -> None:
        self.fused = fused
        self.outlined = Outlined(fused)
        self.permutes: dict[tuple[ArrayType, tuple[int, ...]], Kernel] = {}
        self.program: Program = fused.program
        self.values: dict[Var, Value] = {v: Value(v.type) for v in self.program.inputs}
        self.drafts: list[_Draft] = []
        self.outputs: tuple[Value, ...] = ()
        self._eqn: Eqn | None = None

    # -- called by `make_plan`

    def add_group(self, group: Group, name: str) -> None:
        """One kernel for a fused group."""
        if group.outputs[0].type.size == 0:
            for var in group.outputs:
                self._value(var)
            return
        lowered = self.outlined.lowered(group, name)
        values = tuple([self._value(var) for var in lowered.values])
        self._add_kernel(lowered.kernel, values)

    def add_equation(self, eqn: Eqn) -> None:
        """The steps of an equation that does not fuse."""
        self.outputs = tuple([self._value(var) for var in eqn.outputs])
        self._eqn = eqn
        inputs = [self._operand(atom) for atom in eqn.inputs]
        if eqn.primitive.has("steps"):
            eqn.primitive.steps(self, *inputs, **eqn.params)
        else:
            self.host()

    def finish(self) -> Plan:
        """The plan, with every value placed."""
        buffers: dict[Value, int] = {}
        outputs = tuple([self._output(atom, buffers) for atom in self.program.outputs])
        inputs = [self.values[var] for var in self.program.inputs]
        places = {value: Place("input", n) for n, value in enumerate(inputs)}
        places |= {value: Place("output", n) for value, n in buffers.items()}
        arena = _place_in_arena(self.drafts, places)
        steps = tuple([draft.make(places.__getitem__) for draft in self.drafts])
        steps = tuple([step for step in steps if not _is_idle(step)])
        types = tuple([value.type for value in buffers])
        return Plan(self.program.input_types, outputs, types, steps, arena)

    def _output(self, atom: Atom, buffers: dict[Value, int]) -> Output:
        if isinstance(atom, Literal):
            return Output("literal", 0, atom, atom.type)
        base = self.fused.base(atom)
        if base in self.program.inputs:
            return Output("input", self.program.inputs.index(base), None, atom.type)
        number = buffers.setdefault(self._value(base), len(buffers))
        return Output("buffer", number, None, atom.type)

    def _value(self, var: Var) -> Value:
        base = self.fused.base(var)
        if base not in self.values:
            self.values[base] = Value(base.type)
        return self.values[base]

    def _operand(self, atom: Atom) -> Value | Literal:
        """The operand of a step; a view has its own type on the same bytes."""
        if isinstance(atom, Literal):
            return atom
        value = self._value(atom)
        return value if value.type is atom.type else _View(value, atom.type)

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
        return k.finish(name)

    def update(
        self,
        operand: Value,
        pulled: Sequence[int],
        domain: tuple[int, ...],
        element: Callable[..., Any],
        combine: str | None,
    ) -> None:
        """The operand's copy, updated in the order of `domain`.

        `element(k, index, *pulls)` gives the index in the output, the value and the
        condition under which it is written; `pulled` are the inputs' positions.
        """
        (out,) = self.outputs
        self.copy(out, operand)

        def build(k: Any, index: Any, buffer: Any, *pulls: Any) -> None:
            target, value, mask = element(k, index, *pulls)
            offset = linear_offset(target, out.shape)
            k.store(buffer, offset, value, combine=combine, mask=mask)

        self._pulling("update", pulled, domain, build, "inout")

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

        self._pulling("scan", (0,), (*others, size), build, "out")

    def _pulling(
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

    def permuted(self, operand: Value, dims: tuple[int, ...]) -> Value:
        """A copy of the operand with its axes in another order."""
        shape = tuple([operand.shape[d] for d in dims])
        out = Value(operand.type.with_shape(shape))

        def build(k: Any, index: Any, buffer: Any, x: Any) -> None:
            source = [index[dims.index(axis)] for axis in range(len(dims))]
            k.store(buffer, linear_offset(index, shape), x(source))

        if 0 not in shape:
            kernel = self.permutes.get((operand.type, dims))
            if kernel is None:
                kernel = self._built("permute", [operand], out, shape, build)
                self.permutes[operand.type, dims] = kernel
            self._add_kernel(kernel, (operand, out))
        return out

    def matmul(
        self,
        out: Value,
        x: Value,
        y: Value,
        *,
        batch: int,
        m: int,
        n: int,
        k: int,
        transpose_x: bool,
        transpose_y: bool,
    ) -> None:
        """A stack of matrix products."""

        def make(place: Callable[[Value], Place]) -> Step:
            ends = place(out), place(_base(x)), place(_base(y))
            return MatmulStep(
                out.dtype, *ends, batch, m, n, k, transpose_x, transpose_y
            )

        self.drafts.append(_Draft((_base(x), _base(y)), (out,), make))

    def copy(self, out: Value, source: Value) -> None:
        """Copies a value's bytes."""

        def make(place: Callable[[Value], Place]) -> Step:
            return CopyStep(place(out), place(_base(source)), out.nbytes)

        self.drafts.append(_Draft((_base(source),), (out,), make, copies=True))

    def host(self) -> None:
        """Runs the current equation by its reference rule, in Python."""
        eqn, outputs = self._eqn, self.outputs
        if eqn is None:
            raise errors.InternalError("plan.host() outside of a steps rule")
        atoms = eqn.inputs
        values = [a if isinstance(a, Literal) else self._value(a) for a in atoms]

        def make(place: Callable[[Value], Place]) -> Step:
            return HostStep(
                eqn.primitive,
                eqn.params,
                tuple([v if isinstance(v, Literal) else place(v) for v in values]),
                tuple([atom.type for atom in atoms]),
                tuple([place(out) for out in outputs]),
                tuple([var.type for var in eqn.outputs]),
            )

        reads = tuple([v for v in values if isinstance(v, Value)])
        self.drafts.append(_Draft(reads, outputs, make))

    def filled(self, literal: Literal, shape: tuple[int, ...]) -> Value:
        """A literal as a stored value."""
        out = Value(ArrayType(shape, literal.type.dtype))

        def build(k: Any, index: Any, buffer: Any) -> None:
            k.store(buffer, linear_offset(index, shape), constant(k, literal))

        self.kernel("fill", [], out, shape, build)
        return out

    def _add_kernel(self, kernel: Kernel, values: tuple[Value, ...]) -> None:
        bases = tuple([_base(value) for value in values])
        pairs = list(zip(bases, kernel.buffers, strict=True))
        writes = tuple([v for v, buffer in pairs if buffer.role != "in"])
        reads = tuple([v for v, buffer in pairs if buffer.role != "out"])

        def make(place: Callable[[Value], Place]) -> Step:
            return KernelStep(kernel, tuple([place(v) for v in bases]))

        self.drafts.append(_Draft(reads, writes, make))


class _View(Value):
    """A value whose bytes are another's."""

    __slots__ = ("base",)

    def __init__(self, base: Value, type: ArrayType) -> None:
        super().__init__(type)
        self.base = base


def _base(value: Value) -> Value:
    return value.base if isinstance(value, _View) else value


class _Stored:
    """A stored operand as a kernel of a `steps` rule sees it."""

    __slots__ = ("buffer", "k", "type")

    def __init__(self, k: KernelBuilder, value: Value, name: str) -> None:
        self.k = k
        self.type = value.type
        self.buffer = k.buffer(name, value.dtype, value.type.size, "in")

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
        return self.k.load(self.buffer, linear_offset(tuple(index), self.shape))


# ---------------------------------------------------------------- memory


def _place_in_arena(drafts: Sequence[_Draft], places: dict[Value, Place]) -> int:
    """Gives every value without a place one in the arena; the arena's size in bytes."""
    last_use: dict[Value, int] = {}
    for number, draft in enumerate(drafts):
        for value in (*draft.reads, *draft.writes):
            last_use[value] = number
    becomes = _renamed(drafts, places, last_use)
    free = _FreeList()
    ending: dict[int, list[Value]] = {}
    for number, draft in enumerate(drafts):
        for value in draft.reads:
            # Nothing writes an array without elements.
            places.setdefault(value, Place("arena", 0))
        for written in draft.writes:
            value = becomes.get(written, written)
            if value not in places:
                places[value] = Place("arena", free.take(_rounded(value.nbytes)))
                ending.setdefault(last_use[value], []).append(value)
            places[written] = places[value]
        for value in ending.pop(number, ()):
            free.give(places[value].index, _rounded(value.nbytes))
    return free.size


def _renamed(
    drafts: Sequence[_Draft], places: Mapping[Value, Place], last_use: dict[Value, int]
) -> dict[Value, Value]:
    """The copies of values that nothing reads any more: they take over their places."""
    becomes: dict[Value, Value] = {}
    made: set[Value] = set()
    for number, draft in enumerate(drafts):
        made.update(draft.writes)
        if draft.copies:
            (source,), (out,) = draft.reads, draft.writes
            ends = last_use[source] == number and source.nbytes == out.nbytes
            if ends and source in made and source not in places:
                becomes[source] = out
    for source in reversed(becomes):
        becomes[source] = becomes.get(becomes[source], becomes[source])
    return becomes


def _rounded(nbytes: int) -> int:
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


class _FreeList:
    """The free blocks of a growing arena; the smallest that fits is taken."""

    def __init__(self) -> None:
        self.size = 0
        self.blocks: list[tuple[int, int]] = []  # (offset, size), by offset

    def take(self, size: int) -> int:
        fitting = [block for block in self.blocks if block[1] >= size]
        if not fitting:
            return self._grow(size)
        offset, room = min(fitting, key=lambda block: block[1])
        self.blocks.remove((offset, room))
        if room > size:
            self.give(offset + size, room - size)
        return offset

    def _grow(self, size: int) -> int:
        offset = self.size
        if self.blocks and sum(self.blocks[-1]) == self.size:
            offset = self.blocks.pop()[0]
        self.size = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for block in sorted([*self.blocks, (offset, size)]):
            if merged and sum(merged[-1]) == block[0]:
                merged[-1] = (merged[-1][0], merged[-1][1] + block[1])
            else:
                merged.append(block)
        self.blocks = merged


def _is_idle(step: Step) -> bool:
    """Whether a step copies something to where it is."""
    return isinstance(step, CopyStep) and step.out == step.source


def _describe(step: Step) -> str:
    match step:
        case KernelStep(kernel, buffers):
            sizes = [b.size * b.dtype.itemsize for b in kernel.buffers]
            shown = ", ".join(f"{p}" for p in buffers)
            return f"{kernel.name}({shown})  {sum(sizes)} bytes"
        case MatmulStep():
            x = f"{step.x}{'ᵀ' if step.transpose_x else ''}"
            y = f"{step.y}{'ᵀ' if step.transpose_y else ''}"
            size = f"{step.batch}×{step.m}×{step.n}×{step.k}"
            return f"{step.out} = {x} @ {y}  {size} {step.dtype}"
        case CopyStep(out, source, nbytes):
            return f"{out} = copy {source}  {nbytes} bytes"
        case HostStep():
            ends = ", ".join(map(str, step.outputs))
            inputs = ", ".join(map(str, step.inputs))
            return f"{ends} = host {step.primitive.name}({inputs})"
