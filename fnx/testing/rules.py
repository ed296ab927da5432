"""The op × rule table: which primitive has which rule, and which rules are missing.

Receives the registry of primitives, after importing every module that defines some;
gives text, and the list of gaps that a test keeps empty.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

import fnx.control
import fnx.ops
from fnx.core.primitive import RULES, Primitive, primitives

# The last three say how it runs: in a kernel, as a step, or as what it holds.
COLUMNS = (*RULES, "body")
HAS, FREE, MISSING = "yes", "-", "MISSING"

# Why a primitive may do without a rule.
NOT_LINEAR = "it is linear in no input, so that no backward pass meets it"
BOUND = "`batch`, where its named axis is bound, replaces it before a program runs"
RUNS = "another of `element`, `steps` and `body` says how it runs"
INLINED = "it has no program to be inlined"


def load_all() -> None:
    """Imports every module that defines primitives."""
    for package in (fnx.ops, fnx.control):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def state(primitive: Primitive, rule: str) -> str:
    """Whether a primitive has a rule, does without it, or lacks it."""
    if primitive.has(rule):
        return HAS
    return FREE if reason(primitive, rule) else MISSING


def reason(primitive: Primitive, rule: str) -> str:
    """Why a primitive does without a rule that it has not; "" if it lacks it."""
    if rule == "transpose" and not primitive.linear:
        return NOT_LINEAR
    if rule in ("element", "steps", "body"):
        if any(primitive.has(name) for name in ("element", "steps", "body")):
            return INLINED if rule == "body" else RUNS
        # A collective over a named axis is gone before a program runs.
        return BOUND if primitive.sees_axes else ""
    return ""


def own_primitives() -> list[Primitive]:
    """All primitives but those of tests (`test_…`) and of examples (`example_…`)."""
    apart = ("test_", "example_")
    return [p for p in primitives() if not p.name.startswith(apart)]


def rule_gaps() -> list[str]:
    """The rules that are missing, as "primitive.rule".

    A linear primitive needs a transpose; one of `element`, `steps` and `body` must say
    how it runs; the other rules are due everywhere.
    """
    load_all()
    return [
        f"{p.name}.{rule}"
        for p in own_primitives()
        for rule in COLUMNS
        if state(p, rule) == MISSING
    ]


def rule_table() -> str:
    """The table as text: a line for each primitive, a column for each rule.

    Below it stand the reasons for every "-".

    >>> "add" in rule_table()
    True
    """
    load_all()
    every = sorted(own_primitives(), key=lambda p: p.name)
    width = max(len(p.name) for p in every)
    header = " ".join([" " * width, *[f"{rule:9}" for rule in COLUMNS]])
    rows = [
        " ".join([p.name.ljust(width), *[f"{state(p, rule):9}" for rule in COLUMNS]])
        for p in every
    ]
    lines = [header, *rows, "", *_reasons(every)]
    return "\n".join(line.rstrip() for line in lines)


def _reasons(every: Sequence[Primitive]) -> list[str]:
    """A line for each reason why rules are not there, and the rules that it is for."""
    why: dict[str, list[str]] = {}
    for p in every:
        for rule in COLUMNS:
            if state(p, rule) == FREE:
                rules = why.setdefault(reason(p, rule), [])
                rules += [] if rule in rules else [rule]
    return [f"- {', '.join(rules)}: {text}" for text, rules in why.items()]
