"""Checkpoints of a job: written once, by all processes, and read by any number of them.

A checkpoint is a folder, `step-00000042`, with one safetensors file of each process and
an index of what is in them. It is made beside its place and moved there when all of it
is on the disk, so that a job that dies leaves the one before. Checksums find what was
torn or damaged later, and what goes wrong on one process is an error on all of them.
All processes have to see the folder. Next on the walk: `fnx/runtime`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fnx import errors, tree
from fnx.api.arguments import as_array, leaf_names, type_of
from fnx.api.device import device_put
from fnx.core.types import ArrayType
from fnx.distributed import safetensors
from fnx.distributed.communicator import ProcessCommunicator
from fnx.distributed.values import everyone, told
from fnx.records import record
from fnx.runtime.in_parts import GlobalArray, PartsArray, ShardedArray

NumPyArray = np.ndarray[Any, Any]
StrPath = str | os.PathLike[str]

_FORMAT = "fnx checkpoint 2"
_INDEX = "index.json"
_STEP = re.compile(r"step-(\d{8,})")


@record
class _Piece:
    """A box of a leaf that one process writes: where it begins, and its shape."""

    leaf: str
    process: int
    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        """Its name in the file of the process."""
        return f"{self.leaf} @ {','.join(map(str, self.start))}"


@errors.api_boundary
def save(directory: StrPath, values: Any, step: int, keep: int | None = None) -> None:
    """Writes a tree of arrays as the checkpoint of a step.

    Every process calls it with the same tree; each writes a part of it, and of arrays
    in parts its own, so that all is written once. With `keep`, only so many of the
    newest checkpoints stay. A checkpoint of the same step is replaced.

    Raises `CheckpointError` on all processes where one cannot write or does not see the
    folder of the first, `CollectiveError` where they have trees of other structures or
    types.

    >>> import fnx, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> fnx.distributed.save(folder, {"w": fnx.numpy.arange(3)}, step=7)
    >>> fnx.distributed.latest_step(folder)
    7
    >>> fnx.distributed.restore(folder, {"w": fnx.numpy.zeros(3, int)})
    {'w': Array([0, 1, 2], dtype=int32)}
    """
    if step < 0 or (keep is not None and keep < 1):
        raise errors.ArgumentError(f"save: step={step}, keep={keep} must be positive.")
    leaves = _named_leaves(values, "save")
    all_processes = everyone()
    types = {name: _type(x) for name, x in leaves.items()}
    all_processes.barrier(f"save of step {step}: {types}")
    place = Path(directory) / _name(step)
    draft = place.with_name(f".{place.name}.draft")
    pieces = _divided(leaves, all_processes.size)
    first = all_processes.rank == 0

    def write() -> str:
        if not draft.is_dir():
            raise errors.CheckpointError(
                errors.explain(
                    f"save in {directory}",
                    "the folder that process 0 has made there is not seen",
                    "pass one folder that all processes see",
                )
            )
        mine = [piece for piece in pieces if piece.process == all_processes.rank]
        own = {piece.key: _data(leaves[piece.leaf], piece) for piece in mine}
        return safetensors.write(draft / _file(all_processes.rank), own)

    _together(all_processes, lambda: _fresh(draft) if first else "")
    sums = _together(all_processes, write)
    _together(
        all_processes,
        lambda: _finish(place, draft, step, types, pieces, sums) if first else "",
    )
    if first and keep is not None:
        for old in steps(directory)[:-keep]:
            shutil.rmtree(Path(directory) / _name(old), ignore_errors=True)
    all_processes.barrier("saved")


@errors.api_boundary
def restore(directory: StrPath, like: Any, step: int | None = None) -> Any:
    """The tree of a checkpoint; without a step, of the newest one.

    `like` is a tree of the same structure and types, of arrays or
    `fnx.ShapeDtypeStruct`s; NumPy arrays and Python numbers in it come back as such,
    arrays in parts as parts, and all else as a whole on every process. There may be
    more or fewer processes than have written it, and other parts.

    Raises `CheckpointError` on all processes where there is no such checkpoint, where a
    file is torn or damaged, and where leaves are missing or have other types.
    """
    all_processes = everyone()

    def newest() -> str:
        found = steps(directory) if step is None else [step]
        if not found:
            raise errors.CheckpointError(f"restore: {directory} has no checkpoint.")
        return str(found[-1])

    chosen = int(_together(all_processes, newest)[0])
    place = Path(directory) / _name(chosen)
    found: list[Any] = []

    def read() -> str:
        found.append(_read(place, like))
        return ""

    _together(all_processes, read)
    return found[0]


def steps(directory: StrPath) -> list[int]:
    """The steps of the checkpoints in a folder, in their order.

    >>> steps("nothing is here")
    []
    """
    folder = Path(directory)
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    found = [match for match in map(_STEP.fullmatch, names) if match]
    return sorted([int(match[1]) for match in found])


def latest_step(directory: StrPath) -> int | None:
    """The step of the newest checkpoint in a folder; `None` if there is none.

    >>> import fnx
    >>> fnx.distributed.latest_step("nothing is here") is None
    True
    """
    found = steps(directory)
    return found[-1] if found else None


# ---------------------------------------------------------------- writing


def _divided(leaves: Mapping[str, Any], count: int) -> list[_Piece]:
    """Who writes what: parts who has them, then large leaves who has the least."""
    loads = [0] * count
    pieces = []
    for name, x in sorted(leaves.items(), key=lambda row: (-row[1].nbytes, row[0])):
        if _is_cut(x):
            pieces += _parts(name, x)
            continue
        process = loads.index(min(loads))
        loads[process] += x.nbytes
        pieces.append(_Piece(name, process, (0,) * x.ndim, x.shape))
    return pieces


def _is_cut(x: Any) -> bool:
    return isinstance(x, GlobalArray) and not x.is_fully_replicated


def _parts(name: str, x: GlobalArray) -> list[_Piece]:
    """The different parts of an array, each of the first process that has it."""
    found: dict[Any, _Piece] = {}
    for device, index in x.sharding.devices_indices_map(x.shape).items():
        start = tuple([side.start for side in index])
        shape = tuple([side.stop - side.start for side in index])
        piece = _Piece(name, device.process_index, start, shape)
        found.setdefault(start, piece)
    return list(found.values())


def _data(x: Any, piece: _Piece) -> NumPyArray:
    """What this process has of a leaf."""
    if not _is_cut(x):
        return np.asarray(x)
    for shard in x.addressable_shards:
        if tuple([side.start for side in shard.index]) == piece.start:
            return np.asarray(shard.data)
    raise errors.InternalError(f"save: this process has no {piece}")


def _fresh(draft: Path) -> str:
    """An empty folder; what a job that died has left there goes."""
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    return ""


def _finish(
    place: Path,
    draft: Path,
    step: int,
    types: Mapping[str, ArrayType],
    pieces: Sequence[_Piece],
    sums: Sequence[str],
) -> str:
    """Writes the index, and moves the folder to its place."""
    index: dict[str, Any] = {
        "format": _FORMAT,
        "step": step,
        "files": {_file(process): sha for process, sha in enumerate(sums)},
        "leaves": {
            name: [type.dtype.name, *type.shape] for name, type in types.items()
        },
        "pieces": [[p.leaf, p.process, list(p.start), list(p.shape)] for p in pieces],
    }
    index["sha256"] = _digest(index)
    with open(draft / _INDEX, "w", encoding="utf-8") as file:
        json.dump(index, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _flush(draft)
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    draft.rename(place)
    _flush(place.parent)
    shutil.rmtree(old, ignore_errors=True)
    return ""


def _flush(folder: Path) -> None:
    """Waits until the names in a folder are on the disk."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


