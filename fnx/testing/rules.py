"""The op × rule table: which primitive has which rule, and which rules are missing.

Receives the registry of primitives, after importing every module that defines some;
gives text, and the list of gaps that a test keeps empty.
"""

from __future__ import annotations

import importlib
import pkgutil

import fnx.control
import fnx.ops
from fnx.core.primitive import RULES, Primitive, primitives

HAS, FREE, MISSING = "yes", "-", "MISSING"


def load_all() -> None:
    """Imports every module that defines primitives."""
    for package in (fnx.ops, fnx.control):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def state(primitive: Primitive, rule: str) -> str:
    """Whether a primitive has a rule, does without it, or lacks it."""
    if primitive.has(rule):
        return HAS
    if rule == "transpose":
        return MISSING if primitive.linear else FREE
    if rule in ("element", "steps"):
        # A collective over a named axis is gone before a program runs: `batch`, where
        # the axis is bound, replaces it.
        if primitive.sees_axes:
            return FREE
        runs = [primitive.has(name) for name in ("element", "steps", "body")]
        return FREE if any(runs) else MISSING
    return MISSING


def rule_gaps() -> list[str]:
    """The rules that are missing, as "primitive.rule".

    A linear primitive needs a transpose; one of `element`, `steps` and `body` must say
    how it runs; the other rules are due everywhere.
    """
    load_all()
    return [
        f"{p.name}.{rule}"
        for p in primitives()
        for rule in RULES
        if state(p, rule) == MISSING
    ]


def rule_table() -> str:
    """The table as text: a line for each primitive, a column for each rule.

    >>> "add" in rule_table()
    True
    """
    load_all()
    every = sorted(primitives(), key=lambda p: p.name)
    width = max(len(p.name) for p in every)
    header = " ".join([" " * width, *[f"{rule:9}" for rule in RULES]])
    rows = [
        " ".join([p.name.ljust(width), *[f"{state(p, rule):9}" for rule in RULES]])
        for p in every
    ]
    return "\n".join(line.rstrip() for line in [header, *rows])
