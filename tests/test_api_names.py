"""The names of JAX's interface and their parameters: how many are there, and which.

`api_names.json` has them as JAX 0.10.2 has them (those of `fnx.optim` as optax 0.2.8
does), without `out_sharding`, `sharding` and names that begin with an underscore. A
share that rises is pinned anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fnx.testing.coverage import coverage, coverage_table, difference

FILE = Path(__file__).parent / "api_names.json"
NAMES = json.loads(FILE.read_text(encoding="utf-8"))

# The least share of a module's names, in percent.
LEAST = {
    "fnx": 78,
    "fnx.numpy": 98,
    "fnx.lax": 97,
    "fnx.nn": 94,
    "fnx.nn.initializers": 100,
    "fnx.random": 100,
    "fnx.numpy.linalg": 100,
    "fnx.numpy.fft": 100,
    "fnx.lax.linalg": 100,
    "fnx.ops": 100,
    "fnx.optim": 87,
    "fnx.optim.losses": 78,
    "fnx.optim.tree": 91,
    "fnx.optim.contrib": 81,
    "fnx.optim.schedules": 85,
    "fnx.image": 100,
    "fnx.flatten_util": 100,
    "fnx.dlpack": 100,
    "fnx.scipy.optimize": 100,
    "fnx.scipy.ndimage": 100,
    "fnx.scipy.integrate": 100,
    "fnx.scipy.interpolate": 100,
    "fnx.scipy.cluster.vq": 100,
    "fnx.tree": 100,
    "fnx.tree_util": 97,
    "fnx.stages": 83,
    "fnx.debug": 66,
    "fnx.experimental.checkify": 100,
}
# All of fnx.scipy together.
LEAST_OF_SCIPY = 95
# Functions whose parameters may differ from JAX's; see the README for the reasons.
DIFFERING = {
    "fnx.numpy": set(),
    "fnx.lax": {"all_gather", "dtype"},
    "fnx.nn": {"standardize"},
    "fnx.random": set(),
    "fnx.ops": set(),
    "fnx.optim": set(),
    "fnx.optim.losses": set(),
    "fnx.optim.tree": set(),
    "fnx.optim.contrib": {"sam"},
    "fnx.optim.schedules": set(),
    "fnx.image": set(),
    "fnx.dlpack": set(),
    "fnx.scipy.optimize": set(),
    "fnx.scipy.ndimage": set(),
}


@pytest.mark.parametrize("module", LEAST)
def test_names_are_there(module):
    (found,) = coverage({module: NAMES[module]})
    assert 100 * found.share >= LEAST[module], f"missing: {' '.join(found.missing)}"


def test_names_of_scipy_are_there():
    found = coverage({m: n for m, n in NAMES.items() if m.startswith("fnx.scipy.")})
    there = sum(len(module.present) for module in found)
    missing = [f"{m.module}.{n}" for m in found for n in m.missing]
    assert 100 * there >= LEAST_OF_SCIPY * (there + len(missing)), missing


@pytest.mark.parametrize("module", DIFFERING)
def test_parameters_are_those_of_jax(module):
    (found,) = coverage({module: NAMES[module]})
    assert found.differing.keys() <= DIFFERING[module], found.differing


def _like(x, /, y, *rest, z=1, **others):
    return x, y, rest, z, others


def _plain(x, y=1, *, z=2):
    return x, y, z


@pytest.mark.parametrize(
    ("function", "parameters", "text"),
    [
        (_plain, ["x", "y", "=z"], ""),
        (_plain, ["/any", "y"], ""),
        (_plain, ["x", "w"], "w is y at position 1"),
        (_plain, ["x", "y", "z"], "z is only by name"),
        (_plain, ["x", "y", "w"], "w is not there"),
        (_plain, ["x", "=w"], "w is not there"),
        (_plain, ["*x", "**options"], ""),
        (_plain, ["x", "y", "*rest"], "rest is not any number of values"),
        (_like, ["/a", "y", "/b", "=w"], ""),
        (_like, ["x", "y"], ""),
        (_like, ["x", "w"], "w is y at position 1"),
        (int.from_bytes, ["x"], "x is bytes at position 0"),
        (max, ["x"], "it has no signature"),
    ],
)
def test_differences_of_parameters(function, parameters, text):
    assert difference(function, parameters) == text


def test_a_module_that_is_not_there():
    (found,) = coverage({"fnx.no_such_module": {"f": None}})
    assert found.missing == ("f",) and found.share == 0
    assert coverage_table({}) == "module  there  missing    share  differing"


def test_the_command_line(tmp_path):
    file = tmp_path / "names.json"
    file.write_text('{"fnx.numpy": {"sin": ["/x"], "sine": null}}')
    run = [sys.executable, "-m", "fnx.testing", "--api", str(file)]
    text = subprocess.check_output(run, text=True, cwd=FILE.parent.parent)
    assert text.rstrip().endswith("missing: sine")
