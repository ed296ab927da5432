"""What a sum over processes costs: fnx over MPI and TCP, PyTorch's Gloo, MPI's own.

Receives whether to be quick, gives cases; each starts processes on this machine that
measure themselves, all of them from one barrier to the next. MPI's own `Allreduce` runs
in turns with fnx in the same processes, and stands in the remarks. Next on the walk:
`process.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Reported, Row, Run

# Median seconds of MPI's own Allreduce, by the name of the case.
_own: dict[str, list[float]] = {}

# ---------------------------------------------------------------- the new processes


def work(kind: str, size: int, rounds: int) -> None:
    """One of several processes: sums arrays; the first one prints what it took."""
    x = np.random.default_rng(_rank(kind)).standard_normal(size, np.float32)
    out = np.empty_like(x)
    rank, barrier, runs = _PEERS[kind](x, out)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 2):
        for name, run in runs.items():
            barrier()
            start = time.perf_counter()
            run()
            barrier()
            if turn >= 2:
                taken[name].append(time.perf_counter() - start)
    if rank == 0:
        times = {name: statistics.median(row) for name, row in taken.items()}
        print(json.dumps({"times": times, "out": out[:16].tolist()}))


def _rank(kind: str) -> int:
    return int(os.environ["PMI_RANK" if kind == "mpi" else "FNX_PROCESS_ID"])


Runs = tuple[int, Callable[[], Any], dict[str, Callable[[], Any]]]


def _fnx(x: np.ndarray, out: np.ndarray) -> Runs:
    import fnx  # lazy: each process runs one library
    from fnx.runtime.processes import processes

    fnx.distributed.initialize()
    everyone = processes().communicator
    runs = {"fnx": lambda: everyone.all_reduce(x, out, "sum")}
    return fnx.process_index(), everyone.barrier, runs


def _fnx_and_mpi(x: np.ndarray, out: np.ndarray) -> Runs:
    rank, _, runs = _fnx(x, out)
    from mpi4py import MPI  # lazy: after fnx has started it

    own = np.empty_like(out)
    runs["mpi"] = lambda: MPI.COMM_WORLD.Allreduce(x, own)
    return rank, MPI.COMM_WORLD.Barrier, runs


def _gloo(x: np.ndarray, out: np.ndarray) -> Runs:
    import torch  # lazy: each process runs one library
    from torch import distributed

    rank, count = _rank("torch"), int(os.environ["FNX_NUM_PROCESSES"])
    torch.set_num_threads(1)
    address = f"tcp://{os.environ['FNX_COORDINATOR']}"
    distributed.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=count
    )
    result = torch.from_numpy(out)

    def run() -> None:
        out[...] = x  # it sums in place
        distributed.all_reduce(result)

    return rank, distributed.barrier, {"torch": run}


_PEERS = {"mpi": _fnx_and_mpi, "tcp": _fnx, "torch": _gloo}

# ---------------------------------------------------------------- the measuring one


def started(kind: str, count: int, size: int, rounds: int) -> dict[str, Any]:
    """What the first of `count` processes prints."""
    program = f"from benchmarks import collectives as c; c.work({kind!r}, {size}, "
    command = [sys.executable, "-c", program + f"{rounds})"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "FNX_NUM_THREADS": "1"}
    if kind == "mpi":
        mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
        command = [mpiexec or "mpiexec", "-n", str(count), *command]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True
        )
        return json.loads(done.stdout)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment["FNX_COORDINATOR"] = f"127.0.0.1:{port}"
    environment["FNX_NUM_PROCESSES"] = str(count)
    processes = [
        subprocess.Popen(
            command,
            env=environment | {"FNX_PROCESS_ID": str(i)},
            stdout=subprocess.PIPE,
        )
        for i in range(count)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return json.loads(outputs[0])


def summing(kind: str, name: str, count: int, size: int, rounds: int) -> Build:
    """Build a run of processes that sum."""

    def build(library: Any, inputs: Inputs) -> Run:
        def run() -> Reported:
            report = started(kind, count, size, rounds)
            times = report["times"]
            if "mpi" in times:
                _own.setdefault(name, []).append(times["mpi"])
            return Reported([np.array(report["out"])], times[library.__name__])

        return run

    return build


def cases(quick: bool) -> list[Case]:
    """Sums of many floats and of few, over four processes and two."""
    large, rounds = (10**6, 5) if quick else (10**7, 15)
    made = []
    for kind, count, size in (
        ("mpi", 4, large),
        ("mpi", 4, 1000),
        ("mpi", 2, large),
        ("tcp", 4, large),
        ("tcp", 2, large),
    ):
        power = len(str(size)) - 1
        name = f"1e{power} floats, {count} processes, {kind.upper()}"
        columns = {"fnx": summing(kind, name, count, size, rounds)}
        if kind == "tcp":
            columns["torch"] = summing("torch", name, count, size, rounds)
        made.append(Case(name, lambda rng: (), columns, reported=True, single=True))
    return made


def remarks(rows: list[Row]) -> list[str]:
    """How fnx stands to MPI, measured in turns in the same processes."""
    lines = []
    for row in rows:
        ours = row.median("fnx")
        if ours is not None and row.name in _own:
            own = statistics.median(_own[row.name])
            lines.append(
                f"{row.name}: MPI's own Allreduce {1e3 * own:.3g} ms, fnx / MPI "
                f"{ours / own:.2f}"
            )
    return lines
