"""Layer 2: the first-order primitives, each in one place with all its rules.

`families` has the rules that many primitives share, `arithmetic` the four operations
that derivatives are made of; the other files hold one kind of operation each, an
operation beside its transpose. Importing this package registers every primitive.
Users find here what JAX has under this name, the functions of segments, which stand in
`fnx/numpy/segments.py`. Next on the walk: `fnx.transforms`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fnx.numpy.segments import segment_max, segment_min, segment_prod, segment_sum

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def __getattr__(name: str) -> Any:
    # By name, since that file stands many layers above this one.
    if name not in __all__:
        raise AttributeError(f"module 'fnx.ops' has no attribute {name!r}")
    return getattr(importlib.import_module("fnx.numpy.segments"), name)
