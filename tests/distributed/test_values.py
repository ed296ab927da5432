"""fnx/distributed/values.py: in one process, in threads, and in a job."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
from fnx import distributed
from fnx.distributed import values
from fnx.errors import ArgumentError, CollectiveError, DifferenceError, ShapeError
from tests.distributed.jobs import run
from tests.distributed.threads import close, connected, on_all


@pytest.fixture
def each(monkeypatch):
    """Calls a function as each of three processes, in threads."""
    import threading

    communicators = connected(3)
    mine = threading.local()
    monkeypatch.setattr(values, "everyone", lambda: mine.communicator)

    def call(function):
        def as_process(communicator):
            mine.communicator = communicator
            return function(communicator.rank)

        return on_all(communicators, as_process)

    yield call
    close(communicators)


def test_alone():
    tree = {"a": fnx.numpy.arange(3), "b": [2.5, np.ones((2, 2), ml_dtypes.bfloat16)]}
    gathered = distributed.process_allgather(tree)
    assert gathered["a"].tolist() == [[0, 1, 2]] and gathered["b"][0].shape == (1,)
    tiled = distributed.process_allgather(tree["a"], tiled=True)
    assert isinstance(tiled, np.ndarray) and tiled.tolist() == [0, 1, 2]
    sent = distributed.broadcast_one_to_all(tree)
    assert sent["b"][1].dtype == ml_dtypes.bfloat16 and sent["b"][0] == 2.5
    distributed.assert_equal(tree)
    distributed.barrier()
    distributed.sync_global_devices("here")


def test_the_names_of_jax():
    from fnx.experimental import multihost_utils

    own = {"global_array_to_host_local_array", "host_local_array_to_global_array"}
    for name in {*multihost_utils.__all__} - own:
        assert getattr(multihost_utils, name) is getattr(distributed, name)


def test_gathering(each):
    def gather(rank):
        tree = {"a": np.full((2, 3), rank), "n": float(rank), "none": None}
        return (
            distributed.process_allgather(tree),
            distributed.process_allgather(tree["a"], tiled=True),
        )

    for stacked, tiled in each(gather):
        assert stacked["none"] is None and stacked["n"].tolist() == [0, 1, 2]
        assert stacked["a"].shape == (3, 2, 3)
        assert stacked["a"][:, 1, 2].tolist() == [0, 1, 2]
        assert tiled[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_one_to_all(each):
    def send(rank):
        tree = [np.arange(5) * (rank + 1), np.float32(rank)]
        first = distributed.broadcast_one_to_all(tree)
        return first, distributed.broadcast_one_to_all(tree, is_source=rank == 2)

    for first, third in each(send):
        assert first[0].tolist() == [0, 1, 2, 3, 4] and first[1] == 0
        assert third[0].tolist() == [0, 3, 6, 9, 12] and third[1] == 2


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ([True, True, False], "of 3 processes 2 say that they are the source, 1 that"),
        ([False] * 3, "of 3 processes 0 say"),
        ([None, True, False], "of 3 processes 1 say that they are the source, 1 that"),
    ],
)
def test_one_source(each, claims, text):
    for error in each(
        lambda rank: distributed.broadcast_one_to_all(1.0, is_source=claims[rank])
    ):
        assert isinstance(error, ArgumentError) and text in str(error)


def test_other_types_are_errors(each):
    for error in each(
        lambda rank: distributed.process_allgather({"x": np.zeros(2 + rank // 2)})
    ):
        assert isinstance(error, CollectiveError)
        assert "process 2: collective 1, barrier(process_allgather" in str(error)
        assert "f64[3]" in str(error) and "f64[2]" in str(error)
    with pytest.raises(ShapeError, match="the argument is a number"):
        distributed.process_allgather(1.0, tiled=True)


def test_barriers_have_names(each):
    assert each(lambda rank: distributed.sync_global_devices("a")) == [None] * 3
    for error in each(lambda rank: distributed.sync_global_devices("ab"[rank // 2])):
        assert isinstance(error, CollectiveError) and "barrier(b)" in str(error)


def model():
    return {"layers": [{"w": np.ones((4, 5)), "b": np.zeros(5)}], "step": 3}


def test_equal_trees_are_equal(each):
    assert each(lambda rank: distributed.assert_equal(model(), "x")) == [None] * 3


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (
            lambda tree: tree["layers"][0]["w"].__setitem__((3, 4), 1 + 1e-15),
            ["leaf ['layers'][0]['w'] of process 2", "f64[4,5] [1.0, 1.0, 1.0, …]"],
        ),
        (
            lambda tree: tree["layers"][0]["b"].__setitem__(0, -0.0),
            ["leaf ['layers'][0]['b'] of process 2", "[-0.0, 0.0, 0.0, …]"],
        ),
        (
            lambda tree: tree.update(step=np.float32(3)),
            ["leaf ['step'] of process 2", "process 2: f32[] [3.0]"],
        ),
        (
            lambda tree: tree.update(extra=1),
            ["the structures of the trees of process 2 and of process 0 differ"],
        ),
    ],
)
def test_the_first_difference_is_named(each, change, texts):
    def compare(rank):
        tree = model()
        if rank == 2:
            change(tree)
        distributed.assert_equal(tree, "after the step")

    for error in each(compare):
        assert isinstance(error, DifferenceError), error
        for text in ["assert_equal: after the step: ", *texts]:
            assert text in str(error)


def test_an_array_alone_has_no_path(each):
    for error in each(lambda rank: distributed.assert_equal(rank)):
        assert "the array of process 1 and of process 0 differ" in str(error)


PROGRAM = """
    distributed = fnx.distributed
    tree = {"x": fnp.full(3, rank), "y": np.float32(0.5)}
    report([
        distributed.process_allgather(tree)["x"].tolist(),
        distributed.broadcast_one_to_all(tree, rank == 1)["x"].tolist(),
        caught(distributed.assert_equal, tree, "trees"),
        caught(distributed.sync_global_devices, "here"),
        list(distributed.shard_of(7)),
        [rank, size],
    ])
"""


@pytest.mark.multi_device
@pytest.mark.parametrize("kind", ["mpi", "tcp"])
def test_in_a_job(kind, tmp_path):
    job = run(kind, 2, PROGRAM, tmp_path)
    assert set(job.codes) == {0}, job.printed
    for rank, (gathered, sent, difference, synced, part, numbers) in enumerate(
        job.reports
    ):
        assert gathered == [[0] * 3, [1] * 3] and sent == [1] * 3
        assert difference.startswith("DifferenceError: assert_equal: trees: leaf ['x']")
        assert synced == "None" and numbers == [rank, 2]
        assert part == [[0, 1, 2], [3, 4, 5, 6]][rank]
