"""fnx/distributed/checkpoint.py: written by some processes, restored by others."""

from __future__ import annotations

import json
import threading

import ml_dtypes
import numpy as np
import pytest

import fnx
from fnx import distributed
from fnx.distributed import checkpoint, safetensors, values
from fnx.errors import ArgumentError, CheckpointError, CollectiveError
from tests.distributed.jobs import run
from tests.distributed.test_communicator import DTYPES, arrays
from tests.distributed.threads import close, connected, on_all


@pytest.fixture
def of(monkeypatch):
    """Calls a function as each of so many processes, in threads."""
    mine, alone = threading.local(), values.everyone()
    for module in (values, checkpoint):
        monkeypatch.setattr(
            module, "everyone", lambda: getattr(mine, "communicator", alone)
        )

    def call(count, function):
        communicators = connected(count)

        def as_process(communicator):
            mine.communicator = communicator
            return function(communicator.rank)

        try:
            return on_all(communicators, as_process)
        finally:
            close(communicators)

    return call


def model(rng):
    """Leaves of all dtypes and awkward shapes."""
    return {
        "all": {dtype: arrays(rng, 1, (2, 3), dtype)[0] for dtype in DTYPES},
        "empty": np.zeros((0, 4), "float32"),
        "large": fnx.numpy.arange(50_000.0),
        "list": [np.float32(2.5), 3, True, None, np.zeros(())],
    }


def same(found, expected):
    assert fnx.tree.structure(found) == fnx.tree.structure(expected)
    pairs = zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True)
    for x, wanted in pairs:
        assert type(x) is type(wanted)
        assert np.asarray(x).dtype == np.asarray(wanted).dtype
        assert np.asarray(x).tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.parametrize(("writers", "readers"), [(1, 2), (3, 1), (2, 3)])
def test_any_number_of_processes_restores(of, rng, tmp_path, writers, readers):
    tree = model(rng)
    assert of(writers, lambda rank: distributed.save(tmp_path, tree, 12)) == (
        [None] * writers
    )
    folder = tmp_path / "step-00000012"
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000012"]
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) == writers
    nbytes = sum(np.asarray(x).nbytes for x in fnx.tree.leaves(tree))
    assert sum(path.stat().st_size for path in files) < nbytes + 4096  # once
    for found in of(readers, lambda rank: distributed.restore(tmp_path, tree)):
        same(found, tree)


def test_other_tools_read_the_files(tmp_path):
    read = pytest.importorskip(
        "safetensors.numpy", reason="safetensors is not installed"
    )
    safetensors.write(tmp_path / "x", {"a b": np.arange(6.0).reshape(2, 3)})
    assert read.load_file(tmp_path / "x")["a b"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_format(tmp_path):
    """By hand, from its description: length, JSON, data."""
    sha = safetensors.write(
        tmp_path / "x", {"a": np.array([1, 2], "<i2"), "b": np.array(True)}
    )
    data = (tmp_path / "x").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header["a"] == {"dtype": "I16", "shape": [2], "data_offsets": [0, 4]}
    assert header["b"] == {"dtype": "BOOL", "shape": [], "data_offsets": [4, 5]}
    assert data[8 + length :] == b"\1\0\2\0\1"
    assert safetensors.digest(tmp_path / "x") == sha


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 20,
        bytes([1, 0, 0, 0, 0, 0, 0, 0, 0x33]),
        b"\x10" + bytes(7) + b'{"a": {"x": 1}} ',
    ],
)
def test_what_is_no_such_file(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CheckpointError, match="x is no safetensors"):
        safetensors.read(tmp_path / "x")


def test_types_are_given_by_arrays_or_their_descriptions(tmp_path):
    tree = {"x": np.ones(3, ml_dtypes.bfloat16)}
    distributed.save(tmp_path, tree, 0)
    like = {"x": fnx.ShapeDtypeStruct((3,), "bfloat16")}
    found = distributed.restore(tmp_path, like, step=0)["x"]
    assert isinstance(found, fnx.Array) and found.dtype == ml_dtypes.bfloat16


