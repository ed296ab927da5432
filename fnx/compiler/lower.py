"""Lowering: composes the `element` rules of a group's equations into one Kernel.

Receives a `Group` and what is stored, gives a `Lowered`: the kernel and the value
behind each of its buffers. A rule pulls the elements of its operands, so composing
rules is calling them; what is stored is loaded. Next on the walk: `fnx.kernel.build`,
which the rules use, and `fnx.kernel.schedule`; then `plan.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fnx import dtypes
from fnx.compiler.fuse import Fused, Group
from fnx.core.program import Atom, Literal, Var
from fnx.core.types import ArrayType
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import linear_offset
from fnx.kernel.ir import Kernel
from fnx.records import record


@record
class Lowered:
    """A kernel and, in the order of its buffers, the values that they hold."""

    kernel: Kernel
    values: tuple[Var, ...]


class Pull:
    """An operand as a rule sees it: a type, and the element at an index."""

    __slots__ = ("_lowering", "atom", "type")

    def __init__(self, lowering: _Lowering, atom: Atom) -> None:
        self._lowering = lowering
        self.atom = atom
        self.type: ArrayType = atom.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The operand's shape."""
        return self.type.shape

    @property
    def dtype(self) -> Any:
        """The operand's dtype."""
        return self.type.dtype

    def __call__(self, index: Sequence[Any]) -> Any:
        """The element at an index, as a kernel expression."""
        return self._lowering.element(self.atom, tuple(index))


def lower(group: Group, fused: Fused, name: str) -> Lowered:
    """The kernel that computes a group of values."""
    with _deep_recursion():
        return _Lowering(group.outputs, group.outputs, fused).run(name)


def lower_step(
    name: str,
    fused: Fused,
    domain: tuple[int, ...],
    target: Var,
    role: str,
    operands: Sequence[Atom],
    build: Callable[..., None],
) -> Lowered:
    """A kernel that a step builds itself, from what its equation pulls.

    `build(k, index, target's buffer, *operand pulls)` makes the stores.
    """
    with _deep_recursion():
        roots = [atom for atom in operands if isinstance(atom, Var)]
        lowering = _Lowering(roots, (), fused)
        index = lowering.k.domain(domain)
        buffer = lowering.buffer(target, role)
        pulls = [Pull(lowering, atom) for atom in operands]
        build(lowering.k, index, buffer, *pulls)
        return lowering.finished(name)


class _Lowering:
    """The values of a kernel: how its roots come from what is stored."""

    def __init__(
        self, roots: Sequence[Var], outputs: tuple[Var, ...], fused: Fused
    ) -> None:
        self.outputs = outputs
        self.fused = fused
        self.k = KernelBuilder()
        self.inside = inlined(roots, outputs, fused)
        self.buffers: dict[Var, Any] = {}
        self.elements: dict[Any, Any] = {}

    def run(self, name: str) -> Lowered:
        k = self.k
        index = k.domain(self.outputs[0].type.shape)
        values = [self.element(var, index) for var in self.outputs]
        for var, value in zip(self.outputs, values, strict=True):
            buffer = self.buffer(var, "out")
            k.store(buffer, linear_offset(index, var.type.shape), value)
        return self.finished(name)

    def finished(self, name: str) -> Lowered:
        """The kernel of what has been stored."""
        kernel = self.k.finish(name, self.fused.target.schedule)
        return Lowered(kernel, tuple(self.buffers))

    def element(self, atom: Atom, index: tuple[Any, ...]) -> Any:
        """The element of a value at an index; computed once for each index."""
        if isinstance(atom, Literal):
            return constant(self.k, atom)
        key = (atom, index, self.k.mask)
        found = self.elements.get(key)
        if found is None:
            found = self.elements[key] = self._made(atom, index)
        return found

    def _made(self, var: Var, index: tuple[Any, ...]) -> Any:
        if var not in self.inside:
            buffer = self.buffer(self.fused.base(var), "in")
            return self.k.load(buffer, linear_offset(index, var.type.shape))
        eqn = self.fused.makers[var]
        pulls = [Pull(self, atom) for atom in eqn.inputs]
        result = eqn.primitive.element(self.k, index, *pulls, **eqn.params)
        return result[eqn.outputs.index(var)] if eqn.primitive.multiple else result

    def buffer(self, var: Var, role: str) -> Any:
        """The buffer of a stored value; a new one the first time."""
        buffer = self.buffers.get(var)
        if buffer is None:
            name = f"{role}{len(self.buffers)}"
            buffer = self.k.buffer(name, var.type.dtype, var.type.size, role)
            self.buffers[var] = buffer
        return buffer


def constant(k: KernelBuilder, literal: Literal) -> Any:
    """A literal as a kernel expression."""
    dtype = literal.type.dtype
    if dtypes.is_inexact(dtype):
        python = complex if dtypes.is_complex(dtype) else float
        return k.constant(python(literal.value), dtype)
    return k.constant(int(literal.value), dtype)


def inlined(roots: Sequence[Var], outputs: tuple[Var, ...], fused: Fused) -> set[Var]:
    """The values that a kernel computes itself."""
    inside: set[Var] = set()
    pending: list[Atom] = list(roots)
    while pending:
        atom = pending.pop()
        if isinstance(atom, Literal) or atom in inside or atom in fused.views:
            continue
        stored_elsewhere = atom in fused.stored and atom not in outputs
        if atom in fused.makers and not stored_elsewhere:
            inside.add(atom)
            pending += fused.makers[atom].inputs
    return inside


@contextmanager
def _deep_recursion() -> Iterator[None]:
    # Rules call each other as deep as a kernel has equations in a row. Python frames
    # live on the heap, so that a higher limit costs no stack.
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
