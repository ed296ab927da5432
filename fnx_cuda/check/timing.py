"""Times of work that a GPU does on its own: many calls, and one wait at the end.

`per_call` gives the seconds that a call takes when the device is busy throughout,
`on_host` those that it takes of the host before it returns. The peers are libraries
that may not be there; what they lack is left away. Next on the walk: `values.py`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

Call = Callable[[], Any]
Wait = Callable[[Any], Any]

LONG = 0.2
"""The seconds that one measurement takes about."""

SLOW = 0.5
"""A call that takes so many seconds is not measured again."""

TIMES = 3
"""Of so many measurements the quickest counts: what disturbs makes them longer."""


def per_call(call: Call, wait: Wait, small: bool = False) -> float:
    """The seconds of a call among many, of which only the last one is waited for."""
    for _ in range(3):  # compiled, tuned, and captured as a graph
        once = _timed(call, wait, 1)
    if once > SLOW:
        return once
    count = 1 if small else _count(call, wait)
    return min(_timed(call, wait, count) for _ in range(1 if small else TIMES)) / count


def on_host(call: Call, wait: Wait, small: bool = False) -> float:
    """The seconds of the host that a call takes until it returns."""
    wait(call())
    count = 2 if small else 100
    found = []
    for _ in range(1 if small else TIMES):
        start = time.perf_counter()
        for _ in range(count):
            out = call()
        found.append((time.perf_counter() - start) / count)
        wait(out)
    return min(found)


def _count(call: Call, wait: Wait) -> int:
    once = _timed(call, wait, 1)
    return max(1, min(int(LONG / max(once, 1e-7)), 2000))


def _timed(call: Call, wait: Wait, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        out = call()
    wait(out)
    return time.perf_counter() - start


def peer(name: str) -> Any:
    """A library that is installed and sees a GPU, or `None`."""
    try:
        module = importlib.import_module(name)
        return module if _SEES_A_GPU[name](module) else None
    except Exception:  # whatever keeps it from working, it is no peer here
        return None


def _jax_sees(jax: Any) -> bool:
    return bool(jax.default_backend() == "gpu")


_SEES_A_GPU: Mapping[str, Callable[[Any], bool]] = {
    "torch": lambda torch: torch.cuda.is_available(),
    "jax": _jax_sees,
    "cupy": lambda cupy: cupy.cuda.is_available(),
}


def torch_wait(out: Any) -> None:
    """Waits for all that PyTorch has started."""
    peer("torch").cuda.synchronize()


def cupy_wait(out: Any) -> None:
    """Waits for all that CuPy has started."""
    peer("cupy").cuda.runtime.deviceSynchronize()


def jax_wait(out: Any) -> None:
    """Waits for the arrays of a result of JAX."""
    peer("jax").block_until_ready(out)


def beside(calls: Mapping[str, Callable[[Any], Call]]) -> tuple[tuple[str, float], ...]:
    """The seconds of the libraries that are there and can do it.

    Each function makes a call from a library; `name` may go on behind a blank.
    """
    waits = {"torch": torch_wait, "cupy": cupy_wait, "jax": jax_wait}
    found = []
    for name, make in calls.items():
        library = name.split()[0]
        module = peer(library)
        if module is None:
            continue
        try:
            found.append((name, per_call(make(module), waits[library])))
        except Exception:  # a peer that cannot do it is no reason to stop
            continue
    return tuple(found)