def test_the_newest_is_restored_and_old_ones_go(tmp_path):
    for step in (1, 3, 20, 100_000_000):
        distributed.save(tmp_path, {"step": step}, step, keep=3)
    assert checkpoint.steps(tmp_path) == [3, 20, 100_000_000]
    assert distributed.latest_step(tmp_path) == 100_000_000
    assert distributed.restore(tmp_path, {"step": 0}) == {"step": 100_000_000}
    assert distributed.restore(tmp_path, {"step": 0}, step=3) == {"step": 3}


def test_a_checkpoint_is_replaced_as_a_whole(tmp_path):
    for value in (1.0, 2.0):
        distributed.save(tmp_path, [value], 5)
    assert distributed.restore(tmp_path, [0.0]) == [2.0]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_what_a_dead_job_left_is_no_checkpoint(tmp_path):
    distributed.save(tmp_path, [1.0], 5)
    draft = tmp_path / ".step-00000006.draft"
    draft.mkdir()
    (draft / "process-00007.safetensors").write_bytes(b"torn")
    assert distributed.latest_step(tmp_path) == 5
    distributed.save(tmp_path, [2.0], 6)
    assert not draft.exists() and distributed.restore(tmp_path, [0.0]) == [2.0]


def refused(of, folder, like, **options):
    """What three processes say that restore together."""
    found = of(3, lambda rank: distributed.restore(folder, like, **options))
    texts = [str(error) for error in found]
    assert all(isinstance(error, CheckpointError) for error in found), found
    assert len(set(texts)) == 1
    return texts[0]


TREE = {"w": np.arange(1000.0), "b": np.zeros(10, "float32")}


@pytest.mark.parametrize("damage", ["torn", "flipped", "gone"])
def test_a_file_of_one_process_that_is_damaged(of, tmp_path, damage):
    for step in (3, 4):
        of(2, lambda rank, step=step: distributed.save(tmp_path, TREE, step))
    path = tmp_path / "step-00000004" / "process-00001.safetensors"
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "torn":
        path.write_bytes(data[:-3])
    else:
        data[-1] ^= 1
        path.write_bytes(data)
    text = refused(of, tmp_path, TREE)
    assert "process-00001.safetensors, of process 1, is torn or damaged" in text
    assert "step=3" in text
    found = of(2, lambda rank: distributed.restore(tmp_path, TREE, step=3))
    same(found[1], TREE)


def test_a_damaged_index(of, tmp_path):
    distributed.save(tmp_path, TREE, 1)
    index = tmp_path / "step-00000001" / "index.json"
    text = index.read_text()
    for name in json.loads(text).keys() - {"format"}:
        for other in ({}, {name: None}):
            content = {k: v for k, v in json.loads(text).items() if k != name} | other
            index.write_text(json.dumps(content))
            assert "its index is damaged" in refused(of, tmp_path, TREE)
    content = json.loads(text)
    del content["pieces"][-1]  # what it holds would be whatever memory has held
    index.write_text(json.dumps(content))
    assert "another checksum" in refused(of, tmp_path, TREE)
    index.write_text(text[:-20])
    assert "its index is damaged" in refused(of, tmp_path, TREE)
    index.write_text('{"format": "other"}')
    assert "not of the format 'fnx checkpoint 2'" in refused(of, tmp_path, TREE)


@pytest.mark.parametrize(
    ("like", "text"),
    [
        ({"w": TREE["w"]}, "the checkpoint has ['b'], which `like` has not"),
        (TREE | {"c": 1}, "the checkpoint lacks ['c']"),
        (TREE | {"b": np.zeros(9, "float32")}, "has float32[10], `like` has f32[9]"),
        (TREE | {"b": np.zeros(10)}, "has float32[10], `like` has f64[10]"),
    ],
)
def test_leaves_that_do_not_fit(of, tmp_path, like, text):
    distributed.save(tmp_path, TREE, 1)
    assert text in refused(of, tmp_path, like)


