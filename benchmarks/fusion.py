"""What fusing elementwise operations into one loop gives.

Receives whether to be quick (leaves out the largest arrays), gives cases: a chain of
transcendental functions, and a polynomial that only the memory limits.
Next on the walk: `complex_fft.py`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Case, everywhere, normal


def chain(xp: Any) -> Any:
    return lambda x: xp.tanh(x) * xp.exp(-x * x) + 0.5 * xp.sin(x)


def polynomial(xp: Any) -> Any:
    return lambda x: (x * 2 + 1) * x


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    sizes = {"1e4": 10**4, "1e6": 10**6} | ({} if quick else {"1e7": 10**7})
    return [
        Case(f"{title}, {text}", normal(n), everywhere(make), moved=8 * n)
        for title, make in (("tanh-exp-sin chain", chain), ("(x*2+1)*x", polynomial))
        for text, n in sizes.items()
    ]
