"""What the mistakes are made with, and the list of them.

Next on the walk: `flow.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

X = np.arange(3.0)
ROWS = np.ones((4, 3))
PARAMS = {"w": np.ones((3, 2)), "b": [np.zeros(2), np.zeros(2)]}

MISTAKES: list[Callable[[], None]] = []


def mistake(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a function that makes a mistake."""
    MISTAKES.append(function)
    return function