def test_what_is_not_there(of, tmp_path):
    assert "has no checkpoint" in refused(of, tmp_path / "nowhere", TREE)
    assert "it is not there" in refused(of, tmp_path, TREE, step=9)
    with pytest.raises(ArgumentError, match="must be positive"):
        distributed.save(tmp_path, TREE, -1)


def test_one_process_that_cannot_write_is_an_error_on_all(of, tmp_path, monkeypatch):
    write = safetensors.write

    def full(path, own):
        if path.name == "process-00001.safetensors":
            raise OSError(28, "No space left on device")
        return write(path, own)

    monkeypatch.setattr(safetensors, "write", full)
    for error in of(3, lambda rank: distributed.save(tmp_path, TREE, 1)):
        assert isinstance(error, CheckpointError)
        assert "process 1: [Errno 28] No space left on device" in str(error)
    assert distributed.latest_step(tmp_path) is None


def test_trees_that_differ_are_not_written(of, tmp_path):
    def save(rank):
        distributed.save(tmp_path, {"x": np.zeros(2 + rank)}, 1)

    for error in of(2, save):
        assert isinstance(error, CollectiveError) and "save of step 1" in str(error)
    assert not any(tmp_path.iterdir())


TRAINING = """
    distributed = fnx.distributed
    folder, dies = os.environ["FOLDER"], int(os.environ["DIES"])
    fnx.config.collective_timeout = 20
    data = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    sampler = distributed.Sampler(size=64, batch_size=12, seed=4)
    state = {"w": np.zeros(3, "float32"), "step": 0}
    if distributed.latest_step(folder) is not None:
        state = distributed.restore(folder, state)
    started = state["step"]
    for step in range(started, 20):
        x = data[sampler.batch(step)]
        errors = (x * state["w"]).sum(axis=1) - x[:, 0]
        rows = distributed.process_allgather(x * errors[:, None])
        # of all examples, in their order, whatever the number of processes
        gradient = rows.reshape(-1, 3).sum(axis=0)
        state = {"w": state["w"] - 0.02 * gradient, "step": step + 1}
        if step % 3 == 2:
            distributed.save(folder, state, step + 1, keep=2)
        if step == dies and rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    distributed.assert_equal(state)
    report([started, state["w"].tolist()])
"""


@pytest.mark.multi_device
@pytest.mark.parametrize("kind", ["mpi", "tcp"])
def test_a_job_goes_on_from_its_checkpoint_after_a_process_died(kind, tmp_path):
    alone = run("tcp", 1, TRAINING, tmp_path, FOLDER=str(tmp_path / "a"), DIES="-1")
    assert alone.codes == [0], alone.printed
    ((started, expected),) = alone.reports
    assert started == 0 and np.abs(np.array(expected) - [1, 0, 0]).max() < 0.1
    folder = str(tmp_path / "b")
    died = run(kind, 3, TRAINING, tmp_path, FOLDER=folder, DIES="10")
    assert set(died.codes) != {0} and died.reports == [None] * 3
    if kind == "tcp":
        assert died.printed.count("CollectiveError") == 2
    again = run(kind, 2, TRAINING, tmp_path, FOLDER=folder, DIES="-1")
    assert set(again.codes) == {0}, again.printed
    assert again.reports == [[9, expected]] * 2


def test_a_folder_of_each_process(of, tmp_path):
    """What is wrong is on all of them, and no draft looks like a checkpoint."""

    def write(rank):
        with pytest.raises(CheckpointError, match=r"process 1.*not seen") as raised:
            distributed.save(tmp_path / str(rank), {"w": np.zeros(3)}, 1)
        return str(raised.value)

    texts = of(2, write)
    assert texts[0] == texts[1]
    assert "Fix: pass one folder that all processes see" in texts[0]
    assert distributed.latest_step(tmp_path / "0") is None
