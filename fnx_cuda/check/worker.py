"""The process that asks: one question after the other, each answer a line of JSON.

What a GPU has gone wrong with may be of no use any more to the process, or may have
ended it, or may never end: so they are asked by a process that can be done without.
Receives names of questions; writes answers to a file descriptor. Next on the walk:
`command.py`.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

import fnx
from fnx_cuda.check.report import Question, Setting, as_line, asked

LEAST = 20.0
"""The seconds that a question may take at least, if there are so many."""

LOST = 3
"""The exit status of a worker whose device is of no use any more."""

Write = Callable[[dict[str, Any]], None]


def work(
    names: Sequence[str],
    questions: Mapping[str, Question],
    seconds: float,
    emulated: bool,
    out: Callable[[str], None],
) -> int:
    """Asks, and tells of each question its answers, and when it is through."""
    end = time.monotonic() + seconds
    with _emulator() if emulated else nullcontext():
        device, cpu = fnx.devices("cuda")[0], fnx.devices("cpu")[0]
        setting = Setting(device, cpu, emulated)
        for number, name in enumerate(names):
            left = end - time.monotonic()
            share = max(2 * left / (len(names) - number), min(LEAST, left))
            failed = False
            for row in asked(questions[name], setting, share):
                failed = failed or row.case == "stopped"
                out(as_line({"row": row}))
            out(as_line({"done": name}))
            if failed and not _works(device):
                return LOST
    return 0


def _works(device: Any) -> bool:
    """Whether a device still computes: what has failed may have been its last."""
    with suppress(Exception):
        x = fnx.device_put(np.arange(5, dtype="float32"), device)
        return bool((np.asarray(x + 1) == np.arange(1, 6)).all())
    return False


@contextmanager
def _emulator() -> Iterator[None]:
    """The emulator in CuPy's place; it comes with the tests, in a checkout of fnx."""
    try:
        emulator = importlib.import_module("tests.cuda_emulator")
    except ImportError as error:
        raise SystemExit(
            f"--emulator needs a checkout of fnx, and to be started in it: {error}"
        ) from error
    reason = emulator.reason_missing()
    if reason:
        raise SystemExit(f"the emulator cannot run: {reason}")
    cupy = importlib.import_module("fnx_cuda._cupy")
    cupy.use(emulator.cupy_module())
    importlib.import_module("fnx.runtime.device").forget()
    yield
    found = emulator.machine().findings
    if found:
        raise SystemExit("\n".join(["the emulator has found:", *found]))


def to_standard_output() -> Callable[[str], None]:
    """Writes lines to standard output; what others print there goes to the errors."""
    stream = sys.stdout
    sys.stdout = sys.stderr

    def out(line: str) -> None:
        print(line, file=stream, flush=True)

    return out
