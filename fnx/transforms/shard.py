"""Partitioning: the program that one of several devices runs for all of them.

Receives a program over whole arrays, the axes of a mesh, and how the inputs (and some
outputs) are cut along them; gives the program over one device's parts, with collectives
where parts have to meet, and how the outputs are cut. Each equation is cut as its
operands are: along axes of its output, or along axes that it folds, whose partial
results are combined. What cannot be cut so is an error that names it, or, if that is
asked for, is computed whole on every device. Next on the walk: `fnx/control`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from fnx import errors
from fnx.core.cache import cached
from fnx.core.primitive import Flow, primitive
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.core.trace import bind, evaluate, source_of
from fnx.core.types import ArrayType
from fnx.dtypes import int32
from fnx.ops.arithmetic import add, mul
from fnx.ops.collective import all_gather, pmax, pmin, psum
from fnx.ops.elementwise import convert, eq
from fnx.ops.index import dynamic_slice
from fnx.ops.meeting import axis_index
from fnx.ops.sending import pbroadcast
from fnx.ops.shape import full, permute, reshape, scalar
from fnx.records import record
from fnx.transforms.rewrite import rewrite

Names = tuple[Hashable, ...]

Spec = tuple[Names, ...]
"""For each axis of an array the axes of the mesh that cut it, the slowest first."""

OpenSpec = tuple[Names | None, ...]
"""How an array is to be cut; an axis with `None` stays as it is."""

# So many equations at most are computed again for a part of what they give.
_DEEPEST = 40

# What partial results of a fold are combined by.
_COMBINE = {"add": psum, "max": pmax, "min": pmin}


@record
class Part:
    """A device's part of an array, and how the array is cut.

    Of one that every device has, `again` computes what is left of a cut, if that is
    cheap: no device then computes more than its part. `depth` is how many equations
    that are at most.
    """

    value: Any
    spec: Spec
    again: Callable[[Spec], Any] | None = None
    depth: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every device has all of it."""
        return not any(self.spec)


@cached
def partition_program(
    program: Program,
    axes: tuple[tuple[Hashable, int], ...],
    ins: tuple[Spec, ...],
    outs: tuple[OpenSpec | None, ...],
    replicate: bool,
) -> tuple[Program, tuple[Spec, ...]]:
    """The program of one device, and how its outputs are cut.

    `outs` has what is wanted of the outputs, `None` for whatever comes.
    """
    found: tuple[Spec, ...] = ()

    def run(*args: Any) -> list[Any]:
        nonlocal found
        cutter = Cutter(dict(axes), replicate)
        rows = zip(args, ins, strict=True)
        ends = cutter.run(program, [Part(x, spec) for x, spec in rows])
        pairs = zip(ends, outs, strict=True)
        ends = [x if spec is None else cutter.settled(x, spec) for x, spec in pairs]
        found = tuple([end.spec for end in ends])
        return [end.value for end in ends]

    sizes = dict(axes)
    rows = zip(program.input_types, ins, strict=True)
    types = [part_type(type, spec, sizes) for type, spec in rows]
    return rewrite(run, types, "partition", program), found


def part_type(type: ArrayType, spec: Spec, sizes: dict[Hashable, int]) -> ArrayType:
    """The type of a device's part of an array."""
    return type.with_shape(Cutter(sizes, False).local(type.shape, spec))


def _count(names: Names, sizes: dict[Hashable, int]) -> int:
    count = 1
    for name in names:
        count *= sizes[name]
    return count