# ---------------------------------------------------------------- reading


def _read(place: Path, like: Any) -> Any:
    """The tree of a checkpoint, which must be like another one."""
    index = _index(place)
    files = {}
    for process, (name, sha) in enumerate(index["files"].items()):
        path = place / name
        if not path.is_file() or safetensors.digest(path) != sha:
            raise _damaged(place, f"{name}, of process {process}, is torn or damaged")
        files[process] = safetensors.read(path)
    wanted, treedef = tree.flatten_with_path(like)
    _check_leaves(place, index["leaves"], [tree.keystr(path) for path, _ in wanted])
    whole: dict[str, NumPyArray] = {}
    for path, leaf in wanted:
        name = tree.keystr(path)
        dtype, *shape = index["leaves"][name]
        type = type_of(leaf, "restore", name)
        if (type.dtype.name, list(type.shape)) != (dtype, shape):
            raise errors.CheckpointError(
                errors.explain(
                    f"restore from {place}: the leaf {name}",
                    f"the checkpoint has {dtype}{shape}, `like` has {type}",
                )
            )
        whole[name] = np.empty(type.shape, type.dtype)
    for leaf, process, start, shape in index["pieces"]:
        piece = _Piece(leaf, process, tuple(start), tuple(shape))
        rows = zip(start, shape, strict=True)
        box: Any = (..., *[slice(a, a + n) for a, n in rows])
        data = files[process][piece.key]
        if whole[leaf].dtype.name == "complex128":
            data = np.array(data).view(np.complex128)[..., 0]
        whole[leaf][box] = data
    results = [_like(whole[tree.keystr(path)], leaf) for path, leaf in wanted]
    return treedef.unflatten(results)


