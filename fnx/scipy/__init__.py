"""fnx.scipy: what `jax.scipy` has, under the same names.

Each part, a folder or a file beside this one, is loaded when it is first used.
Next on the walk: the parts, in the order of their names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fnx.scipy import (
        cluster,
        fft,
        integrate,
        interpolate,
        linalg,
        ndimage,
        optimize,
        signal,
        sparse,
        special,
        stats,
    )

__all__ = [
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "special",
    "stats",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"fnx.scipy.{name}")
    raise AttributeError(f"module 'fnx.scipy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
