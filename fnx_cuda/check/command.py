"""`python -m fnx_cuda.check`: all questions about a GPU, and a table of the answers.

It needs nothing but fnx and CuPy, and no network; what is missing costs its own rows
only. Answers are printed and written to a file as they come. Another process asks
(`worker.py`); where that ends or hangs, a new one goes on with the next question. With
`--emulator` it runs on the emulator of the tests, at small sizes: then the values say
something, and the times nothing. The end of this walk.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fnx
from fnx_cuda.check.attentions import attentions
from fnx_cuda.check.bandwidth import bandwidth, launch_cost, products
from fnx_cuda.check.convolutions import convolutions
from fnx_cuda.check.graphs import graphs
from fnx_cuda.check.models import compiled_models, models
from fnx_cuda.check.order import order
from fnx_cuda.check.product_kernels import product_kernels
from fnx_cuda.check.report import (
    HEAD,
    Question,
    Row,
    as_json,
    from_line,
    line,
    summary,
)
from fnx_cuda.check.routines import decompositions, fourier, stacks
from fnx_cuda.check.values import replays, several_devices, values
from fnx_cuda.check.worker import LOST, to_standard_output, work
from fnx_cuda.doctor import findings

QUESTIONS: dict[str, Question] = {
    question.__name__: question
    for question in (
        values,
        replays,
        graphs,
        several_devices,
        launch_cost,
        bandwidth,
        models,
        products,
        decompositions,
        stacks,
        fourier,
        convolutions,
        attentions,
        product_kernels,
        order,
        compiled_models,
    )
}
"""All questions, in the order in which they are asked: the last ones may be cut."""

SECONDS = 240
"""So long it takes about: a GPU may be lent for a few minutes."""

PATIENCE = 100
"""The seconds without an answer after which a process counts as one that hangs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks, prints and writes; 1 if something is wrong, 2 if there is no GPU."""
    options = _options(arguments)
    names = options.only or list(QUESTIONS)
    if options.worker:
        out = to_standard_output()
        return work(names, QUESTIONS, options.seconds, options.emulator, out)
    if not options.emulator and not fnx.cuda.is_available():
        fnx.doctor()
        return 2
    machine = {"fnx": fnx.__version__}
    if options.emulator:
        machine["device"] = "the emulator: values count, times say nothing"
    else:
        machine |= {finding.what: finding.found for finding in findings()}
    for what, found in machine.items():
        print(f"{what}: {found}")
    print(f"\n{HEAD}", flush=True)
    rows: list[Row] = []

    def answer(row: Row) -> None:
        rows.append(row)
        print(line(row), flush=True)
        options.json.write_text(as_json(rows, machine), encoding="utf-8")

    _ask(names, options, answer)
    print(f"\n{summary(rows)}\nAll of it is in {options.json}.")
    return int(any(row.good is False for row in rows))


def _options(arguments: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m fnx_cuda.check")
    parser.add_argument("--emulator", action="store_true", help="run without a GPU")
    parser.add_argument(
        "--json",
        type=Path,
        default=Path("fnx-check.json"),
        help="where the answers are written (%(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="about how long it may take (%(default)s); what is cut short says so",
    )
    parser.add_argument(
        "--only", nargs="+", choices=QUESTIONS, help="ask these questions only"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _ask(names: Sequence[str], options: Any, answer: Callable[[Row], None]) -> None:
    """Has workers ask, each until it ends, and tells of all answers."""
    end = time.monotonic() + options.seconds
    left = list(names)
    while left:
        seconds = end - time.monotonic()
        if seconds <= 0:
            for name in left:
                answer(Row(name, "not asked", note="there was no time left"))
            return
        worker = Worker(left, seconds, options.emulator)
        for row in worker.rows():
            answer(row)
        if worker.trouble:
            what = left[len(worker.done)] if len(worker.done) < len(left) else "end"
            answer(Row(what, "stopped", good=False, note=worker.trouble))
        done = len(worker.done) + bool(worker.trouble)
        left = left[done:]


class Worker:
    """A process that asks questions; `done` are those that it is through with.

    `trouble` says why it ended before its time, if it did.
    """

    def __init__(self, names: Sequence[str], seconds: float, emulated: bool) -> None:
        command = [sys.executable, "-m", "fnx_cuda.check", "--worker"]
        command += ["--seconds", f"{seconds:.0f}", "--only", *names]
        if emulated:
            command.append("--emulator")
        # JAX would take most of the memory for itself.
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.done: list[str] = []
        self.trouble = ""

    def rows(self) -> Iterator[Row]:
        """Answers as they come, until the process ends, or hangs and is ended."""
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        reader.start()
        try:
            yield from self._answers(lines)
        finally:
            # It hangs, or whoever wants the answers has gone.
            if self.trouble or sys.exc_info()[0] is not None:
                self.process.kill()
            status = self.process.wait()
            reader.join()
        if status not in (0, LOST) and not self.trouble:
            self.trouble = f"the process ended with status {status}"

    def _answers(self, lines: queue.Queue[str | None]) -> Iterator[Row]:
        while True:
            try:
                text = lines.get(timeout=PATIENCE)
            except queue.Empty:
                self.trouble = f"no answer for {PATIENCE} s: the process was ended"
                return
            if text is None:
                return
            message = from_line(text)
            if "row" in message:
                yield message["row"]
            elif "done" in message:
                self.done.append(message["done"])

    def _read(self, lines: queue.Queue[str | None]) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for text in stream:
                lines.put(text)
        lines.put(None)
