"""Jobs of real processes: what they compute together, and what ends them.

By `mpiexec` (from the mpich wheel) and over TCP, each with a limit of time.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.distributed.jobs import run, run_script
from tests.test_readme import snippets

pytestmark = pytest.mark.multi_device

KINDS = pytest.mark.parametrize("kind", ["mpi", "tcp"])

COLLECTIVES = """
    import hashlib
    from fnx.distributed.communicator import ProcessCommunicator

    assert isinstance(everyone, ProcessCommunicator)
    digest = hashlib.sha256()
    bfloat16 = ml_dtypes.bfloat16
    for dtype in ("bool", "int16", "float16", bfloat16, "float32", "complex128"):
        for shape in ((), (3, 5), (70_001,)):
            xs = np.random.default_rng(5).normal(size=(size, *shape)) * 100
            xs = (xs > 0 if dtype == "bool" else xs).astype(dtype)
            out = np.empty(shape, dtype)
            everyone.all_reduce(xs[rank, ...], out, "max" if dtype == "bool" else "sum")
            digest.update(out.tobytes())
            rows = np.empty((size, *shape), dtype)
            everyone.all_gather(xs[rank, ...], rows)
            assert rows.tobytes() == xs.tobytes()
    rotated = np.empty(9)
    ring = [(i, (i + 1) % size) for i in range(size)]
    everyone.permute(np.full(9, float(rank)), rotated, ring)
    x = np.arange(10.0) if rank == size - 1 else np.zeros(10)
    everyone.broadcast(x, size - 1)
    half = everyone.split([list(range(size // 2)), list(range(size // 2, size))])
    numbers = np.empty((half.size,), int)
    half.all_gather(np.array(rank), numbers)
    report([digest.hexdigest(), rotated[0], x.sum(), numbers.tolist()])
"""


@pytest.mark.parametrize("count", [2, 4])
def test_processes_compute_the_same_by_mpi_and_tcp(count, tmp_path):
    jobs = {kind: run(kind, count, COLLECTIVES, tmp_path) for kind in ("tcp", "mpi")}
    for kind, job in jobs.items():
        assert set(job.codes) == {0} and None not in job.reports, job.printed
        assert job.printed == "", (kind, job.printed)
        for rank, (_, rotated, total, numbers) in enumerate(job.reports):
            half = range(count // 2) if rank < count // 2 else range(count // 2, count)
            assert (rotated, total) == ((rank - 1) % count, 45.0)
            assert numbers == [*half]
    digests = {report[0] for job in jobs.values() for report in job.reports}
    assert len(digests) == 1


DIFFERENT = """
    def differ():
        if rank == 1:
            everyone.all_gather(np.zeros(3), np.zeros((size, 3)))
        else:
            everyone.all_reduce(np.zeros(3), np.zeros(3), "sum")

    def mismatch():
        x = np.zeros((3, 1 + (rank == 2)), "float32")
        everyone.all_reduce(x, np.zeros_like(x), "sum")

    found = [caught(differ), caught(mismatch)]
    everyone.barrier()
    report(found)
"""


@KINDS
def test_processes_that_do_not_do_the_same(kind, tmp_path):
    job = run(kind, 3, DIFFERENT, tmp_path)
    assert set(job.codes) == {0}, job.printed
    for rank, (different, mismatched) in enumerate(job.reports):
        assert different.startswith("CollectiveError: collective 1, "), different
        for text in (
            f"on process {rank}: not all processes do the same",
            "process 1: collective 1, all_gather(f64[3])",
            "processes 0, 2: collective 1, all_reduce(f64[3], sum)",
        ):
            assert text in different
        assert "process 2: collective 2, all_reduce(f32[3,2], sum)" in mismatched
        assert "processes 0, 1: collective 2, all_reduce(f32[3,1], sum)" in mismatched


FAILING = """
    fnx.config.collective_timeout = 2
    out = np.zeros(200_000)
    text = caught(everyone.all_reduce, np.ones_like(out), out, "sum")
    if rank == 1:
        {ending}
    if text == "None":  # others may hear of the end while they are in the first one
        text = caught(everyone.all_reduce, np.ones_like(out), out, "sum")
    report(text)
    sys.exit(7)
"""


def failing(kind, ending, folder):
    start = time.monotonic()
    job = run(kind, 3, FAILING.format(ending=ending), folder, limit=60)
    assert time.monotonic() - start < 60
    assert 0 not in job.codes or kind == "tcp", job.printed
    return job


@KINDS
def test_a_process_that_raises_ends_the_job_with_its_reason(kind, tmp_path):
    job = failing(kind, "raise ValueError('a bad day')", tmp_path)
    assert job.reports[1] is None and "ValueError: a bad day" in job.printed
    for rank in (0, 2):
        assert job.reports[rank].startswith("CollectiveError: collective ")
        assert "process 1 failed: ValueError: a bad day" in job.reports[rank]
    assert kind == "mpi" or job.codes == [7, 1, 7]


@KINDS
def test_a_killed_process_ends_the_job(kind, tmp_path):
    job = failing(kind, "os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert job.reports[1] is None
    if kind == "tcp":  # mpiexec ends the others itself
        assert job.codes == [7, -9, 7]
        for rank in (0, 2):
            assert "process 1 has ended" in job.reports[rank]


@KINDS
def test_a_process_that_hangs_is_not_waited_for(kind, tmp_path):
    job = failing(kind, "time.sleep(6)", tmp_path)
    for rank in (0, 2):
        assert "process 1 has not come within 2 s" in job.reports[rank]
        assert "all_reduce(f64[200000], sum) on process" in job.reports[rank]


@KINDS
def test_a_process_that_ends_early_is_not_waited_for(kind, tmp_path):
    job = failing(kind, "sys.exit(0)", tmp_path)
    assert kind == "mpi" or job.codes == [7, 0, 7]
    for rank in (0, 2):
        assert "process 1 has ended" in job.reports[rank]


def test_sums_are_those_of_one_process(tmp_path, rng):
    """In the order of the ranks, whatever carries them."""
    program = """
        x = np.random.default_rng(rank).normal(size=50_000).astype("float32")
        out = np.empty_like(x)
        everyone.all_reduce(x, out, "sum")
        report(out.view("uint32").tolist())
    """
    job = run("tcp", 2, program, tmp_path)
    xs = [
        np.random.default_rng(i).normal(size=50_000).astype("float32") for i in (0, 1)
    ]
    for report in job.reports:
        assert report == (xs[0] + xs[1]).view("uint32").tolist()


def test_a_step_of_a_slurm_job(tmp_path):
    program = """
        out = np.empty(size)
        everyone.all_gather(np.array(float(rank)), out)
        report(out.tolist())
    """
    job = run("slurm", 3, program, tmp_path)
    assert set(job.codes) == {0}, job.printed
    assert job.reports == [[0.0, 1.0, 2.0]] * 3


def test_the_program_of_several_processes_stands_alone(tmp_path):
    """It trains in two, and again from the checkpoint that these have left, in one."""
    (program,) = [x.code for x in snippets() if "distributed.initialize()" in x.code]
    script = tmp_path / "train.py"
    script.write_text(program, encoding="utf-8")
    job = run_script("tcp", 2, script)
    assert job.codes == [0, 0], job.printed
    assert job.printed == "[0.46112 0.46112] 0 2\n[0.46112 0.46112] 1 2\n"
    script.write_text(program.replace("range(first, 5)", "range(5, 6)"))
    job = run_script("tcp", 1, script)
    assert job.printed == "[0.476672 0.476672] 0 1\n"
