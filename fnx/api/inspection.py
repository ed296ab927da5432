"""fnx.inspect: everything that the compiler makes of a function, to look at.

Receives a function and arguments (or only their shapes); gives an `Inspection`, whose
text and whose drawing in a notebook show the program, the plan, the kernels, and what a
call costs. Next on the walk: `grad.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from html import escape
from typing import Any

from fnx import errors
from fnx.api.jit import Jitted, jit
from fnx.api.stages import Compiled, MemoryAnalysis
from fnx.api.static import Names, Nums
from fnx.core.diagram import draw_graph
from fnx.core.drawing import fold, framed, program_rows
from fnx.core.program import Program
from fnx.records import record


@record
class Inspection:
    """A function for arguments of some types: what it does, and how it will run."""

    compiled: Compiled

    @property
    def program(self) -> Program:
        """The traced program."""
        return self.compiled.entry.program

    def as_text(self, stage: str = "program") -> str:
        """A stage: "program" (with the user's lines), "plan", "kernel", "llvm", "asm".

        Raises `OptionError` for a stage that there is not.
        """
        return self.compiled.as_text(stage, debug_info=stage == "program")

    def as_svg(self) -> str:
        """The program as a graph: what is computed from what, from top to bottom."""
        return draw_graph(self.program)

    def cost(self) -> dict[str, float]:
        """Operations and bytes, as `jit(f).lower(...).cost_analysis()`."""
        return self.compiled.cost_analysis()

    def memory(self) -> MemoryAnalysis:
        """Bytes, as `jit(f).lower(...).compile().memory_analysis()`."""
        return self.compiled.memory_analysis()

    def __str__(self) -> str:
        texts = [self.as_text(stage).rstrip() for stage in ("program", "plan")]
        return "\n\n".join([*texts, self.as_text("kernel").rstrip(), self._summary()])

    __repr__ = __str__

    def _summary(self) -> str:
        """One line for the costs."""
        cost, memory = self.cost(), self.memory()
        parts = [
            f"{cost['flops']:,.0f} operations",
            f"{cost['bytes accessed']:,.0f} bytes read and written",
            f"{memory.peak_memory_in_bytes:,.0f} bytes of memory, of them "
            f"{memory.temp_size_in_bytes:,.0f} for intermediate values",
        ]
        if cost["unknown loops"]:
            parts.append(f"{cost['unknown loops']:.0f} loops counted with one round")
        return "; ".join(parts)

    def _repr_html_(self) -> str:
        stages = [
            fold(title, f"<pre>{escape(self.as_text(stage))}</pre>")
            for title, stage in (("plan", "plan"), ("kernels", "kernel"))
        ]
        if len(self.program.eqns) <= _DRAWN:
            stages.insert(0, fold("graph", self.as_svg()))
        summary = f'<p class="h">{escape(self._summary())}</p>'
        return framed(program_rows(self.program) + "".join(stages) + summary)


_DRAWN = 300
"""Graphs of more equations are not part of a notebook, unless they are asked for."""


def inspect(
    fun: Callable[..., Any],
    *,
    static_argnums: Nums = None,
    static_argnames: Names = None,
) -> Callable[..., Inspection]:
    """A function that gives an `Inspection` of `fun` for its arguments.

    Arguments may be `ShapeDtypeStruct`. `fun` may be jitted; otherwise the options are
    those of `jit`. Nothing is run. Print the result, or let a notebook draw it.

    >>> import fnx
    >>> found = fnx.inspect(lambda x: x * 2 + 1)(fnx.ShapeDtypeStruct((8,), "float32"))
    >>> print(found.as_text("plan"))
    plan: 1 steps, arena 0 bytes
        0 kernel0(input0, output0)  64 bytes
    >>> found.cost()["flops"]
    16.0
    """
    if isinstance(fun, Jitted):
        if (static_argnums, static_argnames) != (None, None):
            raise errors.OptionError(
                "inspect: the function is jitted, and has its static arguments from "
                "there."
            )
        jitted = fun
    else:
        jitted = jit(
            fun, static_argnums=static_argnums, static_argnames=static_argnames
        )

    @functools.wraps(fun)
    def inspection(*args: Any, **kwargs: Any) -> Inspection:
        return Inspection(jitted.lower(*args, **kwargs).compile())

    return inspection


__all__ = ["Inspection", "inspect"]
