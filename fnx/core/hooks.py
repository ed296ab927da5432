"""The upward calls of the core, each set once by a layer above.

`core` records equations; running one needs the runtime, which lives above it. This is
the only place where a lower layer calls a higher one, so that imports point down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fnx.config import busy as busy  # not empty while calls go through Python

if TYPE_CHECKING:
    from fnx.core.primitive import Primitive
    from fnx.core.program import Literal

# Runs one primitive on concrete arrays; set by `runtime.eager`.
evaluate: Callable[[Primitive, tuple[Any, ...], Mapping[str, Any]], Any]

# A literal as a concrete array; set by `runtime.eager`.
constant: Callable[[Literal], Any]
