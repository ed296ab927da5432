"""The op × rule table: no gaps, every primitive in it, a reason for every dash."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import fnx
from fnx.core.primitive import Primitive
from fnx.testing import rule_gaps, rule_table
from fnx.testing.rules import COLUMNS, FREE, load_all, own_primitives, reason, state

HELD = {"call", "cond", "scan", "while_loop", "remat", "lanes", "constant"}
CUSTOM = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_linear"}
CUSTOM |= {"custom_vjp_symbolic", "custom_vmap_call", "linear_solve", "root"}
COLLECTIVE = {"psum", "pmax", "pmin", "all_gather", "psum_scatter", "all_to_all"}
COLLECTIVE |= {"ppermute", "pbroadcast", "axis_index"}


def test_no_rule_is_missing():
    assert rule_gaps() == []


def test_the_table_has_every_primitive():
    """Those of every module of fnx, wherever it may be added."""
    load_all()
    names = {line.split()[0] for line in rule_table().split("\n\n")[0].split("\n")}
    assert names >= HELD | CUSTOM | COLLECTIVE
    root = Path(fnx.__file__).parent
    definition = re.compile(r'^\w+ = _?[A-Z]\w*\(\s*"(\w+)"', re.M)
    for path in root.rglob("*.py"):
        text = path.read_text()
        if "(Primitive)" in text or "import Primitive" in text:
            assert set(definition.findall(text)) - names == set(), path


def test_each_rule_that_is_not_there_has_its_reason():
    load_all()
    below = rule_table().split("\n\n")[1]
    for p in own_primitives():
        for rule in COLUMNS:
            if state(p, rule) == FREE:
                assert reason(p, rule) in below


def test_what_lacks_a_rule_is_told(monkeypatch):
    monkeypatch.setattr("fnx.core.primitive._registry", {})
    bare = Primitive("bare")
    assert [state(bare, rule) for rule in ("transpose", "jvp")] == ["-", "MISSING"]
    assert rule_gaps() == [f"bare.{rule}" for rule in COLUMNS if rule != "transpose"]
    assert "MISSING" in rule_table()


def test_the_command_prints_the_table():
    command = [sys.executable, "-m", "fnx.testing", "--rules"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stdout.strip() == rule_table().strip()