def _index(place: Path) -> Any:
    try:
        index = json.loads((place / _INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _damaged(place, "it is not there") from None
    except ValueError as error:
        raise _damaged(place, f"its index is damaged: {error}") from None
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise _damaged(place, f"its index is not of the format {_FORMAT!r}")
    if index.pop("sha256", None) != _digest(index):
        raise _damaged(place, "its index is damaged: it has another checksum")
    return index


def _digest(index: Mapping[str, Any]) -> str:
    """The checksum of an index, which does not know its own."""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _check_leaves(place: Path, there: Mapping[str, Any], wanted: list[str]) -> None:
    missing = [name for name in wanted if name not in there]
    extra = sorted(there.keys() - set(wanted))
    if missing or extra:
        lacks = f"lacks {', '.join(missing[:5])}" if missing else ""
        has = f"has {', '.join(extra[:5])}, which `like` has not" if extra else ""
        reason = " and ".join(filter(None, [lacks, has]))
        raise errors.CheckpointError(f"restore from {place}: the checkpoint {reason}.")


def _damaged(place: Path, reason: str) -> errors.CheckpointError:
    others = [step for step in steps(place.parent) if _name(step) != place.name]
    fix = f"restore an earlier one: step={others[-1]}" if others else ""
    return errors.CheckpointError(errors.explain(f"checkpoint {place}", reason, fix))


def _like(x: NumPyArray, leaf: Any) -> Any:
    """A leaf of the kind that was asked for."""
    if isinstance(leaf, np.ndarray | np.generic):
        return x if isinstance(leaf, np.ndarray) else x[()]
    if isinstance(leaf, GlobalArray | PartsArray | ShardedArray):
        return device_put(x, leaf.sharding)
    if isinstance(leaf, bool | int | float | complex):
        return x.item()
    return as_array(x, "restore", "")


# ---------------------------------------------------------------- parts of both


def _together(
    all_processes: ProcessCommunicator, work: Callable[[], str]
) -> Sequence[str]:
    """The texts that work gives on each process; its errors are those of all."""
    try:
        text = f"={work()}"
    except (OSError, errors.CheckpointError) as error:
        text = f"process {all_processes.rank}: {error}"
    texts = told(all_processes, text)
    for text in texts:
        if not text.startswith("="):
            raise errors.CheckpointError(text)
    return [text[1:] for text in texts]


def _named_leaves(values: Any, asker: str) -> dict[str, Any]:
    leaves, treedef = tree.flatten_with_path(values)
    names = leaf_names(["the argument"], [treedef])
    found = {}
    for (path, leaf), name in zip(leaves, names, strict=True):
        x = as_array(leaf, asker, name)
        found[tree.keystr(path)] = x if _is_cut(x) else np.asarray(x)
    return found


def _type(x: Any) -> ArrayType:
    return ArrayType(x.shape, x.dtype)


def _name(step: int) -> str:
    return f"step-{step:08}"


def _file(process: int) -> str:
    return f"process-{process:05}.safetensors"
