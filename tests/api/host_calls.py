"""What the tests of callbacks share: a result, two ways to run, an error."""

from __future__ import annotations

import pytest

import fnx

F32 = fnx.ShapeDtypeStruct((), "float32")
BOTH = pytest.mark.parametrize("transform", [lambda f: f, fnx.jit])


class Mistake(Exception):
    """An error of the user's own."""
