"""`python -m fnx_cuda.check`: all questions about a GPU, and a table of the answers.

It needs nothing but fnx and CuPy, and no network; what is missing costs its own rows
only. With `--emulator` it runs on the emulator of the tests, at small sizes: then the
values say something, and the times nothing. The end of this walk.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import fnx
from fnx_cuda.check.bandwidth import bandwidth, launch_cost, products
from fnx_cuda.check.convolutions import convolutions
from fnx_cuda.check.models import models
from fnx_cuda.check.order import order
from fnx_cuda.check.product_kernels import product_kernels
from fnx_cuda.check.report import Row, Setting, as_json, asked, table
from fnx_cuda.check.routines import decompositions, fourier
from fnx_cuda.check.values import replays, several_devices, values

QUESTIONS = {
    question.__name__: question
    for question in (
        values,
        replays,
        several_devices,
        launch_cost,
        bandwidth,
        order,
        products,
        product_kernels,
        convolutions,
        fourier,
        decompositions,
        models,
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks, prints and writes; 1 if something is wrong, 2 if there is no GPU."""
    options = _options(arguments)
    with _emulated() if options.emulator else nullcontext():
        if not fnx.cuda.is_available():
            fnx.doctor()
            return 2
        device = fnx.devices("cuda")[0]
        setting = Setting(device, fnx.devices("cpu")[0], options.emulator)
        rows: list[Row] = []
        for name in options.only or QUESTIONS:
            print(f"asking: {name}", file=sys.stderr, flush=True)
            rows += asked(QUESTIONS[name], setting)
            if options.json is not None:  # after each, in case something ends it all
                options.json.write_text(as_json(rows), encoding="utf-8")
    print(f"{device.device_kind}: fnx on CUDA\n\n{table(rows)}")
    return int(any(row.good is False for row in rows))


def _options(arguments: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m fnx_cuda.check")
    parser.add_argument("--emulator", action="store_true", help="run without a GPU")
    parser.add_argument("--json", type=Path, help="write the answers to a file")
    parser.add_argument(
        "--only", nargs="+", choices=QUESTIONS, help="ask these questions only"
    )
    return parser.parse_args(arguments)


@contextmanager
def _emulated() -> Iterator[None]:
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
