"""fnx/distributed/launch.py and the start: what the environment says, what is wrong."""

from __future__ import annotations

import pytest

import fnx
from fnx.distributed.launch import Launch, find, first_host
from fnx.errors import ArgumentError, CollectiveError

THREE = {
    "FNX_COORDINATOR": "127.0.0.1:999",
    "FNX_NUM_PROCESSES": "3",
    "FNX_PROCESS_ID": "2",
}
SLURM = {
    "SLURM_JOB_ID": "4000",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NODELIST": "gpu[07-08,11]",
}
MPI = {"PMI_SIZE": "4", "PMI_RANK": "3"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Launch("alone")),
        (THREE, Launch("environment", 3, 2, ("127.0.0.1", 999), "")),
        (
            {**THREE, "FNX_COORDINATOR": "[fe80::1]:70", "FNX_SECRET": "s"},
            Launch("environment", 3, 2, ("fe80::1", 70), "s"),
        ),
        ({"FNX_NUM_PROCESSES": "1"}, Launch("environment")),
        (MPI, Launch("mpi4py", 4, 3)),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
            Launch("mpi4py", 2, 0),
        ),
        (SLURM, Launch("slurm", 16, 5, ("gpu07", 65_000 - 4000), "slurm 4000.0")),
        ({**SLURM, **MPI}, Launch("mpi4py", 4, 3)),
        ({**SLURM, **MPI, **THREE}, find(environment=THREE)),
        ({"SLURM_JOB_ID": "1"}, Launch("alone")),  # a job, and no step of it
    ],
)
def test_what_the_environment_says(environment, expected, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert find(environment=environment) == expected


def test_slurm_goes_before_mpi_where_mpi_is_not_there(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find(environment={**SLURM, **MPI}).method == "slurm"


def test_arguments_go_before_variables():
    found = find("localhost:5", process_id=0, environment=THREE)
    assert found == Launch("environment", 3, 0, ("localhost", 5), "")
    assert find(method="slurm", environment={**SLURM, **THREE}).method == "slurm"


def test_jobs_and_steps_of_slurm_have_other_ports_and_secrets():
    keys = ("SLURM_JOB_ID", "SLURM_STEP_ID")
    found = [
        find(environment={**SLURM, **dict(zip(keys, (job, step), strict=True))})
        for job in ("4000", "4001")
        for step in ("0", "1")
    ]
    assert len({(launch.address, launch.secret) for launch in found}) == 4


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        ({"num_processes": 2}, {}, r"coordinator_address .* and process_id .* given"),
        ({"coordinator_address": "a:1"}, {}, "num_processes .*FNX_NUM_PROCESSES"),
        ({"process_id": 3}, THREE, "process 3 is none of 3 processes"),
        ({"process_id": -1}, THREE, "process_id .* is a number, not -1"),
        ({"num_processes": 0}, THREE, "process 2 is none of 0 processes"),
        ({"coordinator_address": "localhost"}, THREE, "HOST:PORT, not 'localhost'"),
        ({}, {**THREE, "FNX_PROCESS_ID": "two"}, "is a number, not 'two'"),
        ({"coordinator_address": "10.1.1.1:5"}, THREE, "set FNX_SECRET"),
        ({"method": "slurm"}, THREE, "the environment has nothing of it"),
        ({"method": "k8s"}, THREE, "'environment', 'mpi4py', 'slurm'"),
    ],
)
def test_what_does_not_fit_is_an_error(arguments, environment, text):
    with pytest.raises(ArgumentError, match=text):
        find(**arguments, environment=environment)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a[1-2]", "a1"), ("a[010,12],b", "a010"), ("a-b.c,d", "a-b.c")],
)
def test_first_host(nodes, first):
    assert first_host(nodes) == first


@pytest.fixture
def alone(monkeypatch):
    for name in (*THREE, *SLURM, *MPI, "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield
    fnx.distributed.shutdown()


def test_a_process_that_nothing_started_is_alone(alone):
    assert not fnx.distributed.is_initialized()
    fnx.distributed.initialize()
    assert fnx.distributed.is_initialized()
    assert (fnx.process_index(), fnx.process_count()) == (0, 1)
    with pytest.raises(CollectiveError, match="it was called before"):
        fnx.distributed.initialize()
    fnx.distributed.shutdown()
    assert not fnx.distributed.is_initialized()
    fnx.distributed.shutdown()  # there is nothing left to do


def test_a_coordinator_that_is_not_there(alone):
    with pytest.raises(CollectiveError, match=r"nobody answers at 127.0.0.1:9: .*\n"):
        fnx.distributed.initialize("127.0.0.1:9", 2, 1, initialization_timeout=0.3)
    assert not fnx.distributed.is_initialized() and fnx.process_count() == 1
