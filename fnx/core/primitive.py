"""Primitive: what an equation means. One object an operation, every rule a method.

A subclass overrides the rules that it has; a rule that is asked for and missing raises
`MissingRule` with the place where it belongs. Fusibility and linearity are attributes
here, never lists of names elsewhere. Families of primitives that share rules are in
`fnx.ops.families`. Next on the walk: the rules themselves, in `fnx.ops`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fnx import errors
from fnx.core.attended import Attended
from fnx.core.faults import Fault
from fnx.core.layout import Convolved, Layout
from fnx.core.links import Links, aligned
from fnx.core.program import (
    Atom,
    Eqn,
    Literal,
    Program,
    Var,
    sub_programs,
    unfilled_outputs,
)
from fnx.core.trace import bind
from fnx.core.types import ArrayType

RULES = ("infer", "reference", "jvp", "transpose", "batch", "element", "steps")


class Primitive:
    """An operation that programs are made of; the object is the callable.

    Rules receive arrays (concrete or traced) as positional arguments and the params
    as keywords. `multiple` says whether the rules give a tuple of results or one.

    * `infer(*types, **params)`: the output type, or a user error
    * `reference(*arrays, **params)`: the value, in NumPy
    * `jvp(primals, tangents, **params)`: output and tangent; `None` is a zero tangent
    * `jet(primals, series, **params)`: output and its derivatives of order 1, 2, …
      along a curve; `None` for what does not move. What has no such rule is
      differentiated again and again by `jvp` (see `fnx.transforms.jet`)
    * `transpose(ct, *inputs, **params)`: cotangents of the linear inputs, `None` for
      the others; a linear input is given as a `LinearInput`
    * `batch(axis, args, mapped, **params)`: the same operation one axis up; mapped
      arguments have the new axis at 0; gives the output and whether it is mapped
    * `element(k, index, *inputs, **params)`: the scalar at `index`, as an expression
    * `steps(plan, *inputs, **params)`: how an operation that cannot fuse runs
    * `padded(pads, *inputs, **params)`: the output over inputs that are longer than
      what they hold (see `fnx.core.padding`); params are those of the largest size
    """

    name: str
    multiple: ClassVar[bool] = False
    # Whether the output is a linear function of some inputs (so `transpose` is due).
    linear: bool = False
    # Whether the arguments may be exchanged, for common subexpressions.
    commutative: bool = False
    # Whether eager calls go through the compiler (primitives that hold programs).
    compiled: ClassVar[bool] = False
    # From so many elements of the output on eager calls are compiled, too: where the
    # reference rule takes long; `None` is never. What is `lanewise` shares few kernels.
    compiled_from: int | None = None
    # Whether it does something besides computing its outputs (see `Eqn.effect`).
    effect: ClassVar[bool] = False
    # Whether `batch` must be asked even if no argument is mapped (collectives over a
    # named axis, and primitives that hold programs, which may contain one).
    sees_axes: ClassVar[bool] = False
    # Whether `write` meets other replicas, and takes arrays in the memory of devices
    # (`core.communicator.OnDevice`), too.
    meets: ClassVar[bool] = False
    # Whether one of stacks of the inputs is much faster than one after the other.
    gathers: ClassVar[bool] = False
    # Whether each element of the output depends on few elements of the inputs, and a
    # tangent or cotangent that is 0 there stays 0 whatever the other elements are.
    lanewise: ClassVar[bool] = False
    # Whether its params hold something that is equal only to itself (see `core.cache`).
    personal: ClassVar[bool] = False
    # How many times one element of an input is read while the output is computed:
    # "once" (elementwise, slices), "many" (broadcasts, gathers), "folded" (reductions).
    reads: str = "once"
    # The params that may differ with the size of an axis, as `padded` knows.
    sized: ClassVar[tuple[str, ...]] = ()
    # Whether it is cheap, whatever its params are (see `is_cheap`).
    cheap: bool = False
    # Whether it is one operation of the machine, though a slow one (division, root).
    division: bool = False
    # The well-known routine that it is ("sort"), which a backend may have code for that
    # runs in place of `reference`; it takes the inputs and params as they are.
    routine: ClassVar[str | None] = None
    # Whether the elements of its outputs are elements of its inputs.
    moves: ClassVar[bool] = False
    # Whether on several devices an axis that it needs as a whole has to be whole
    # before: gathering it would have every device compute all of what takes long.
    whole_before: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        self.name = name
        _registry[name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Applies the primitive: recorded inside a trace, run at once outside any."""
        return bind(self, args, params)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return primitive, (self.name,)

    def infer(self, *types: ArrayType, **params: Any) -> Any:
        """The output type (a tuple of types if `multiple`), or a user error."""
        raise self.missing("infer")

    def reference(self, *arrays: Any, **params: Any) -> Any:
        """The value in NumPy: eager path, constant folding, oracle of the tests."""
        raise self.missing("reference")

    def write(self, outputs: Sequence[Any], *arrays: Any, **params: Any) -> None:
        """Writes the value into NumPy arrays: what a step on the host does."""
        values = self.reference(*arrays, **params)
        many = values if self.multiple else (values,)
        for out, value in zip(outputs, many, strict=True):
            out[...] = value

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Output and tangent; `None` stands for a zero tangent."""
        raise self.missing("jvp")

    def jet(
        self, primals: Sequence[Any], series: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Output and its derivatives along a curve; `None` for what does not move."""
        raise self.missing("jet")

    def transpose(self, ct: Any, *inputs: Any, **params: Any) -> Sequence[Any]:
        """Cotangents of the linear inputs, `None` for the others."""
        raise self.missing("transpose")

    def batch(
        self, axis: Any, args: Sequence[Any], mapped: Sequence[bool], **params: Any
    ) -> tuple[Any, Any]:
        """The operation over arguments with a leading axis; output and mapped."""
        raise self.missing("batch")

    def element(self, k: Any, index: Any, *inputs: Any, **params: Any) -> Any:
        """The scalar at `index` as a kernel expression (a tuple if `multiple`)."""
        raise self.missing("element")

    def steps(self, plan: Any, *inputs: Any, **params: Any) -> Any:
        """Adds to `plan` the steps that compute this operation."""
        raise self.missing("steps")

    def padded(self, pads: Any, *inputs: Any, **params: Any) -> Any:
        """The output over `Padded` inputs, right where it is no padding itself."""
        raise self.missing("padded")

    def split(
        self, known: Sequence[bool], eqn: Eqn
    ) -> tuple[Sequence[Eqn], Sequence[Eqn]] | None:
        """The equation cut in known and unknown ones; `None` if it is atomic.

        Only primitives that hold programs can be cut: the known equations' outputs
        are the known outputs (the variables that `eqn` has for them) and the residuals
        that the unknown equations read.
        """
        return None

    def body(self, **params: Any) -> Program | None:
        """The program that an equation stands for, if the compiler may inline it."""
        return None

    def body_on(self, backend: str, **params: Any) -> Program | None:
        """The program that the compiler inlines for a backend: mostly the body."""
        return self.body(**params)

    def on_backend(self, backend: str, **params: Any) -> Literal | None:
        """The output, if it is known as soon as it is known where the program runs."""
        return None

    def acts(self, eqn: Eqn) -> bool:
        """Whether an equation has the effects of a program that it holds."""
        return any(program.effect for program in sub_programs(eqn))

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """The equation without what only its unused outputs need.

        Only primitives that hold programs can be cut: the outputs that remain are some
        of `eqn`'s, among them the used ones, and so are the inputs.
        """
        return eqn

    def unfilled(self, eqn: Eqn, given: Sequence[bool]) -> Sequence[bool]:
        """Which outputs have elements that nobody has written, and that nobody reads.

        So have the rows of a loop that might have made more rounds. `given` says it of
        the inputs.
        """
        program = self.body(**eqn.params)
        if program is not None:
            return unfilled_outputs(program, given)
        return [self.moves and any(given)] * len(eqn.outputs)

    def faults(
        self, inputs: Sequence[Any], outputs: Sequence[ArrayType], **params: Any
    ) -> Iterable[Fault]:
        """What may be wrong with one application, besides what results show (NaN).

        The inputs are traced arrays or literals, the outputs their types.
        """
        return ()

    def checked(
        self, found: Any, eqn: Eqn, inputs: Sequence[Any]
    ) -> Sequence[Any] | None:
        """The outputs of an equation whose programs are checked, and noted in `found`.

        `found` is a `fnx.control.findings.Findings`. `None` for what holds no programs,
        and for an equation that is applied as it is, with checks of its body beside it.
        """
        return None

    def kept(self, eqn: Eqn, used: Sequence[bool], keep: Any) -> Any:
        """What a policy of `remat` keeps of the programs that an equation holds.

        That is for its used outputs. `keep(program, wanted)` says it of one program;
        the result is a `fnx.control.keep.Kept`, of one equation that gives the same
        and more. `None` if there is nothing to be kept.
        """
        return None

    def looped(self, inputs: Sequence[Any], **params: Any) -> Looped | None:
        """What an equation of these operands repeats; `None` if it is no loop."""
        return None

    def over_rows(self, **params: Any) -> dict[str, Any] | None:
        """Params for stacks of the inputs, which give the sum over their members.

        `None` if there are none such.
        """
        return None

    def summed(
        self, axes: Sequence[int], types: Sequence[ArrayType], params: Any
    ) -> dict[str, Any] | None:
        """Params that give the sum over some axes of the output, for the same inputs.

        `types` are those of the inputs. `None` if there are none such, or none faster.
        """
        return None

    def taken_by(self, maker: Eqn, **params: Any) -> dict[str, Any] | None:
        """Params with which the maker of the only input computes this output itself.

        `None` if it cannot. What is rounded on the way may differ.
        """
        return None

    def hoisted(self, eqn: Eqn) -> Sequence[Eqn] | None:
        """Equations that do the same; what need not be done in a loop is outside of it.

        `None` if there is nothing to be taken out.
        """
        return None

    def fusible(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Whether `element` serves these input types."""
        return self.has("element")

    def product(
        self, types: Sequence[ArrayType], params: Any
    ) -> tuple[np.dtype[Any], np.dtype[Any], tuple[int, int, int, int]] | None:
        """The matrix products that it is, if it is some.

        That is the dtypes of operands and result; how many there are, and their rows,
        columns and summands. Where a backend has them and they pay, it does not fuse.
        """
        return None

    def shared_by_threads(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Whether one over a stack is as fast as one for each member in its own thread.

        Replicas may then compute theirs together. By default that holds for what is
        part of a kernel, matrix products and collectives, which become part of kernels.
        """
        return (
            self.fusible(types, params)
            or self.product(types, params) is not None
            or self.sees_axes
        )

    def convolved(
        self, types: Sequence[ArrayType], params: Any
    ) -> tuple[np.dtype[Any], np.dtype[Any], Convolved] | None:
        """The convolution that it is, if it is one that is no matrix product as such.

        That is the dtypes of operands and result, and its numbers for arrays that are
        stored by themselves.
        """
        return None

    def attends(self, **params: Any) -> tuple[str, Attended] | None:
        """What it computes of an attention, if it is one: that, or its gradients."""
        return None

    def alignment(
        self, position: int, types: Sequence[ArrayType], **params: Any
    ) -> tuple[int | None, ...] | None:
        """For each axis of an input, the output axis that it runs along.

        `None` for an axis that is folded away. `None` as a whole (the default) where
        an input's index is no such renaming of the output's.
        """
        return None

    def folded_together(self, **params: Any) -> Sequence[tuple[Any, Any]]:
        """Pairs of folded axes of two inputs that are folded as one.

        Each axis is (position of the input, number of the axis).
        """
        return ()

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], **params: Any
    ) -> Flow | None:
        """How axes run from the inputs to the outputs; `None` if nobody knows.

        By default as `alignment` says.
        """
        rows: list[list[Any]] = []
        for position, type in enumerate(types):
            way = self.alignment(position, types, **params)
            if way is None or len(way) != len(type.shape):
                return None
            own = enumerate(way)
            rows.append([(position, axis) if to is None else to for axis, to in own])
        for (left, axis), (right, other) in self.folded_together(**params):
            rows[right][other] = rows[left][axis]
        ends = tuple([tuple(range(len(out.shape))) for out in outs])
        return Flow(tuple([tuple(row) for row in rows]), ends)

    def localized(
        self,
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
        **params: Any,
    ) -> Mapping[str, Any]:
        """Params for parts of these shapes, which are cut along axes of the `flow`."""
        return params | {"shape": outputs[0]} if "shape" in params else params

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """The parts of the outputs for parts of the inputs, on one of several devices.

        `cutter` is a `fnx.transforms.shard.Cutter`, the parts are its `Part`s. `None`
        where `body` or `flow` tells it.
        """
        return None

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        **params: Any,
    ) -> Links | None:
        """Which elements of an input move which elements of the output.

        `known` are the values of the inputs that have one. `None`: every element of the
        input moves every one of the output.
        """
        alignment = self.alignment(position, types, **params)
        if alignment is None:
            return None
        return aligned(types[position].shape, out.shape, alignment)

    def dependences(
        self, follow: Any, sets: Sequence[Any], known: Sequence[Any], **params: Any
    ) -> Sequence[Any] | None:
        """The index sets of the outputs of a primitive that holds programs.

        `follow(program, sets, known)` gives those of a program's outputs. `None` if
        `links` tells them.
        """
        return None

    def is_cheap(self, **params: Any) -> bool:
        """Whether computing the output again is as cheap as loading it."""
        return self.cheap

    def pulled(self, types: Sequence[ArrayType], params: Any) -> dict[int, Pulled]:
        """The inputs of which `steps` pulls each element once, into a kernel.

        What makes them may be computed there, so that they need not be stored.
        """
        return {}

    def viewed(self, layout: Layout, x: ArrayType, **params: Any) -> Layout | None:
        """Where the output's elements lie, if they are those of the input.

        The input `x` lies at the layout; `None` if there is no layout. Each output is
        that of the input at its place, if there are several.
        """
        return None

    def written(self, layout: Layout, **params: Any) -> Layout | None:
        """Where the input must lie so that the output, which is all of it, lies there.

        `None` if there is no layout.
        """
        return None

    def copied(
        self, types: Sequence[ArrayType], layouts: Sequence[Layout], **params: Any
    ) -> int | None:
        """How many elements `steps` copies, if inputs and outputs lie at the layouts.

        The layouts are those of the inputs, then those of the outputs. `None` if
        `steps` needs every array stored by itself.
        """
        return None

    def absorb(
        self, inputs: Sequence[Atom], makers: Mapping[Var, Eqn], **params: Any
    ) -> tuple[Sequence[Atom], dict[str, Any]] | None:
        """Inputs and params that take in the equations `makers` of some inputs.

        The output must be the same, bit for bit.
        """
        return None

    def identity(self, inputs: Sequence[Atom], **params: Any) -> Atom | None:
        """The input or literal that the output is equal to, bit for bit, if any."""
        return None

    def has(self, rule: str) -> bool:
        """Whether this primitive overrides a rule."""
        return getattr(type(self), rule) is not getattr(Primitive, rule)

    def missing(self, rule: str) -> Exception:
        """The error for a rule that was asked for and is not there."""
        return errors.MissingRule(self.name, rule, inspect.getfile(type(self)))


