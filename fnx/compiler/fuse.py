"""Fusion: decides which values are stored, and which kernel computes each of them.

Receives a flat program, gives `Fused`: the steps in order (groups of values computed by
one kernel, and equations that run as steps of their own) and the values that are views
of others. A value that is not stored is computed inline by every kernel that reads it.

One walk from the outputs back. A value's *homes* are the kernels that would compute it
inline. With one home it is inlined; with several it is inlined where that is as cheap
as a load, else the homes are merged, else it is stored. Two facts about how a home
reads a value matter, and primitives tell them by their `alignment` rule:

* *aligned*: at a prefix of the index of the home's domain, followed by folded axes. A
  row statistic that is broadcast back over its row is aligned, so it is computed once a
  row, and softmax or layer norm become one kernel;
* *exact*: at the whole index, nothing folded; then a stored value can be a further
  output of that home.

A costly value that is much smaller than what is made of it (a row statistic that two
kernels need) is stored rather than what is made of it.

Steps with effects run in the order of the program: each *follows* the one before it, as
if it read something of it, so that no kernel is made that would have to run between
them and around them.

What steps read and write with strides need not be stored by itself: `origins.py`.
Next on the walk: `beside.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from fnx import errors
from fnx.compiler.origins import Origin, find_origins, layout_through, views_of
from fnx.compiler.reading import (
    REDUCTION,
    SIMPLE,
    alignment,
    is_fusible,
    is_narrow,
    is_small_part,
    own_cost,
    product_of,
    rank,
    repeats,
    row_prefix,
    sums_rows,
)
from fnx.compiler.target import Target
from fnx.core.layout import Layout
from fnx.core.primitive import Pulled
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.records import record

# A value that costs no more than this is computed again rather than stored.
_CHEAP = 6
# The same for a value of which each kernel that reads it needs every element once.
_CHEAP_ONCE = 11
# What a kernel without lanes or threads may compute rather than load.
_SERIAL = 16
LARGEST = 200
"""Equations in one kernel: beyond this, compiling it costs more than a store and a
load."""


@record
class Group:
    """Values of one shape that one kernel computes."""

    outputs: tuple[Var, ...]


@record
class Fused:
    """The program cut in steps; `views` maps a value to the one whose bytes it has.

    `origins` says where a step reads an operand (by equation and position) that is not
    stored itself, `layouts` where the values lie that are not row-major.
    """

    program: Program
    steps: tuple[Group | Eqn, ...]
    views: dict[Var, Var]
    origins: dict[tuple[Eqn, int], Origin]
    layouts: dict[Var, Layout]
    makers: dict[Var, Eqn]
    stored: frozenset[Var]
    target: Target

    def base(self, var: Var) -> Var:
        """The value whose bytes a value has: itself, or what it is a view of."""
        while var in self.views:
            var = self.views[var]
        return var


@dataclass(slots=True)
class _Kernel:
    """A kernel in the making: its domain, its outputs, the equations it computes.

    That of a step has no outputs, only what is pulled: the step is its equation's. It
    is `ordered` if its loops are those of the domain in their order.
    """

    domain: tuple[int, ...]
    outputs: list[Var] = field(default_factory=list)
    eqns: set[int] = field(default_factory=set)
    merged: _Kernel | None = None
    step: int | None = None
    ordered: bool = True

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


# What reads a stored value: a kernel, or the number of an equation that is a step.
_Node = _Kernel | int


@record
class _Use:
    """One place where a value is read: equation number and operand position."""

    eqn: int
    position: int


def fuse(program: Program, target: Target) -> Fused:
    """Cuts a flat program in kernels and steps, among them products that pay."""
    return _Fuser(program, target).run()


class _Fuser:
    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.eqns = program.eqns
        self.maker = {v: n for n, eqn in enumerate(self.eqns) for v in eqn.outputs}
        self.uses: dict[Var, list[_Use]] = {}
        for number, eqn in enumerate(self.eqns):
            for position, atom in enumerate(eqn.inputs):
                if isinstance(atom, Var):
                    self.uses.setdefault(atom, []).append(_Use(number, position))
        self.fusible = [is_fusible(eqn, target.products) for eqn in self.eqns]
        self.cost = self._costs()
        self.forced = {a for a in program.outputs if isinstance(a, Var)}
        self.homes: dict[Var, set[_Kernel]] = {}
        # How many axes of a value run along the domain of each home that reads it
        # aligned, while the rest is folded; -1 for the other homes.
        self.aligned: dict[Var, dict[_Kernel, int]] = {}
        self.reductions: dict[object, list[tuple[_Kernel, set[Var]]]] = {}
        self.views: dict[Var, Var] = {}
        self.origins: dict[tuple[Eqn, int], Origin] = {}
        self.layouts: dict[Var, Layout] = {}
        # The steps that read a value as an origin.
        self.origin_of: dict[Var, list[int]] = {}
        self.pulled: dict[Var, set[_Kernel]] = {}
        acting = [number for number, eqn in enumerate(self.eqns) if eqn.effect]
        self.after = dict(pairwise(acting))
        self.before = {later: earlier for earlier, later in self.after.items()}

    def run(self) -> Fused:
        for number in reversed(range(len(self.eqns))):
            eqn = self.eqns[number]
            if self.fusible[number]:
                for var in eqn.outputs:
                    self._place(number, var)
            else:
                self._step_inputs(number)
                self.views.update(views_of(eqn))
        makers = {var: self.eqns[n] for var, n in self.maker.items()}
        steps = self._ordered()
        stored = frozenset(var for step in steps for var in step.outputs)
        return Fused(
            self.program,
            steps,
            self.views,
            self.origins,
            self.layouts,
            makers,
            stored,
            self.target,
        )

    def _step_inputs(self, number: int) -> None:
        """Stores what a step reads, but for what its own kernel may compute."""
        eqn = self.eqns[number]
        pulled = eqn.primitive.pulled([atom.type for atom in eqn.inputs], eqn.params)
        self._find_origins(number)
        for position, atom in enumerate(eqn.inputs):
            if (eqn, position) in self.origins or not isinstance(atom, Var):
                continue
            how = pulled.get(position)
            if how is None or eqn.inputs.count(atom) > 1 or not self._suits(atom, how):
                self.forced.add(atom)
                continue
            home = _Kernel(atom.type.shape, step=number, ordered=how.ordered)
            self.pulled.setdefault(atom, set()).add(home)

    def _suits(self, var: Var, how: Pulled) -> bool:
        """Whether what makes a value may run in the kernel of a step that pulls it.

        Without lanes and threads these are but a few simple operations.
        """
        work, pending = 0, [var] if how.serial else []
        while pending and work <= _SERIAL:
            number = self.maker.get(pending.pop())
            if number is None or not self.fusible[number]:
                continue
            eqn = self.eqns[number]
            work += own_cost(eqn) if own_cost(eqn) == SIMPLE else REDUCTION
            inputs = [atom for atom in eqn.inputs if isinstance(atom, Var)]
            pending += [atom for atom in inputs if atom not in self.forced]
        return work <= _SERIAL

    # -- what lies in other values

    def _find_origins(self, number: int) -> None:
        """Has a step read what operands are made of, where that copies no more."""
        eqn = self.eqns[number]
        found = find_origins(eqn, self.layouts, self._computed)
        for position, origin in found.items():
            self.origins[eqn, position] = origin
            self.origin_of.setdefault(origin.var, []).append(number)
            self.forced.add(origin.var)

    def _computed(self, var: Var) -> Eqn | None:
        """What computes a value that need not be stored, as far as that is decided."""
        number = self.maker.get(var)
        if number is None or var in self.forced or not self.fusible[number]:
            return None
        return self.eqns[number]

    def _write_through(self, number: int, var: Var) -> bool:
        """Has the step that makes a value's source put it where the value lies.

        It may if nothing else reads the source.
        """
        eqn = self.eqns[number]
        source = eqn.inputs[0] if eqn.primitive.has("written") else None
        maker = self.maker.get(source) if isinstance(source, Var) else None
        if not isinstance(source, Var) or maker is None or self.fusible[maker]:
            return False
        if source in self.forced or len(self.uses[source]) > 1:
            return False
        layout = layout_through(eqn, self.eqns[maker])
        if layout is None:
            return False
        self.layouts[source] = layout
        self.views[var] = source
        return True

    # -- what recomputing costs

    def _costs(self) -> list[int]:
        costs: list[int] = []
        for eqn, fusible in zip(self.eqns, self.fusible, strict=True):
            if not fusible:
                costs.append(1)  # its outputs are stored, and loaded
                continue
            total = own_cost(eqn)
            for atom in eqn.inputs:
                if isinstance(atom, Literal):
                    continue
                number = self.maker.get(atom)
                # Every read counts in full: at another index, it is computed again.
                cost = 1 if number is None else costs[number]
                # What is costly and narrow will be stored, and loaded here.
                total += 1 if cost > _CHEAP and is_narrow(atom, eqn) else cost
            costs.append(min(total, REDUCTION))
        return costs

    # -- where a value goes

    def _place(self, number: int, var: Var) -> None:
        if self._write_through(number, var):
            return
        uses = [use for use in self.uses.get(var, ()) if self.fusible[use.eqn]]
        if self._made_by_product(number):
            self._store(number, var, [], set())
            return
        homes = self._homes_of(uses) | self.pulled.get(var, set())
        if var in self.forced or not self._inline(number, var, uses, homes):
            self._store(number, var, uses, homes)

    def _made_by_product(self, number: int) -> bool:
        """Whether a product that reads the same array may add up its rows."""
        eqn = self.eqns[number]
        if self.target.products.joins is None or not sums_rows(eqn):
            return False
        (rows,) = eqn.inputs
        uses = self.uses.get(rows, ()) if isinstance(rows, Var) else ()
        steps = [self.eqns[use.eqn] for use in uses if not self.fusible[use.eqn]]
        return any(product_of(step) is not None for step in steps)

    def _homes_of(self, uses: Iterable[_Use]) -> set[_Kernel]:
        homes: set[_Kernel] = set()
        for use in uses:
            for out in self.eqns[use.eqn].outputs:
                homes.update(map(_current, self.homes.get(out, ())))
        return homes

    def _inline(
        self, number: int, var: Var, uses: list[_Use], homes: set[_Kernel]
    ) -> bool:
        """Leaves a value to the kernels that read it, if that is wise."""
        if not homes:
            # Steps read what it is made of, or nothing does.
            return True
        cost = self.cost[number]
        if cost > _CHEAP_ONCE and self._read_again(uses, None):
            return False
        parts = (is_small_part(self.eqns[use.eqn], use.position) for use in uses)
        if cost == REDUCTION and any(parts):
            return False
        if _CHEAP < cost <= _CHEAP_ONCE and any(
            self._read_again(self._uses_in(home, uses), home) for home in homes
        ):
            return False
        if len(homes) > 1 and cost > _CHEAP_ONCE:
            merged = self._merge(homes)
            if merged is None:
                return False
            homes = {merged}
        if any(len(home.eqns) >= LARGEST for home in homes):
            return False
        for home in homes:
            home.eqns.add(number)
        self.homes[var] = homes
        self.aligned[var] = {
            home: self._alignment_in(home, var, uses) for home in homes
        }
        return True

    def _alignment_in(self, home: _Kernel, var: Var, uses: list[_Use]) -> int:
        """How many axes of an inlined value run along the domain of a home, or -1."""
        along = (self._axes_along(use, home) for use in self._uses_in(home, uses))
        # A step that pulls the value reads it at its own index, in order or not.
        return min(along, default=rank(var)) if home.ordered else -1

    def _store(
        self, number: int, var: Var, uses: list[_Use], homes: set[_Kernel]
    ) -> None:
        views = views_of(self.eqns[number])
        if views:
            self.views.update(views)
            self.forced.update(views.values())
            return
        eqn = self.eqns[number]
        self.forced.add(var)
        kernel = self._joinable(var, uses, homes) or self._beside(eqn, var)
        kernel.outputs.append(var)
        kernel.eqns.add(number)
        self.homes[var] = {kernel}
        self.aligned[var] = {kernel: rank(var)}

    # -- how a value is read

    def _read_again(self, uses: list[_Use], home: _Kernel | None) -> bool:
        """Whether inlining in one kernel would compute one element many times."""
        elsewhere = [use for use in uses if self._axes_along(use, home) < 0]
        if any(repeats(self.eqns[use.eqn], use.position) for use in elsewhere):
            return True
        return bool(elsewhere) and len(uses) > 1

    def _uses_in(self, home: _Kernel, uses: list[_Use]) -> list[_Use]:
        return [use for use in uses if home in self._homes_of([use])]

    def _axes_along(self, use: _Use, home: _Kernel | None) -> int:
        """How many axes of an operand run along a home's domain; -1: not aligned.

        Without a home, the least of all that inline what reads the operand.
        """
        eqn = self.eqns[use.eqn]
        reading = row_prefix(eqn, use.position)
        if reading is None:
            return -1
        found = [
            axes
            for out in eqn.outputs
            for kernel, axes in self.aligned.get(out, {}).items()
            if home is None or _current(kernel) is home
        ]
        return min([reading, *found])

    def _reads_exactly(self, use: _Use, home: _Kernel) -> bool:
        operand = self.eqns[use.eqn].inputs[use.position]
        return self._axes_along(use, home) == rank(operand)

    # -- joining kernels

    def _joinable(
        self, var: Var, uses: list[_Use], homes: set[_Kernel]
    ) -> _Kernel | None:
        """A home of which a stored value can be one more output."""
        for home in homes:
            inside = self._uses_in(home, uses)
            if home.domain != var.type.shape or len(home.eqns) >= LARGEST:
                continue
            if home.step is not None:
                continue
            if not all(self._reads_exactly(use, home) for use in inside):
                continue
            others = set(self._readers([var])) - {home}
            if home not in self._view_readers(var) and not self._reach(others, home):
                return home
        return None

    def _beside(self, eqn: Eqn, var: Var) -> _Kernel:
        """A new kernel, or one that reduces common values over the same axes."""
        if eqn.primitive.reads != "folded":
            return _Kernel(var.type.shape)
        shapes = (*(atom.type.shape for atom in eqn.inputs), var.type.shape)
        alike = self.reductions.setdefault((alignment(eqn, 0), shapes), [])
        reads = self._made_of(eqn)
        for kernel, others in alike:
            target = _current(kernel)
            fits = len(target.eqns) < LARGEST and not reads.isdisjoint(others)
            if fits and not self._reach(set(self._readers([var])), target):
                return target
        alike.append((_Kernel(var.type.shape), reads))
        return alike[-1][0]

    def _made_of(self, eqn: Eqn) -> set[Var]:
        """The values of an operand's shape that a reduction is computed from."""
        shape, found = eqn.inputs[0].type.shape, set[Var]()
        pending = list(eqn.inputs)
        while pending and len(found) < LARGEST:
            atom = pending.pop()
            if not isinstance(atom, Var) or atom in found or atom.type.shape != shape:
                continue
            found.add(atom)
            number = self.maker.get(atom)
            if number is not None and self.fusible[number]:
                pending += self.eqns[number].inputs
        return found

    def _merge(self, homes: set[_Kernel]) -> _Kernel | None:
        """One kernel in the place of several that are independent and of one shape."""
        if any(home.step is not None for home in homes):
            return None
        ordered = sorted(homes, key=lambda home: self.maker[home.outputs[0]])
        target, *rest = ordered
        same = all(home.domain == target.domain for home in rest)
        if not same or sum(len(home.eqns) for home in ordered) > LARGEST:
            return None
        for home in ordered:
            readers = set(self._readers(home.outputs))
            if any(self._reach(readers, other) for other in ordered if other != home):
                return None
        for home in rest:
            target.outputs += home.outputs
            target.eqns |= home.eqns
            home.merged = target
        return target

    def _readers(self, stored: Iterable[Var]) -> Iterator[_Node]:
        """The kernels and steps that read stored values, through views too."""
        for var in stored:
            yield from self.origin_of.get(var, ())
            for use in self.uses.get(var, ()):
                if not self.fusible[use.eqn]:
                    yield use.eqn
                    continue
                for out in self.eqns[use.eqn].outputs:
                    if self.views.get(out) is var:
                        yield from self._readers([out])
                    yield from map(_node, self.homes.get(out, ()))

    def _view_readers(self, var: Var) -> set[_Node]:
        """What loads a stored value through views: it has to be there before."""
        reading = [self.eqns[use.eqn] for use in self.uses.get(var, ())]
        outputs = [out for eqn in reading for out in eqn.outputs]
        return set(self._readers([v for v in outputs if self.views.get(v) is var]))

    def _reach(self, start: set[_Node], target: _Kernel) -> bool:
        """Whether what starts from these nodes ends up in the target."""
        seen: set[_Node] = set()
        pending = list(start)
        while pending:
            node = pending.pop()
            if node == target:
                return True
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, _Kernel):
                pending += self._readers(node.outputs)
                continue
            pending += self._readers(self.eqns[node].outputs)
            if node in self.after:
                pending.append(self.after[node])
        return False

    # -- the order of execution

    def _ordered(self) -> tuple[Group | Eqn, ...]:
        """Kernels and steps, each after what it reads, else in program order."""
        made_by: dict[Var, _Node] = {}
        nodes: list[_Node] = []
        for number, eqn in enumerate(self.eqns):
            if not self.fusible[number]:
                nodes.append(number)
                made_by.update(dict.fromkeys(eqn.outputs, number))
            for var in eqn.outputs:
                homes = self.homes.get(var, set())
                kernel = _current(next(iter(homes))) if len(homes) == 1 else None
                if kernel is not None and var in kernel.outputs:
                    made_by[var] = kernel
                    nodes.append(kernel)
        placed: set[_Node] = set()
        order: list[_Node] = []
        for node in nodes:
            self._visit(node, made_by, placed, order)
        return tuple([self._step(node) for node in order])

    def _visit(
        self,
        root: _Node,
        made_by: dict[Var, _Node],
        placed: set[_Node],
        order: list[_Node],
    ) -> None:
        """Depth first without recursion: appends what `root` needs, then `root`."""
        entered: set[_Node] = set()
        pending: list[tuple[_Node, bool]] = [(root, False)]
        while pending:
            node, ready = pending.pop()
            if node in placed:
                continue
            if ready:
                placed.add(node)
                order.append(node)
                continue
            if node in entered:
                raise errors.InternalError(
                    f"fuse: kernels depend on each other\n{self.program}"
                )
            entered.add(node)
            pending.append((node, True))
            needs = {made_by[v] for v in self._inputs(node, made_by) if v in made_by}
            if not isinstance(node, _Kernel) and node in self.before:
                needs.add(self.before[node])
            pending += [(n, False) for n in needs if n not in placed and n != node]

    def _inputs(self, node: _Node, made_by: dict[Var, _Node]) -> Iterator[Var]:
        """The stored values that a kernel or step reads."""
        if isinstance(node, _Kernel):
            numbers = {self.maker[var] for var in node.outputs}
        else:
            numbers = {node}
        pending = [a for n in numbers for a in self.eqns[n].inputs]
        seen: set[Var] = set()
        while pending:
            atom = pending.pop()
            if not isinstance(atom, Var) or atom in seen:
                continue
            seen.add(atom)
            if atom in made_by and made_by[atom] != node:
                yield atom
            elif atom in self.views:
                pending.append(self.views[atom])
            elif atom in self.maker:
                pending += self.eqns[self.maker[atom]].inputs

    def _step(self, node: _Node) -> Group | Eqn:
        if isinstance(node, _Kernel):
            return Group(tuple(sorted(node.outputs, key=self.maker.__getitem__)))
        return self.eqns[node]


def _current(kernel: _Kernel) -> _Kernel:
    while kernel.merged is not None:
        kernel = kernel.merged
    return kernel


def _node(kernel: _Kernel) -> _Node:
    kernel = _current(kernel)
    return kernel if kernel.step is None else kernel.step
