"""What a new process costs: imports, the first training step, memory.

Receives whether to be quick (a smaller model), gives cases, each measured by processes
about themselves: the time of an import, the time from there to the first step of
`gpt.py` without and with a cache of compiled code on disk, and the most memory that
a few steps hold. This is the last question.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpt
from benchmarks.harness import (
    COLUMNS,
    Build,
    Case,
    Inputs,
    Reported,
    Run,
    both,
    fetch,
    load,
    put,
)

IMPORT = """
import time
start = time.perf_counter()
import {library}
print(time.perf_counter() - start)
"""
STEPS = """
from benchmarks import process
process.report_steps({library!r}, {layers}, {tokens})
"""
STEP_COUNT = 3
# A checkout has its bytecode on disk, too, as an installed package has.
BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}


# ---------------------------------------------------------------- the new process


def report_steps(column: str, layers: int, tokens: int) -> None:
    """Train a little and print the losses, the seconds to the first, and the memory."""
    library = load(column)
    inputs = put(library, gpt.data(layers, tokens)(np.random.default_rng(0)))
    start = time.perf_counter()
    run = gpt.TRAINING[column](library, inputs)
    losses = [fetch(run())[0].item()]
    seconds = time.perf_counter() - start
    losses += [fetch(run())[0].item() for _ in range(STEP_COUNT - 1)]
    print(json.dumps({"losses": losses, "seconds": seconds, "bytes": peak_memory()}))


def peak_memory() -> int:
    """The most bytes of memory that this process has held."""
    # ru_maxrss of a new process counts its parent's memory; Linux knows better
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (text for text in status.open() if text.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource  # lazy: Windows has no such module

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---------------------------------------------------------------- the measuring one


def output(code: str, environment: dict[str, str]) -> Any:
    """What a new Python process that runs the code prints, read as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | BYTECODE | environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def importing(library: Any, inputs: Inputs) -> Run:
    code = IMPORT.format(library=library.__name__)
    return lambda: Reported((), output(code, {}))


def stepping(measured: str, quick: bool, warm: bool = False) -> Build:
    """Build a run of a process that trains; if `warm`, with another's disk cache."""
    layers, tokens = gpt.size(quick)

    def build(library: Any, inputs: Inputs) -> Run:
        code = STEPS.format(library=library.__name__, layers=layers, tokens=tokens)
        folder = tempfile.TemporaryDirectory(prefix="benchmark-cache-")

        def run() -> Reported:
            report = output(code, cache_on_disk(folder.name) if warm else {})
            return Reported(report["losses"], report[measured])

        if warm:
            run()
        return run

    return build


def cache_on_disk(folder: str) -> dict[str, str]:
    """The environment in which fnx and JAX keep all that they compile in a folder."""
    return {
        "FNX_DISK_CACHE": "1",
        "FNX_CACHE_DIR": folder,
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


def case(name: str, columns: dict[str, Build], **options: Any) -> Case:
    return Case(name, lambda rng: (), columns, tolerance=1e-3, reported=True, **options)


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    three = ("fnx", "jax", "torch")
    cold, memory = stepping("seconds", quick), stepping("bytes", quick)
    warm = stepping("seconds", quick, warm=True)
    return [
        case("import", dict.fromkeys(COLUMNS, importing)),
        case("first GPT step", dict.fromkeys(three, cold), single=quick),
        case(
            "first GPT step, warm disk cache",
            both(warm),
            single=quick,
        ),
        case(
            f"peak memory, {STEP_COUNT} GPT steps",
            dict.fromkeys(three, memory),
            unit="bytes",
            single=quick,
        ),
    ]
