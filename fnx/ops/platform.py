"""platform_index: which of some platforms the program runs on, known when it compiles.

A trace does not know where its program will run: the same one may run on the CPU and on
a GPU. What depends on it chooses by this number, and the compiler puts it in.
Next on the walk: `collective.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.program import Literal
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.families import Nullary, OnHost

# What a backend is called, beside its name.
_OTHER_NAMES = {"cuda": "gpu"}


def place_of(backend: str, platforms: Sequence[str], default: bool) -> int:
    """The place of a backend among names of platforms; behind them is the default.

    Raises `ArgumentError` where it has none.

    >>> place_of("cuda", ("cpu", "gpu"), False)
    1
    """
    for name in (backend, _OTHER_NAMES.get(backend)):
        if name in platforms:
            return platforms.index(name)
    if not default:
        given = ", ".join(platforms) or "none"
        raise errors.ArgumentError(
            f"platform_dependent: no function for the platform {backend}, and no "
            f"default; platforms given: {given}"
        )
    return len(platforms)


class _PlatformIndex(Nullary, OnHost):
    """platform_index(platforms, default): the place of the platform, an int32."""

    def __call__(self, *, platforms: tuple[str, ...], default: bool) -> Any:
        return bind(self, (), {"platforms": platforms, "default": default})

    def infer(self, *, platforms: tuple[str, ...], default: bool) -> ArrayType:
        """An int32."""
        if not platforms and not default:
            raise errors.ArgumentError("platform_index: there is nothing to choose")
        return ArrayType((), dtypes.int32)

    def reference(self, *, platforms: tuple[str, ...], default: bool) -> Any:
        """That of the CPU."""
        return np.asarray(place_of("cpu", platforms, default), np.int32)

    def on_backend(
        self, backend: str, *, platforms: tuple[str, ...], default: bool
    ) -> Literal:
        """Its place."""
        value = np.int32(place_of(backend, platforms, default))
        return Literal(value, ArrayType((), dtypes.int32))


platform_index = _PlatformIndex("platform_index")
