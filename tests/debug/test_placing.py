"""Drawings of which device has which part of an array."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.sharding import NamedSharding, P


@pytest.fixture
def mesh():
    before = fnx.config.cpu_devices
    fnx.config.cpu_devices = 4
    yield fnx.make_mesh((2, 2), ("x", "y"), devices=fnx.devices("cpu")[:4])
    fnx.config.cpu_devices = before


DRAWINGS = {
    "both axes": (
        (4, 6),
        P("x", "y"),
        "┌───────┬───────┐\n│ CPU 0 │ CPU 1 │\n├───────┼───────┤\n"
        "│ CPU 2 │ CPU 3 │\n└───────┴───────┘\n",
    ),
    "the axes change places": (
        (4, 6),
        P("y", "x"),
        "┌───────┬───────┐\n│ CPU 0 │ CPU 2 │\n├───────┼───────┤\n"
        "│ CPU 1 │ CPU 3 │\n└───────┴───────┘\n",
    ),
    "copies of columns": (
        (4, 6),
        P(None, "y"),
        "┌─────────┬─────────┐\n│ CPU 0,2 │ CPU 1,3 │\n└─────────┴─────────┘\n",
    ),
    "a vector along both": (
        (8,),
        P(("y", "x")),
        "┌───────┬───────┬───────┬───────┐\n│ CPU 0 │ CPU 2 │ CPU 1 │ CPU 3 │\n"
        "└───────┴───────┴───────┴───────┘\n",
    ),
    "copies of all": (
        (1, 1),
        P(),
        "┌─────────────┐\n│ CPU 0,1,2,3 │\n└─────────────┘\n",
    ),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings(name, mesh, capsys):
    shape, spec, wanted = DRAWINGS[name]
    fnx.debug.visualize_sharding(shape, NamedSharding(mesh, spec))
    assert capsys.readouterr().out == wanted
    array = fnx.device_put(np.ones(shape), NamedSharding(mesh, spec))
    fnx.debug.visualize_array_sharding(array)
    assert capsys.readouterr().out == wanted


def test_parts_of_no_elements_are_parts(mesh, capsys):
    fnx.debug.visualize_sharding((0, 4), NamedSharding(mesh, P(None, "x")))
    assert capsys.readouterr().out.count("CPU") == 2


def test_what_cannot_be_drawn(mesh):
    with pytest.raises(errors.ShapeError, match=r"one or two axes, the shape is \(\)"):
        fnx.debug.visualize_array_sharding(1.0)
    with pytest.raises(errors.ShapeError, match="one or two axes"):
        fnx.debug.visualize_sharding((2, 2, 2), NamedSharding(mesh, P("x")))
    with pytest.raises(errors.ShapeError):
        fnx.debug.visualize_sharding((3,), NamedSharding(mesh, P("x")))
    with pytest.raises(errors.ArgumentError, match=r"traced array of type f64\[3\]"):
        fnx.jit(fnx.debug.visualize_array_sharding)(np.ones(3))
