"""What runs inside of `fnx.debug.checks` is looked at, and raises.

Receives a program that has run, with the arrays that it ran on; runs it again with its
checks as outputs (`fnx/control/findings.py`). Next on the walk: `compiling.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx import errors
from fnx.control.findings import Checked, Kinds, check_program
from fnx.core import hooks
from fnx.core.primitive import Primitive
from fnx.core.program import Eqn, Program, Var
from fnx.core.reference import run_reference
from fnx.core.trace import current_source
from fnx.core.types import array_type
from fnx.runtime.array import ConcreteArray
from fnx.runtime.eager import checked_kinds
from fnx.runtime.executable import executable_for


@contextmanager
def checks_on(kinds: Kinds) -> Iterator[None]:
    """A context in which checks of these kinds raise."""
    token = checked_kinds.set(kinds)
    hooks.busy.append(None)  # calls must come through Python
    try:
        yield
    finally:
        hooks.busy.pop()
        checked_kinds.reset(token)


def look_at_program(
    asker: str, program: Program, arrays: Sequence[ConcreteArray]
) -> None:
    """Raises `CheckError` for what went wrong first in a program.

    The checks run on the CPU, wherever the program ran.
    """
    checked = check_program(program, checked_kinds.get())
    if checked.sites:
        results = executable_for(_checks_alone(checked)).run(arrays)
        _raise(asker, checked, [np.asarray(x) for x in results])


def look_at_primitive(
    primitive: Primitive, arrays: Sequence[Any], params: Mapping[str, Any]
) -> None:
    """Raises `CheckError` for what is wrong with one operation."""
    values = [np.asarray(x) for x in arrays]
    inputs = tuple([Var(array_type(x.shape, x.dtype)) for x in values])
    types = primitive.infer(*[var.type for var in inputs], **params)
    outputs = tuple([Var(t) for t in (types if primitive.multiple else (types,))])
    eqn = Eqn(primitive, inputs, outputs, params, current_source())
    checked = check_program(Program(inputs, (eqn,), outputs), checked_kinds.get())
    if checked.sites:
        with np.errstate(all="ignore"):
            results = run_reference(_checks_alone(checked), values)
        _raise("", checked, results)


def _checks_alone(checked: Checked) -> Program:
    """The program that gives the code and what the sites show, and nothing else."""
    program = checked.program
    return Program(program.inputs, program.eqns, program.outputs[-len(checked.types) :])


def _raise(asker: str, checked: Checked, values: Sequence[Any]) -> None:
    code, shown = int(values[0]), values[1:]
    for number, site in enumerate(checked.sites, start=1):
        own, shown = shown[: len(site.types)], shown[len(site.types) :]
        if number == code:
            text = site.shown(own)
            raise errors.CheckError(f"{asker}: {text}" if asker else text)
