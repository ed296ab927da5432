"""Draws a Program as a graph in SVG: what is computed from what, from top to bottom.

Receives a `Program`, gives one self-contained `<svg>`. A box is an equation, with the
type of its result, in a row below those that it reads; a box with a double frame holds
programs. Pointing at a box shows the user's line. Colours follow the page's.
Next on the walk: `simplify.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from fnx.core.printer import Names, refer
from fnx.core.program import Atom, Eqn, Literal, Program, Var, sub_programs, walk
from fnx.records import record

_CHARACTER, _BOX, _GAP, _ROW, _EDGE = 7.0, 38.0, 16.0, 74.0, 12.0

_STYLE = (
    ".fnx-g{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    ".fnx-g text{fill:currentColor;text-anchor:middle}"
    ".fnx-g .t{opacity:.6;font-size:11px}"
    ".fnx-g rect{fill:none;stroke:#2f7d6d;stroke-width:1.2}"
    ".fnx-g .v rect{stroke:#8888}"
    ".fnx-g path{fill:none;stroke:#8889}"
)


@record
class _Node:
    """A box: two lines of text, what is told of it, and the boxes that it reads."""

    title: str
    type: str
    told: str
    reads: tuple[int, ...]
    is_value: bool = False
    holds: bool = False

    @property
    def width(self) -> float:
        """As wide as the longer line."""
        return _CHARACTER * max(len(self.title), len(self.type)) + 2 * _GAP


def draw_graph(program: Program) -> str:
    """The program as SVG."""
    nodes = _nodes(program)
    rows = _rows(nodes)
    widths = [sum([nodes[n].width + _GAP for n in row]) - _GAP for row in rows]
    whole = max(widths, default=0.0) + 2 * _EDGE
    places: dict[int, tuple[float, float]] = {}
    for depth, (row, width) in enumerate(zip(rows, widths, strict=True)):
        steps = [nodes[n].width + _GAP for n in row]
        starts = accumulate(steps, initial=(whole - width) / 2)
        for n, left in zip(row, starts, strict=False):
            places[n] = left + nodes[n].width / 2, _EDGE + depth * _ROW
    edges = [
        _edge(places[source], places[target])
        for target, node in enumerate(nodes)
        for source in dict.fromkeys(node.reads)
    ]
    boxes = [_box(node, *places[n]) for n, node in enumerate(nodes)]
    height = 2 * _EDGE + _BOX + _ROW * max(len(rows) - 1, 0)
    head = (
        f'<svg class="fnx-g" xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {whole:.0f} {height:.0f}">'
    )
    return f"{head}<style>{_STYLE}</style>{''.join([*edges, *boxes])}</svg>"


def _nodes(program: Program) -> list[_Node]:
    """Inputs, equations in order, outputs."""
    names = Names()
    makers: dict[Atom, int] = {}
    nodes: list[_Node] = []
    for var in program.inputs:
        makers[var] = len(nodes)
        nodes.append(_Node(refer(var, names), str(var.type), "an input", (), True))
    for eqn in program.eqns:
        makers.update(dict.fromkeys(eqn.outputs, len(nodes)))
        nodes.append(_equation(eqn, makers))
    for number, atom in enumerate(program.outputs):
        reads = (makers[atom],) if isinstance(atom, Var) else ()
        value = f" = {atom.value}" if isinstance(atom, Literal) else ""
        told = f"output {number}"
        nodes.append(_Node(told + value, str(atom.type), told, reads, True))
    return nodes


def _equation(eqn: Eqn, makers: dict[Atom, int]) -> _Node:
    numbers = [str(atom.value) for atom in eqn.inputs if isinstance(atom, Literal)]
    count = sum([len(list(walk(program))) for program in sub_programs(eqn)])
    inside = [f"({count} equations)"] if count else []
    told = [eqn.source.text, eqn.source.place] if eqn.source else []
    return _Node(
        " ".join([eqn.primitive.name, *numbers, *inside]),
        ", ".join([str(var.type) for var in eqn.outputs]),
        "\n".join([text for text in told if text]),
        tuple([makers[atom] for atom in eqn.inputs if isinstance(atom, Var)]),
        holds=bool(count),
    )


def _rows(nodes: Sequence[_Node]) -> list[list[int]]:
    """The boxes of each row, from left to right: below the middle of what they read."""
    depths: list[int] = []
    for node in nodes:
        depths.append(1 + max([depths[n] for n in node.reads], default=-1))
    rows: list[list[int]] = [[] for _ in range(max(depths, default=-1) + 1)]
    for n, depth in enumerate(depths):
        rows[depth].append(n)
    order: dict[int, float] = {}
    for row in rows:
        wanted = {
            n: sum([order[i] for i in nodes[n].reads]) / max(len(nodes[n].reads), 1)
            for n in row
        }
        row.sort(key=lambda n: wanted[n])
        order.update({n: (i + 0.5) / len(row) for i, n in enumerate(row)})
    return rows


def _edge(source: tuple[float, float], target: tuple[float, float]) -> str:
    (x0, y0), (x1, y1) = source, target
    begin = y0 + _BOX
    middle = (begin + y1) / 2
    return (
        f'<path d="M{x0:.1f} {begin:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} '
        f'{x1:.1f} {y1:.1f}"/>'
    )


def _box(node: _Node, middle: float, top: float) -> str:
    frame = _frame(middle, top, node.width, 0)
    if node.holds:
        frame += _frame(middle, top, node.width, 3)
    told = f"<title>{escape(node.told)}</title>" if node.told else ""
    return (
        f'<g class="{"v" if node.is_value else "e"}">{told}{frame}'
        f'<text x="{middle:.1f}" y="{top + 16:.1f}">{escape(node.title)}</text>'
        f'<text x="{middle:.1f}" y="{top + 31:.1f}" class="t">'
        f"{escape(node.type)}</text>"
        "</g>"
    )


def _frame(middle: float, top: float, width: float, inset: float) -> str:
    return (
        f'<rect x="{middle - width / 2 + inset:.1f}" y="{top + inset:.1f}" '
        f'width="{width - 2 * inset:.1f}" height="{_BOX - 2 * inset:.1f}" rx="4"/>'
    )
