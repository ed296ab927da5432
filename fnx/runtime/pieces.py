"""Pieces: a program in which replicas run on devices of their own.

A program is compiled for one device. Where a part of it is for several others (`pmap`
with `devices` under `jit`, say) it is cut there: what comes between is compiled by
itself, and the replicas run where they are to, with arrays that stay in parts from one
to the next. Receives a `Program`, gives an `Executable`. Next on the walk:
`compiling.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fnx.control.spmd import backend_of, spmd
from fnx.core.cache import cached_by_structure
from fnx.core.program import Atom, Eqn, Program, Var
from fnx.core.simplify import simplify
from fnx.records import record
from fnx.runtime import eager
from fnx.runtime.array import ConcreteArray
from fnx.runtime.device import Placement
from fnx.runtime.device_array import put
from fnx.runtime.executable import Executable, executable_for
from fnx.runtime.spread import Replicated, mesh_of

if TYPE_CHECKING:
    from fnx.runtime.plan import Cost


@record
class Piece:
    """Equations that run together; `forgotten` is what nobody needs after them."""

    inputs: tuple[Atom, ...]
    outputs: tuple[Var, ...]
    forgotten: tuple[Var, ...]
    held: Executable | Replicated

    def run(
        self, arrays: Sequence[Any], placement: Placement | None, what: str
    ) -> Sequence[ConcreteArray]:
        """The outputs; what is no program of replicas runs at the placement."""
        if isinstance(self.held, Replicated):
            return self.held(arrays)
        if placement is None:
            return self.held.run(arrays)
        return self.held.run_at(arrays, placement, what)


class Pieces(Executable):
    """Runs a program piece by piece."""

    __slots__ = ("backend", "flat", "pieces")

    def __init__(
        self, program: Program, flat: Program, pieces: Sequence[Piece], backend: str
    ) -> None:
        super().__init__(program, None, None)
        self.flat = flat
        self.pieces = pieces
        self.backend = backend

    def run(self, arrays: Sequence[ConcreteArray]) -> tuple[ConcreteArray, ...]:
        """The outputs, of which replicas may have made some in parts."""
        return self._run(arrays, None, "a program")

    def run_at(
        self,
        arrays: Sequence[ConcreteArray],
        placement: Placement,
        what: str,
        donated: Sequence[bool] = (),
    ) -> tuple[ConcreteArray, ...]:
        """The outputs; what is between the replicas runs at the placement."""
        return self._run(arrays, placement, what)

    def _run(
        self, arrays: Sequence[Any], placement: Placement | None, what: str
    ) -> tuple[ConcreteArray, ...]:
        env: dict[Var, Any] = dict(zip(self.flat.inputs, arrays, strict=True))

        def value(atom: Atom) -> Any:
            if isinstance(atom, Var):
                return env[atom]
            constant = eager.constant(atom)
            return constant if placement is None else put(constant, placement)

        for piece in self.pieces:
            found = piece.run(list(map(value, piece.inputs)), placement, what)
            env.update(zip(piece.outputs, found, strict=True))
            for var in piece.forgotten:
                del env[var]
        return tuple(map(value, self.flat.outputs))

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of what runs the program."""
        return executable_for(Program((), (), ()), self.backend).stages

    def cost(self) -> Cost:
        """What all pieces cost, and all replicas."""
        # lazy: the compiler takes longer to import than the rest
        from fnx.runtime.plan import Cost

        total = Cost()
        for piece in self.pieces:
            if isinstance(piece.held, Replicated):
                total += piece.held.executable.cost().times(piece.held.mesh.size)
            else:
                total += piece.held.cost()
        return total

    def as_text(self, stage: str, program: Program | None = None) -> str:
        """The pieces at a stage, one after the other."""
        if stage == "program":
            return str(program or self.program)
        texts = []
        for piece in self.pieces:
            if isinstance(piece.held, Replicated):
                devices = ", ".join(map(str, piece.held.mesh.devices.flat))
                text = piece.held.executable.as_text(stage)
                texts.append(f"a replica on each of {devices}:\n{text}")
            else:
                texts.append(piece.held.as_text(stage))
        return "\n\n".join(texts)


def in_pieces(
    program: Program, backend: str, is_apart: Callable[[Eqn], bool]
) -> Pieces | None:
    """The program cut at replicas that are `is_apart`; `None` if it has none of them.

    Those inside of its loops and branches do not cut it.
    """
    # lazy: the compiler takes longer to import than the rest
    from fnx.runtime.compiling import inlined_for

    flat = simplify(inlined_for(program, backend, is_apart))
    if not any(map(is_apart, flat.eqns)):
        return None
    groups: list[list[Eqn]] = [[]]
    for eqn in flat.eqns:
        groups += [[eqn], []] if is_apart(eqn) else []
        if not is_apart(eqn):
            groups[-1].append(eqn)
    groups = [group for group in groups if group]
    needed = _variables(flat.outputs)
    pieces: list[Piece] = []
    for group in reversed(groups):
        piece = _piece(group, needed, is_apart(group[0]), backend)
        needed |= _variables(piece.inputs)
        pieces.insert(0, piece)
    return Pieces(program, flat, pieces, backend)


def _piece(group: Sequence[Eqn], needed: set[Var], apart: bool, backend: str) -> Piece:
    """The piece of some equations, of which those after it need variables."""
    made = list(dict.fromkeys([var for eqn in group for var in eqn.outputs]))
    read = dict.fromkeys([atom for eqn in group for atom in eqn.inputs])
    if apart:
        (eqn,) = group
        forgotten = (_variables(eqn.inputs) | {*eqn.outputs}) - needed
        return Piece(eqn.inputs, eqn.outputs, tuple(forgotten), replicated(eqn))
    inputs = tuple([x for x in read if isinstance(x, Var) and x not in made])
    outputs = tuple([var for var in made if var in needed])
    held = executable_for(Program(inputs, tuple(group), outputs), backend)
    return Piece(inputs, outputs, tuple({*inputs} - needed), held)


def _variables(atoms: Iterable[Atom]) -> set[Var]:
    return {atom for atom in atoms if isinstance(atom, Var)}


def replicated(eqn: Eqn) -> Replicated:
    """The replicas of an equation `spmd`."""
    params: Mapping[str, Any] = eqn.params
    mesh = mesh_of(params["devices"], params["axes"])
    name = "a program of replicas"
    return Replicated(name, params["program"], mesh, params["ins"], params["outs"])


@cached_by_structure
def executable_in_parts(program: Program, backend: str) -> Executable:
    """The executable of a program cut at all its replicas, wherever they run."""
    found = in_pieces(program, backend, lambda eqn: eqn.primitive is spmd)
    return executable_for(program, backend) if found is None else found


def is_apart(eqn: Eqn, backend: str) -> bool:
    """Whether replicas are to run elsewhere than what is around them.

    Those on the CPU's own devices are a step of a program that runs on the CPU.
    """
    if eqn.primitive is not spmd:
        return False
    return {backend, backend_of(eqn.params["devices"])} != {"cpu"}
