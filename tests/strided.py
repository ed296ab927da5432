"""Memory seen through layouts and matrices, by NumPy's strides: an oracle of tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.layout import Layout, Matrices


def elements(memory: Any, shape: tuple[int, ...], layout: Layout) -> Any:
    """The array that lies in a flat one."""
    strides = [memory.itemsize * stride for stride in layout.strides]
    start = memory[layout.offset :]
    return np.lib.stride_tricks.as_strided(start, shape, strides)


def matrices(memory: Any, stack: tuple[int, ...], m: int, n: int, at: Matrices) -> Any:
    """The stack of [m, n] matrices that lies in a flat array."""
    inner = (1, at.leading) if at.transposed else (at.leading, 1)
    return elements(memory, (*stack, m, n), Layout(at.offset, (*at.strides, *inner)))
