"""The compiler's table of contents: the passes from a Program to a Plan, in order.

Receives a `Program`, gives a `Plan`, which a backend builds into native code.
`FNX_DEBUG=2` shows the program after each pass, 3 the plan, 4 the kernels.
Next on the walk: `fnx.runtime.backend`.
"""

from __future__ import annotations

import sys

from fnx.compiler.beside import side_by_side
from fnx.compiler.fuse import fuse
from fnx.compiler.inline import inline
from fnx.compiler.join import joined
from fnx.compiler.plan import make_plan
from fnx.compiler.step import Plan
from fnx.compiler.target import CPU, Target
from fnx.config import config
from fnx.core.check import checked
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.kernel.printer import kernel_text


def plan_program(program: Program, target: Target = CPU) -> Plan:
    """Every pass of the compiler for a backend."""
    plan = _planned(program, target, None)
    _show(3, "plan", plan)
    for kernel in plan.kernels if config.debug >= 4 else ():
        _show(4, "kernel", kernel_text(kernel))
    return plan


def _planned(program: Program, target: Target, carry: tuple[int, int] | None) -> Plan:
    inlined = inline(program, target)
    flat = checked(inlined, "inline", program, weak=False)
    clean = checked(simplify(flat), "simplify", flat, weak=False)
    clean = checked(joined(clean), "join", clean, weak=False)
    _show(2, "program", clean)

    def held(program: Program, first: int, count: int) -> Plan:
        return _planned(program, target, (first, count))

    return make_plan(side_by_side(fuse(clean, target)), held, carry)


def _show(level: int, title: str, what: object) -> None:
    if config.debug >= level:
        print(f"--- {title}\n{what}", file=sys.stderr)
