"""Evaluates a program with the reference rules, on NumPy arrays.

The meaning of a program, without any compiler: the oracle of the tests, the backend of
a platform without LLVM, and the way to look at every value of a program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx.core.program import Atom, Literal, Program, Var

Run = Callable[[Program, Sequence[Any]], list[Any]]
Seen = Callable[[Program, Sequence[Any], Sequence[Any]], None]


class _Watch(threading.local):
    """Per thread: what looks at the runs of held programs, and how they run."""

    seen: Seen | None = None
    run: Run | None = None


_watch = _Watch()


def run_reference(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """The outputs of a program as NumPy arrays."""
    seen = _watch.seen
    if seen is None:
        return outputs(program, arrays)
    _watch.seen = None  # what this program holds is not looked at, nor what `seen` runs
    try:
        results = (_watch.run or outputs)(program, arrays)
        seen(program, arrays, results)
    finally:
        _watch.seen = seen
    return results


@contextmanager
def watched(seen: Seen, run: Run | None = None) -> Iterator[None]:
    """A context in which `seen` is told of every run of a program, but not of those
    inside of them: the program, the arrays it was given, and its outputs.

    `run` computes the outputs; reference rules do by default.
    """
    before = _watch.seen, _watch.run
    _watch.seen, _watch.run = seen, run
    try:
        yield
    finally:
        _watch.seen, _watch.run = before


def reference_values(program: Program, arrays: Sequence[Any]) -> dict[Var, Any]:
    """The value of every variable of a program."""
    env: dict[Var, Any] = dict(zip(program.inputs, arrays, strict=True))
    with np.errstate(all="ignore"):
        for eqn in program.eqns:
            inputs = [value_of(env, atom) for atom in eqn.inputs]
            values = eqn.primitive.reference(*inputs, **eqn.params)
            many = values if eqn.primitive.multiple else (values,)
            env.update(zip(eqn.outputs, many, strict=True))
    return env


def value_of(env: dict[Var, Any], atom: Atom) -> Any:
    """The value of a variable, or of a literal."""
    return atom.value if isinstance(atom, Literal) else env[atom]


def outputs(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """The outputs of a program, for which nobody looks at this run of it."""
    env = reference_values(program, arrays)
    return [value_of(env, atom) for atom in program.outputs]
