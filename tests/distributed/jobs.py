"""Jobs of several processes for tests: started by mpiexec, or by hand over TCP.

Receives the text of a program that every process runs; gives what each one reported
and how it ended. A job that takes longer than its limit is killed, and fails the test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.defpath}")

# What every program begins with.
PROLOGUE = """
import json, os, signal, sys, time
import ml_dtypes
import numpy as np
import fnx
import fnx.numpy as fnp
from fnx.runtime.processes import processes

def report(value):
    path = os.path.join(os.environ["REPORTS"], f"{fnx.process_index()}.json")
    with open(path + ".draft", "w") as file:
        json.dump(value, file)
    os.replace(path + ".draft", path)  # whoever is killed has reported all or nothing

def caught(function, *args):
    try:
        return repr(function(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

fnx.distributed.initialize(initialization_timeout=60)
everyone = processes().communicator
rank, size = fnx.process_index(), fnx.process_count()
"""


@dataclass(frozen=True)
class Job:
    """What became of a job: reports by process, exit codes, all that was printed."""

    reports: list[Any]
    codes: list[int]
    printed: str


def run(
    kind: str,
    count: int,
    program: str,
    folder: Path,
    limit: float = 90,
    **environment: str,
) -> Job:
    """Runs a program in `count` processes: `kind` is "mpi", "tcp" or "slurm"."""
    reports = folder / f"reports_{kind}_{count}"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    script = folder / "program.py"
    script.write_text(PROLOGUE + textwrap.dedent(program), encoding="utf-8")
    job = run_script(kind, count, script, limit, REPORTS=str(reports), **environment)
    found = [reports / f"{i}.json" for i in range(count)]
    reported = [json.loads(p.read_text()) if p.exists() else None for p in found]
    return replace(job, reports=reported)


def run_script(
    kind: str, count: int, script: Path, limit: float = 90, **environment: str
) -> Job:
    """Runs a file in `count` processes, in its folder."""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PMI", "SLURM"))},
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    start = {"mpi": _mpi, "tcp": _tcp, "slurm": _slurm}[kind]
    with start(count, [sys.executable, str(script)], environment) as started:
        outputs = [_output(process, limit) for process in started]
    return Job([], [process.returncode for process in started], "".join(outputs))


def _output(process: subprocess.Popen[str], limit: float) -> str:
    try:
        return process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"the job hangs:\n{process.communicate()[0]}")


@contextmanager
def _mpi(
    count: int, command: list[str], environment: dict[str, str]
) -> Iterator[list[subprocess.Popen[str]]]:
    if MPIEXEC is None:
        pytest.skip("mpiexec is not installed: it comes with fnx[mpi]")
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: fnx[mpi]")
    with _started([MPIEXEC, "-n", str(count), *command], environment) as process:
        yield [process]


@contextmanager
def _tcp(
    count: int, command: list[str], environment: dict[str, str]
) -> Iterator[list[subprocess.Popen[str]]]:
    common = {
        "FNX_COORDINATOR": f"127.0.0.1:{free_port()}",
        "FNX_NUM_PROCESSES": str(count),
    }
    with _each(count, command, environment | common, "FNX_PROCESS_ID") as processes:
        yield processes


@contextmanager
def _slurm(
    count: int, command: list[str], environment: dict[str, str]
) -> Iterator[list[subprocess.Popen[str]]]:
    """What `srun` would set on one machine."""
    common = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_NODELIST": "localhost",
    }
    with _each(count, command, environment | common, "SLURM_PROCID") as processes:
        yield processes


@contextmanager
def _each(
    count: int, command: list[str], environment: dict[str, str], number: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are started by hand, each with its number in a variable."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for i in range(count):
            processes.append(_start(command, environment | {number: str(i)}))
        yield processes
    finally:
        for process in processes:
            _end(process)


@contextmanager
def _started(
    command: list[str], environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    process = _start(command, environment)
    try:
        yield process
    finally:
        _end(process)


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment,
        cwd=Path(command[-1]).parent,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # so that a job is killed with all of its processes
    )


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
