"""Arrays that lie in others: which stored values a step reads and writes with strides.

A step that knows strides (a matrix product: its primitive has the rule `copied`) reads
a permuted, cut or repeated operand from what that is made of, its *origin*, and puts
its output where what permutes it lies. Receives a step's equation and where values lie;
gives origins and layouts that cost no copy. Next on the walk: `fuse.py`, which asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fnx.core.layout import Layout, is_row_major, row_major
from fnx.core.program import Atom, Eqn, Var
from fnx.records import record
from fnx.sizes import usual


@record
class Origin:
    """A stored value, and where in it the elements of another one lie."""

    var: Var
    layout: Layout


def views_of(eqn: Eqn) -> dict[Var, Var]:
    """The outputs that have the bytes of an input, in order, and that input."""
    views: dict[Var, Var] = {}
    if not eqn.primitive.has("viewed"):
        return views
    for out, atom in zip(eqn.outputs, eqn.inputs, strict=True):
        layout = _viewed(eqn, row_major(atom.type.shape), atom)
        if layout is None or not isinstance(atom, Var):
            continue
        same = atom.type.size == out.type.size
        if same and is_row_major(layout, out.type.shape):
            views[out] = atom
    return views


def find_origins(
    step: Eqn, written: Mapping[Var, Layout], computed: Callable[[Var], Eqn | None]
) -> dict[int, Origin]:
    """The origins of a step's operands that it reads without more copies, by position.

    `written` says where outputs lie that are not row-major, `computed` gives the
    equation of a value that need not be stored.
    """
    origins: dict[int, Origin] = {}
    layouts = _usual(step.inputs)
    outputs = [written.get(var) or row_major(var.type.shape) for var in step.outputs]
    fewest = _copied(step, layouts + outputs)
    if fewest is None:
        return origins
    for position, atom in enumerate(step.inputs):
        for origin in reversed(list(_possible(atom, computed))):
            tried = [*layouts]
            tried[position] = origin.layout
            copied = _copied(step, tried + outputs)
            if copied is not None and copied <= fewest:
                layouts, fewest = tried, copied
                origins[position] = origin
                break
    return origins


def layout_through(eqn: Eqn, step: Eqn) -> Layout | None:
    """Where a step puts its only output so that the equation's output is stored.

    `None` if it cannot put it there without more copies.
    """
    (out,) = _usual(eqn.outputs)
    layout = eqn.primitive.written(out, **eqn.params)
    inputs, outputs = _usual(step.inputs), _usual(step.outputs)
    usual = _copied(step, inputs + outputs)
    if layout is None or usual is None:
        return None
    copied = _copied(step, [*inputs, layout])
    return layout if copied is not None and copied <= usual else None


def _usual(atoms: Sequence[Atom]) -> list[Layout]:
    return [row_major(atom.type.shape) for atom in atoms]


def _possible(atom: Atom, computed: Callable[[Var], Eqn | None]) -> Iterator[Origin]:
    """What an operand's elements lie in, from the nearest on.

    These are values that are stored anyway, or not larger than the operand.
    """
    chain: list[Eqn] = []
    source, eqn = atom, computed(atom) if isinstance(atom, Var) else None
    while eqn is not None and eqn.primitive.has("viewed"):
        chain.append(eqn)
        (source,) = eqn.inputs
        if not isinstance(source, Var):
            return
        eqn = computed(source)
        layout = _after(chain)
        fits = eqn is None or usual(source.type.size) <= usual(atom.type.size)
        if layout is not None and fits:
            yield Origin(source, layout)


def _after(chain: Sequence[Eqn]) -> Layout | None:
    """Where the elements lie in the input of the last equation."""
    layout: Layout | None = row_major(chain[-1].inputs[0].type.shape)
    for eqn in reversed(chain):
        if layout is None:
            break
        layout = _viewed(eqn, layout, eqn.inputs[0])
    return layout


def _viewed(eqn: Eqn, layout: Layout, source: Atom) -> Layout | None:
    """Where the elements of an output lie, if its input lies at the layout."""
    return eqn.primitive.viewed(layout, source.type, **eqn.params)


def _copied(step: Eqn, layouts: Sequence[Layout]) -> int | None:
    types = [atom.type for atom in step.inputs]
    copied: int | None = usual(step.primitive.copied(types, layouts, **step.params))
    return copied
