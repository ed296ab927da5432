"""What started this process as one of several, and where the others are to be found.

Receives the arguments of `initialize` and the environment; gives a `Launch`. Explicit
arguments and `FNX_COORDINATOR`, `FNX_NUM_PROCESSES`, `FNX_PROCESS_ID` go first, then
what `mpiexec` sets, then Slurm's variables. Next on the walk: `starting.py`.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any

from fnx import errors
from fnx.distributed.rendezvous import is_loopback
from fnx.records import record

# What launchers of MPI say: the variables of size and rank. MPICH and what is made of
# it, Open MPI, MVAPICH.
_MPI = (
    ("PMI_SIZE", "PMI_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
)
METHODS = ("environment", "mpi4py", "slurm")
# The coordinator of a Slurm job listens at a port above those that Linux gives away.
_PORTS = range(61_000, 65_000)


@record
class Launch:
    """How this process was started: as number `index` of `count`.

    Without an `address`, MPI connects the processes; else they meet at that one, and
    prove that they know the secret.
    """

    method: str
    count: int = 1
    index: int = 0
    address: tuple[str, int] | None = None
    secret: str = ""


def find(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    method: str | None = None,
    secret: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Launch:
    """What started this process; one process alone, if nothing says more.

    Raises `ArgumentError` where only a part is given or the parts do not fit.
    """
    given = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    explicit = any(value is not None for value in given.values())
    secret = environment.get("FNX_SECRET", "") if secret is None else secret
    if explicit or method in (None, "environment"):
        found = _explicit(given, environment, secret)
        if found is not None:
            return found
    if method in (None, "mpi4py"):
        found = _mpi(environment)
        if found is not None:
            return found
    if method in (None, "slurm") and "SLURM_STEP_ID" in environment:
        return _slurm(environment, secret)
    if method is None:
        return Launch("alone")
    known = ", ".join(map(repr, METHODS))
    reason = "the environment has nothing of it" if method in METHODS else known
    raise errors.ArgumentError(
        errors.explain(f"initialize: cluster_detection_method={method!r}", reason)
    )


def _explicit(
    given: Mapping[str, Any], environment: Mapping[str, str], secret: str
) -> Launch | None:
    """What the arguments say, and the variables where those say nothing."""
    variables = ("FNX_COORDINATOR", "FNX_NUM_PROCESSES", "FNX_PROCESS_ID")
    values = [
        environment.get(variable) if value is None else value
        for value, variable in zip(given.values(), variables, strict=True)
    ]
    names = [f"{a} ({v})" for a, v in zip(given, variables, strict=True)]
    if all(value is None for value in values):
        return None
    if values[1] is not None and _number(values[1], names[1]) == 1:
        return Launch("environment")
    missing = [n for n, value in zip(names, values, strict=True) if value is None]
    if missing:
        raise _wrong(f"{' and '.join(missing)} must be given too")
    count, index = _number(values[1], names[1]), _number(values[2], names[2])
    if not 0 <= index < count:
        raise _wrong(f"process {index} is none of {count} processes")
    host, colon, port = str(values[0]).rpartition(":")
    if not colon or not port.isdecimal():
        raise _wrong(f"{names[0]} is HOST:PORT, not {values[0]!r}")
    host = host.strip("[]")
    if not secret and not is_loopback(host):
        raise _wrong(
            f"processes of other machines may come to {host}, and nothing tells them "
            "from strangers",
            "set FNX_SECRET to the same random text for all of them",
        )
    return Launch("environment", count, index, (host, int(port)), secret)


def _mpi(environment: Mapping[str, str]) -> Launch | None:
    """What `mpiexec` says; nothing where Slurm says the same and MPI is not there."""
    for size, rank in _MPI:
        if size in environment and rank in environment:
            slurm = "SLURM_STEP_ID" in environment
            if slurm and importlib.util.find_spec("mpi4py") is None:
                return None
            return Launch("mpi4py", int(environment[size]), int(environment[rank]))
    return None


def _slurm(environment: Mapping[str, str], secret: str) -> Launch:
    """A step of a Slurm job: its first node has the coordinator.

    The secret keeps jobs apart; against strangers on the machines, set one.
    """
    job = environment["SLURM_JOB_ID"]
    count = int(environment["SLURM_STEP_NUM_TASKS"])
    host = first_host(environment["SLURM_STEP_NODELIST"])
    step = environment["SLURM_STEP_ID"]
    port = _PORTS[(int(job) + 1009 * int(step)) % len(_PORTS)]
    return Launch(
        "slurm",
        count,
        int(environment["SLURM_PROCID"]),
        (host, port) if count > 1 else None,
        secret or f"slurm {job}.{step}",
    )


def first_host(nodes: str) -> str:
    """The first name of a list of nodes as Slurm writes it.

    >>> first_host("node[003-010,12],login1"), first_host("a,b")
    ('node003', 'a')
    """
    found = re.match(r"([^,\[]+)(?:\[([^\],\-]+))?", nodes)
    if found is None:
        raise _wrong(f"SLURM_STEP_NODELIST is {nodes!r}")
    return found[1] + (found[2] or "")


def _number(value: Any, name: str) -> int:
    text = str(value)
    if not text.isdecimal():
        raise _wrong(f"{name} is a number, not {value!r}")
    return int(text)


def _wrong(reason: str, fix: str = "") -> errors.ArgumentError:
    return errors.ArgumentError(errors.explain("initialize", reason, fix))
