"""Draws a Program as HTML, for notebooks: a row an equation, held programs folded.

Receives a `Program`, gives one self-contained piece of HTML: no script, no font and no
file from elsewhere. Colours follow the page's, light or dark. A row shows the user's
line, and in a tooltip where it stands. Next on the walk: `simplify.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fnx.core.printer import Names, declare, held_programs, refer, shown_params
from fnx.core.program import Eqn, Program, Var, walk

_STYLE = """
.fnx{font:12.5px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
 color:inherit;overflow-x:auto}
.fnx table{border-collapse:collapse;margin:0;border:0;background:none}
.fnx td{border:0;padding:1px 18px 1px 0;text-align:left;vertical-align:top;
 white-space:pre;background:none}
.fnx tr:hover>td{background:#8881}
.fnx .t{opacity:.55}
.fnx .p{color:#2f7d6d;font-weight:600}
.fnx .s{opacity:.5;padding-left:18px;max-width:48em;overflow:hidden;
 text-overflow:ellipsis}
.fnx .c{color:#a0642a}
.fnx details{margin:2px 0 4px 6px;padding-left:14px;border-left:2px solid #8884}
.fnx summary{cursor:pointer;opacity:.75}
.fnx .h{opacity:.75}
.fnx pre{margin:0;font:inherit;background:none;color:inherit}
@media(prefers-color-scheme:dark){.fnx .p{color:#6cc3b0}.fnx .c{color:#d9a066}}
""".replace("\n", "")


def draw_program(program: Program) -> str:
    """The program as HTML."""
    return framed(program_rows(program))


def framed(content: str) -> str:
    """Rows and folds in the style of drawings."""
    return f'<div class="fnx"><style>{_STYLE}</style>{content}</div>'


def fold(title: str, content: str) -> str:
    """Content that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def program_rows(program: Program) -> str:
    """The table of a program, without the style that it is shown in."""
    names = Names()
    inputs = ", ".join([_declared(var, names) for var in program.inputs])
    rows = [_full(f'<span class="h">inputs</span>  {inputs}')]
    for eqn in program.eqns:
        rows.append(_equation(eqn, names))
        rows += [_full(held) for held in _held(eqn)]
    outputs = ", ".join([_used(refer(atom, names)) for atom in program.outputs])
    rows.append(_full(f'<span class="h">outputs</span> {outputs}'))
    return f"<table>{''.join(rows)}</table>"


def _full(content: str) -> str:
    return f'<tr><td colspan="3">{content}</td></tr>'


def _equation(eqn: Eqn, names: Names) -> str:
    inputs = [_used(refer(atom, names)) for atom in eqn.inputs]
    outputs = "  ".join([_declared(var, names) for var in eqn.outputs])
    params = escape(shown_params(eqn.params))
    name = f'<span class="p">{escape(eqn.primitive.name)}</span>'
    shown = f'{name}<span class="t">{params}</span> {" ".join(inputs)}'
    return f"<tr><td>{outputs}</td><td>{shown}</td>{_source(eqn)}</tr>"


def _source(eqn: Eqn) -> str:
    if eqn.source is None:
        return "<td></td>"
    text = eqn.source.text or eqn.source.place
    return f'<td class="s" title="{escape(eqn.source.place)}">{escape(text)}</td>'


def _held(eqn: Eqn) -> Iterator[str]:
    for name, program in held_programs(eqn.params):
        count = sum(1 for _ in walk(program))
        equations = f"{count} equation{'s' * (count != 1)}"
        yield fold(f"{name}: {equations}", program_rows(program))


def _declared(var: Var, names: Names) -> str:
    name, _, type = declare(var, names).partition(":")
    return f'{name}<span class="t">:{escape(type)}</span>'


def _used(text: str) -> str:
    """A variable's name, or a literal with its type."""
    value, colon, type = text.partition(":")
    if not colon:
        return value
    return f'<span class="c">{escape(value)}</span><span class="t">:{type}</span>'