_registry: dict[str, Primitive] = {}


def primitive(name: str) -> Primitive:
    """The primitive of that name."""
    return _registry[name]


def primitives() -> list[Primitive]:
    """Every primitive, in order of definition."""
    return list(_registry.values())


class Looped(NamedTuple):
    """A loop: `body` takes constants, the carry and a row, and gives the next carry.

    What else it gives are results. There are `count` rounds, an int or an int32 scalar,
    or as many as `test` says, which takes constants of its own and the carry. Of the
    rows of `xs`, a `reverse`d loop takes the last one first.
    """

    body: Program
    consts: Sequence[Any]
    carry: Sequence[Any]
    xs: Sequence[Any] = ()
    count: Any = None
    reverse: bool = False
    test: Program | None = None
    tests: Sequence[Any] = ()


class Flow(NamedTuple):
    """A label for each axis of each input and output.

    What has one label runs together. A label of no output is folded away. `None` is for
    an axis that has to be there as a whole.
    """

    inputs: tuple[tuple[Any, ...], ...]
    outputs: tuple[tuple[Any, ...], ...]


class Pulled(NamedTuple):
    """How the kernel of a step reads an input.

    `ordered`: its outer loops are the input's axes in order. `serial`: one element
    after the other, so that functions had better be computed before.
    """

    ordered: bool
    serial: bool


class LinearInput:
    """Given to `transpose` in the place of an input that is linear: only its type."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType) -> None:
        self.type = type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the input."""
        return self.type.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the input."""
        return self.type.dtype


def is_linear(value: Any) -> bool:
    """Whether a transpose rule's input is one that it owes a cotangent."""
    return isinstance(value, LinearInput)


class MappedAxis(NamedTuple):
    """The axis that a `batch` rule maps over: its name, if it has one, and its size.

    With `in_order`, sums over it are made in the order of its members.
    """

    name: Any
    size: int
    in_order: bool = False
