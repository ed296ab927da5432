"""Progress of a loop: a bar, moved by an effect in some of the rounds.

Receives the number of rounds that are done, from a program (`reporting`) or from Python
(`Progress.show`); moves a bar of tqdm's if that is installed, else writes a line to
standard error at every tenth of the way. Next on the walk: `loops.py`.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from fnx import errors
from fnx.api.branches import cond
from fnx.api.rounds import Body
from fnx.control.callback import Arrays, Host, Types, debug_callback
from fnx.core.trace import evaluate, trace
from fnx.core.types import array_type
from fnx.dtypes import int32


class Progress:
    """The bar of a loop of so many rounds; each thread that runs it has its own."""

    def __init__(self, label: str, length: int) -> None:
        self.label = label
        self.length = length
        # More often nobody can see.
        self.every = max(length // 100, 1)
        self._bars: dict[int, Any] = {}

    def is_due(self, done: Any) -> Any:
        """Whether so many rounds are to be shown, as a bool or an array."""
        return (done % self.every == 0) | (done == self.length) | (done == 1)

    def show(self, done: int) -> None:
        """Moves the bar; the first round begins a new one."""
        thread = threading.get_ident()
        if done == 1 and thread in self._bars:
            self._bars.pop(thread).close()  # of a run that was interrupted
        if thread not in self._bars:
            self._bars[thread] = _bar(self.label, self.length)
        bar = self._bars[thread]
        bar.update(done - bar.n)
        if done == self.length:
            self._bars.pop(thread).close()


def progress_of(name: str, progress: bool | str, length: int) -> Progress | None:
    """The bar that the option asks for; `name` is that of the loop's function."""
    if not isinstance(progress, bool | str):
        raise errors.ArgumentError(
            f"scan: progress must be a bool or a string, got {progress!r}"
        )
    if not progress:
        return None
    return Progress(name if progress is True else progress, length)


def reporting(body: Body, progress: Progress, reverse: bool) -> Body:
    """The body with one more row, the round's number, that shows the progress."""

    def run(*args: Any) -> list[Any]:
        *given, i = args
        results = evaluate(body.program, given)
        _report(progress, progress.length - i if reverse else i + 1)
        return results

    types = [*body.program.input_types, array_type((), int32)]
    return Body(trace(run, types).program, body.captured)


def _report(progress: Progress, done: Any) -> None:
    """Records that a program shows its progress; `done` is an int32 scalar."""

    def run(arrays: Arrays, types: Types) -> Arrays:
        progress.show(int(arrays[0]))
        return ()

    host = Host(f"progress of {progress.label}", run)

    def shown(done: Any) -> None:
        debug_callback(done, host=host, declared=(), members=())

    cond(progress.is_due(done), shown, lambda done: None, done)


def _bar(label: str, length: int) -> Any:
    try:
        # lazy: not everybody has tqdm, and who shows no progress need not load it
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return _Lines(label, length)
    return tqdm(total=length, desc=label)


class _Lines:
    """A line of text at every tenth of the way, with the methods of a bar."""

    def __init__(self, label: str, length: int) -> None:
        self.label = label
        self.length = length
        self.n = 0

    def update(self, rounds: int) -> None:
        """So many more rounds are done."""
        tenths = 10 * self.n // self.length
        self.n += rounds
        if 10 * self.n // self.length > tenths:
            percent = 100 * self.n // self.length
            text = f"{self.label}: {percent}% ({self.n}/{self.length})"
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """There is nothing to be closed."""