class Cutter:
    """Computes with parts; `sizes` are those of the mesh's axes.

    With `replicate`, what cannot be cut is computed whole on every device.
    """

    def __init__(self, sizes: dict[Hashable, int], replicate: bool) -> None:
        self.sizes = sizes
        self.replicate = replicate

    def run(self, program: Program, inputs: Sequence[Part]) -> list[Part]:
        """The parts of a program's outputs."""
        if not self.sizes:
            ends = evaluate(program, [part.value for part in inputs])
            return [Part(x, tuple([()] * len(x.type.shape))) for x in ends]
        values: dict[Var, Part] = dict(zip(program.inputs, inputs, strict=True))
        for eqn in program.eqns:
            with source_of(eqn):
                parts = [self._atom(values, atom) for atom in eqn.inputs]
                results = self._apply(eqn, parts)
            values.update(zip(eqn.outputs, results, strict=True))
        return [self._atom(values, atom) for atom in program.outputs]

    def _atom(self, values: dict[Var, Part], atom: Any) -> Part:
        if isinstance(atom, Var):
            return values[atom]
        return Part(atom, tuple([()] * len(atom.type.shape)))

    def _apply(self, eqn: Eqn, parts: list[Part]) -> Sequence[Part]:
        found = eqn.primitive.cut(self, eqn, parts)
        if found is not None:
            return list(found)
        if eqn.primitive.effect:
            return self.once(eqn, parts)
        body = eqn.primitive.body(**eqn.params)
        if body is not None:
            return self.run(body, parts)
        if all(part.is_whole for part in parts):
            return self._with_again(eqn, parts, self.whole(eqn, parts))
        along = self._along(eqn, parts)
        if along is not None:
            return along
        if not self.replicate:
            raise self._refused(eqn, parts)
        return self.whole(eqn, parts)

    def whole(self, eqn: Eqn, parts: Sequence[Part]) -> list[Part]:
        """An equation on whole arrays, the same on every device."""
        inputs = [self.gathered(part).value for part in parts]
        results = bind(eqn.primitive, inputs, eqn.params)
        many = results if eqn.primitive.multiple else (results,)
        return [Part(x, tuple([()] * len(x.type.shape))) for x in many]

    def once(self, eqn: Eqn, parts: Sequence[Part]) -> list[Part]:
        """An equation with an effect, which the first device has for all of them."""
        first: Any = scalar(1, int32)
        for name, size in self.sizes.items():
            number = axis_index(axis_name=name, axis_size=size)
            is_first = eq(number, scalar(0, number.dtype))
            first = mul(first, convert(is_first, dtype=int32))
        types = [out.type for out in eqn.outputs]
        inputs = tuple([Var(atom.type) for atom in eqn.inputs])
        outputs = tuple(map(Var, types))
        same = Eqn(eqn.primitive, inputs, outputs, eqn.params, eqn.source)
        act = Program(inputs, (same,), outputs)

        def nothing(*_: Any) -> list[Any]:
            return [full(type.shape, type.dtype, 0) for type in types]

        skip = rewrite(nothing, act.input_types, "partition", act)
        given = [self.gathered(part).value for part in parts]
        found = bind(primitive("cond"), (first, *given), {"branches": (skip, act)})
        for name, size in self.sizes.items():
            found = [
                pbroadcast(x, axis_name=name, source=0, axis_size=size) for x in found
            ]
        return [Part(x, tuple([()] * len(x.type.shape))) for x in found]

    def count(self, names: Names) -> int:
        """In how many parts axes of the mesh cut an axis."""
        return _count(names, self.sizes)

    def divides(self, size: int, names: Names) -> bool:
        """Whether an axis can be cut along axes of the mesh."""
        return size % self.count(names) == 0

    def local(self, shape: tuple[int, ...], spec: Spec) -> tuple[int, ...]:
        """The shape of a device's part."""
        rows = zip(shape, spec, strict=True)
        return tuple([n // _count(names, self.sizes) for n, names in rows])

    def gathered(self, part: Part) -> Part:
        """The array as every device has it."""
        return self.moved(part, tuple([()] * len(part.spec)))

    def settled(self, part: Part, wanted: OpenSpec) -> Part:
        """The array cut as is wanted: an axis that stays lets others have its names."""
        return self.moved(part, settled(part.spec, wanted))

    def moved(self, part: Part, spec: Spec) -> Part:
        """The array cut in another way: what is cut too much is gathered, then cut."""
        if isinstance(part.value, Literal) or part.spec == spec:
            return part
        if part.again is not None:
            return Part(part.again(spec), spec)
        x = part.value
        rows = list(zip(part.spec, spec, strict=True))
        for axis, (now, wanted) in enumerate(rows):
            for name in reversed(now[_common(now, wanted) :]):
                x = _joined(x, axis, name, self.sizes[name])
        for axis, (now, wanted) in enumerate(rows):
            x = self._cut(x, axis, wanted[_common(now, wanted) :])
        return Part(x, spec)

    def _cut(self, x: Any, axis: int, names: Names) -> Any:
        """This device's stretch of an axis."""
        if not names:
            return x
        size = x.shape[axis] // _count(names, self.sizes)
        number = self.place(names)
        start = mul(number, scalar(size, number.dtype))
        zero = scalar(0, number.dtype)
        starts = [start if d == axis else zero for d in range(x.ndim)]
        sizes = tuple([size if d == axis else n for d, n in enumerate(x.shape)])
        return dynamic_slice(x, *starts, sizes=sizes)

    def place(self, names: Names) -> Any:
        """The number of this device among those along axes of the mesh."""
        number = axis_index(axis_name=names[0], axis_size=self.sizes[names[0]])
        for name in names[1:]:
            own = axis_index(axis_name=name, axis_size=self.sizes[name])
            number = add(mul(number, scalar(self.sizes[name], number.dtype)), own)
        return number

    # -- replicas along some axes of the mesh

    def without(self, names: Sequence[Hashable]) -> Cutter:
        """What cuts along the other axes of the mesh only."""
        rest = {name: n for name, n in self.sizes.items() if name not in names}
        return Cutter(rest, self.replicate)

    def within(self, outer: Cutter, part: Part, spec: Spec) -> Part:
        """The part of a replica, which has a part as the spec says, along other axes.

        It stays cut along them as it is, where the replica's part can be.
        """
        rows = zip(part.value.type.shape, part.spec, spec, strict=True)
        shape = [n * outer.count(now) // outer.count(cut) for n, now, cut in rows]
        own = self.remaining(part.spec, shape)
        return Part(outer.moved(part, nested(spec, own)).value, own)

    def remaining(self, spec: Spec, shape: Sequence[int]) -> Spec:
        """What of a cut is along the axes of this mesh, and cuts a shape."""
        found = []
        for names, n in zip(spec, shape, strict=True):
            own = self.own(names)
            found.append(own if self.divides(n, own) else ())
        return tuple(found)

    def own(self, names: Names) -> Names:
        """Those of names that are axes of this mesh."""
        return tuple([name for name in names if name in self.sizes])

    # -- programs that equations hold

    def program(
        self, program: Program, ins: Sequence[Spec], outs: Sequence[Spec | None]
    ) -> tuple[Program, tuple[Spec, ...]]:
        """A held program of one device, and how its outputs are cut."""
        axes = tuple(self.sizes.items())
        return partition_program(program, axes, tuple(ins), tuple(outs), self.replicate)

    def round(
        self,
        program: Program,
        consts: Sequence[Spec],
        carry: Sequence[Spec],
        xs: Sequence[Spec] = (),
    ) -> tuple[Program, tuple[Spec, ...], tuple[Spec, ...]]:
        """A round of a loop on one device, how its carry is cut, and its other outputs.

        What rounds cut further than it is at first is cut so from the start.
        """
        free = (None,) * len(program.outputs)
        settled = False
        while not settled:
            _, found = self.program(program, [*consts, *carry, *xs], free)
            rows = zip(carry, found, strict=False)
            grown = [new if _refines(new, old) else old for old, new in rows]
            settled, carry = grown == [*carry], grown
        outs = (*carry, *free[len(carry) :])
        local, found = self.program(program, [*consts, *carry, *xs], outs)
        return local, tuple(carry), found[len(carry) :]

    def branches(
        self, programs: Sequence[Program], ins: Sequence[Spec]
    ) -> tuple[tuple[Program, ...], tuple[Spec, ...]]:
        """Programs of which one is chosen, and how their outputs are cut alike.

        Each output is cut as in the branch that cuts it most.
        """
        free = (None,) * len(programs[0].outputs)
        found = [self.program(program, ins, free)[1] for program in programs]
        outs = tuple([max(row, key=_cuts) for row in zip(*found, strict=True)])
        return tuple([self.program(p, ins, outs)[0] for p in programs]), outs

    # -- along the axes that equations keep

    def _along(self, eqn: Eqn, parts: Sequence[Part]) -> list[Part] | None:
        """An equation whose axes run from operands to outputs, or are folded."""
        primitive, params = eqn.primitive, eqn.params
        types = [atom.type for atom in eqn.inputs]
        outs = [out.type for out in eqn.outputs]
        flow = primitive.flow(types, outs, **params)
        if flow is None:
            return None
        if primitive.whole_before and not self.replicate and _is_open(flow, parts):
            return None
        sizes = _sizes(flow, types, outs)
        chosen = self._chosen(parts, flow, types, sizes)
        kept = {label for labels in flow.outputs for label in labels}
        folded = [label for label in chosen if label not in kept]
        combine = _COMBINE.get(getattr(primitive, "combine", None) or "")
        if combine is None or primitive.multiple:
            for label in folded:
                chosen[label] = ()
        inputs = []
        for part, type, labels in zip(parts, types, flow.inputs, strict=True):
            spec = _spec(labels, type, chosen, sizes)
            inputs.append(self.moved(part, spec).value)
        specs = [
            _spec(labels, out, chosen, sizes)
            for labels, out in zip(flow.outputs, outs, strict=True)
        ]
        ends = [
            self.local(out.shape, spec) for out, spec in zip(outs, specs, strict=True)
        ]
        local = primitive.localized([x.type.shape for x in inputs], ends, **params)
        results = bind(primitive, inputs, local)
        many = list(results) if primitive.multiple else [results]
        for name in [name for label in folded for name in chosen[label]]:
            assert combine is not None
            size = self.sizes[name]
            many = [combine(x, axis_name=name, axis_size=size) for x in many]
        return [Part(x, spec) for x, spec in zip(many, specs, strict=True)]

    def _with_again(
        self, eqn: Eqn, parts: Sequence[Part], results: list[Part]
    ) -> list[Part]:
        """Whole results of an elementwise equation, and how parts of them are made."""
        primitive, params = eqn.primitive, eqn.params
        depth = 1 + max([part.depth for part in parts], default=0)
        flow = _lanewise_flow(eqn)
        if flow is None or not parts or depth > _DEEPEST:
            return results
        labels = flow.outputs[0]
        types = [atom.type for atom in eqn.inputs]
        outs = [out.type for out in eqn.outputs]
        sizes = _sizes(flow, types, outs)
        whole = tuple([()] * len(labels))
        made: dict[Spec, Sequence[Any]] = {whole: [part.value for part in results]}

        def again(number: int, wanted: Spec) -> Any:
            # An axis without a label is computed as a whole, then cut.
            pairs = zip(labels, wanted, strict=True)
            spec = tuple([() if label is None else names for label, names in pairs])
            if spec not in made:
                chosen = dict(zip(labels, spec, strict=True))
                rows = zip(parts, types, flow.inputs, strict=True)
                inputs = [
                    self.moved(part, _spec(row, type, chosen, sizes)).value
                    for part, type, row in rows
                ]
                shapes = [self.local(out.shape, spec) for out in outs]
                given = [x.type.shape for x in inputs]
                local = primitive.localized(given, shapes, **params)
                found = bind(primitive, inputs, local)
                made[spec] = found if primitive.multiple else (found,)
            return self.moved(Part(made[spec][number], spec), wanted).value

        return [
            Part(part.value, part.spec, partial(again, number), depth)
            for number, part in enumerate(results)
        ]

    def _chosen(
        self,
        parts: Sequence[Part],
        flow: Flow,
        types: Sequence[ArrayType],
        sizes: dict[Any, int],
    ) -> dict[Any, Names]:
        """The axes of the mesh for each label: those of the largest operand first."""
        found: dict[Any, Names] = {None: ()}
        used: set[Hashable] = set()
        for position in sorted(range(len(parts)), key=lambda n: -types[n].size):
            rows = zip(
                parts[position].spec,
                flow.inputs[position],
                types[position].shape,
                strict=False,
            )
            for names, label, n in rows:
                if label in found or sizes[label] != n:
                    continue
                if names and not used & {*names}:
                    found[label] = names
                    used |= {*names}
        for labels in (*flow.inputs, *flow.outputs):
            for label in labels:
                found.setdefault(label, ())
        return found

    def _refused(self, eqn: Eqn, parts: Sequence[Part]) -> Exception:
        shown = ", ".join(
            [
                f"{atom.type} cut {shown_spec(part.spec)}"
                for atom, part in zip(eqn.inputs, parts, strict=True)
            ]
        )
        return errors.OptionError(
            errors.explain(
                f"{eqn.primitive.name} of {shown} cannot be computed in parts",
                "its result's parts need more than parts of its operands",
                "gather them before (fnx.lax.with_sharding_constraint with "
                "PartitionSpec()), write that part with fnx.shard_map, or have such "
                "operations computed whole on every device "
                "(fnx.config.replicate_uncut = True)",
                source=eqn.source,
            )
        )


def settled(spec: Spec, wanted: OpenSpec) -> Spec:
    """How an array is cut that is cut in some way, and then as is wanted.

    >>> settled((("x",), ("y",)), (None, ("z",))), settled((("x",), ()), (None, ("x",)))
    ((('x',), ('z',)), ((), ('x',)))
    """
    taken = {name for names in wanted for name in names or ()}
    rows = zip(spec, wanted, strict=True)
    return tuple(
        [
            tuple([n for n in now if n not in taken]) if new is None else new
            for now, new in rows
        ]
    )


def nested(outer: Spec, inner: Spec) -> Spec:
    """How an array is cut whose parts are cut again."""
    return tuple([(*a, *b) for a, b in zip(outer, inner, strict=True)])


def shown_spec(spec: Spec) -> str:
    """How an array is cut, for people.

    >>> shown_spec((("x",), (), ("y", "z")))
    "('x', None, ('y', 'z'))"
    """
    entries = [n[0] if len(n) == 1 else (tuple(n) or None) for n in spec]
    return repr(tuple(entries))


def _lanewise_flow(eqn: Eqn) -> Flow | None:
    """How axes run in an equation whose outputs are alike and need no others' axes.

    `None` if it is none such: a part of what it makes then needs more than parts.
    """
    primitive = eqn.primitive
    if not primitive.lanewise or primitive.personal:
        return None
    outs = [out.type for out in eqn.outputs]
    flow = primitive.flow([atom.type for atom in eqn.inputs], outs, **eqn.params)
    if flow is None or len({*flow.outputs}) != 1 or len({o.shape for o in outs}) != 1:
        return None
    labels = flow.outputs[0]
    inside = all(label in labels for row in flow.inputs for label in row)
    return flow if inside else None


def _sizes(
    flow: Flow, types: Sequence[ArrayType], outs: Sequence[ArrayType]
) -> dict[Any, int]:
    """How long what has a label is; an axis of length 1 may stand for all of it."""
    found: dict[Any, int] = {}
    rows = zip((*flow.inputs, *flow.outputs), (*types, *outs), strict=True)
    for labels, type in rows:
        for label, n in zip(labels, type.shape, strict=False):
            found[label] = n if n != 1 else found.get(label, n)
    return found


def _spec(
    labels: Sequence[Any],
    type: ArrayType,
    chosen: dict[Any, Names],
    sizes: dict[Any, int],
) -> Spec:
    """How an array is cut whose axes have labels."""
    rows = zip(labels, type.shape, strict=False)
    return tuple([chosen[label] if sizes[label] == n else () for label, n in rows])


def _is_open(flow: Flow, parts: Sequence[Part]) -> bool:
    """Whether an axis is cut that has to be there as a whole."""
    rows = zip(flow.inputs, parts, strict=True)
    pairs = [pair for row, x in rows for pair in zip(row, x.spec, strict=False)]
    return any(label is None and names for label, names in pairs)


def _refines(new: Spec, old: Spec) -> bool:
    """Whether one cut of an array is another one, cut further."""
    rows = zip(new, old, strict=True)
    return all(_common(finer, names) == len(names) for finer, names in rows)


def _cuts(spec: Spec) -> int:
    """How many axes of a mesh cut an array."""
    return sum(map(len, spec))


def _common(first: Names, second: Names) -> int:
    """How many names two cuts of an axis begin with together."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _joined(x: Any, axis: int, name: Hashable, size: int) -> Any:
    """The parts along an axis of the mesh, one after the other along an array's."""
    rows = all_gather(x, axis_name=name, axis_size=size)
    dims = (*range(1, axis + 1), 0, *range(axis + 1, rows.ndim))
    moved = rows if axis == 0 else permute(rows, dims=dims)
    shape = (*x.shape[:axis], size * x.shape[axis], *x.shape[axis + 1 :])
    return reshape(moved, shape=shape)
