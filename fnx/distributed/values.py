"""Values of all processes: compared, gathered, or one process's for all.

Receives trees of arrays, one of each process; gives trees of NumPy arrays. Everybody
has to call these, with trees of the same structure and types: an error on all of them
says what differs otherwise. Next on the walk: `sampling.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors, tree
from fnx.api.arguments import as_array, leaf_names
from fnx.core.types import ArrayType
from fnx.distributed.communicator import ProcessCommunicator
from fnx.distributed.tcp import TCPChannel
from fnx.runtime.across import whole_of
from fnx.runtime.in_parts import GlobalArray
from fnx.runtime.processes import processes

NumPyArray = np.ndarray[Any, Any]

# What is told of a leaf, or of an error, to the other processes.
_SHOWN = 512


def everyone() -> ProcessCommunicator:
    """The communicator of all processes; of this one, if it is alone."""
    found = processes().communicator
    return found or ProcessCommunicator(TCPChannel(0, (0,), {}, b""))


@errors.api_boundary
def barrier(name: str = "") -> None:
    """Waits until all processes are here; they give the same name.

    Raises `CollectiveError` on all processes where one is elsewhere, has failed, or
    does not come within `fnx.config.collective_timeout` seconds.

    >>> import fnx
    >>> fnx.distributed.barrier("data is there")
    """
    everyone().barrier(name)


@errors.api_boundary
def sync_global_devices(name: str) -> None:
    """The name of `barrier` in JAX."""
    everyone().barrier(name)


@errors.api_boundary
def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The leaves of all processes, stacked along a new leading axis.

    A leaf of shape `(a, b)` gives one of shape `(process_count, a, b)`; with `tiled`,
    `(process_count * a, b)`, and leaves need an axis. An array of which the processes
    have parts is given as a whole. Raises `CollectiveError` where processes differ in
    structure or types, `ShapeError` for numbers with `tiled`.

    >>> import fnx, numpy as np
    >>> fnx.distributed.process_allgather({"loss": np.float32(0.5)})
    {'loss': array([0.5], dtype=float32)}
    """
    arrays, treedef, names = _flat(in_tree, "process_allgather", parts=True)
    for x, name in zip(arrays, names, strict=True):
        if tiled and x.ndim == 0:
            raise errors.ShapeError(
                errors.explain(
                    "process_allgather(tiled=True)",
                    f"{name} is a number, and has no axis to put rows along",
                    "leave tiled out: numbers are stacked",
                )
            )
    all_processes = everyone()
    _agree(all_processes, "process_allgather", arrays, treedef)
    results = []
    for x in arrays:
        if isinstance(x, GlobalArray):
            results.append(whole_of(x))
            continue
        out = np.empty((all_processes.size, *x.shape), x.dtype)
        all_processes.all_gather(x, out)
        results.append(out.reshape(-1, *x.shape[1:]) if tiled else out)
    return treedef.unflatten(results)


@errors.api_boundary
def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """One process's leaves, on all processes.

    The source is process 0, or the one that passes `is_source=True`; the others pass a
    tree of the same structure and types, whose values do not matter. Raises
    `CollectiveError` where they differ, `ArgumentError` unless there is one source.

    >>> import fnx, numpy as np
    >>> fnx.distributed.broadcast_one_to_all([np.arange(3)])
    [array([0, 1, 2])]
    """
    arrays, treedef, _ = _flat(in_tree, "broadcast_one_to_all")
    all_processes = everyone()
    _agree(all_processes, "broadcast_one_to_all", arrays, treedef)
    root = _source(all_processes, is_source)
    results = [x.copy() for x in arrays]
    for x in results:
        all_processes.broadcast(x, root)
    return treedef.unflatten(results)


def _source(all_processes: ProcessCommunicator, is_source: bool | None) -> int:
    claims = np.empty(all_processes.size, "int8")
    mine = np.array(2 if is_source is None else is_source, "int8")
    all_processes.all_gather(mine, claims)
    if (claims == 2).all():
        return 0
    sources = np.flatnonzero(claims == 1)
    if len(sources) != 1 or (claims == 2).any():
        raise errors.ArgumentError(
            errors.explain(
                "broadcast_one_to_all",
                f"of {claims.size} processes {len(sources)} say that they are the "
                f"source, {(claims == 0).sum()} that they are not",
                "let one pass is_source=True and all others False, or leave it out",
            )
        )
    return int(sources[0])


@errors.api_boundary
def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raises `DifferenceError` on all processes unless all have the same tree.

    Structures, types and every bit are compared, by digests: little is sent. The error
    names the first leaf that differs, and the first process whose leaf differs from
    that of process 0.

    >>> import fnx
    >>> fnx.distributed.assert_equal({"step": 3}, "the steps")
    """
    arrays, treedef, _ = _flat(in_tree, "assert_equal")
    all_processes = everyone()
    paths = [tree.keystr(path) for path, _ in tree.leaves_with_path(in_tree)]
    structure = _digest([str(treedef).encode()])
    odd = _odd(all_processes, structure)
    if odd:
        texts = told(all_processes, str(treedef))
        raise _differ(fail_message, "the structures of the trees", odd[0], texts)
    leaves = np.concatenate([structure, *[_leaf_digest(x) for x in arrays]])
    odd = _odd(all_processes, leaves)
    if not odd:
        return
    rank, number = odd[0], (odd[1] - structure.size) // structure.size
    texts = told(all_processes, _shown(arrays[number]))
    where = f"leaf {paths[number]}" if paths[number] else "the array"
    raise _differ(fail_message, where, rank, texts)


def _odd(
    all_processes: ProcessCommunicator, mine: NumPyArray
) -> tuple[int, int] | tuple[()]:
    """The first place where the rows of the ranks differ: (rank, column)."""
    rows = np.empty((all_processes.size, *mine.shape), mine.dtype)
    all_processes.all_gather(mine, rows)
    columns = np.flatnonzero((rows != rows[0]).any(axis=0))
    if not columns.size:
        return ()
    return int(np.flatnonzero(rows[:, columns[0]] != rows[0, columns[0]])[0]), columns[
        0
    ]


def _differ(
    message: str, where: str, rank: int, texts: Sequence[str]
) -> errors.DifferenceError:
    said = f"{message}: " if message else ""
    return errors.DifferenceError(
        errors.explain(
            f"assert_equal: {said}{where} of process {rank} and of process 0 differ",
            f"\n    process 0: {texts[0]}\n    process {rank}: {texts[rank]}",
        )
    )


def _digest(parts: Sequence[bytes | memoryview]) -> NumPyArray:
    """A name of 128 bits for the content, as an array."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(part)
    return np.frombuffer(made.digest(), "<i8")


def _leaf_digest(x: NumPyArray) -> NumPyArray:
    return _digest([str(_type(x)).encode(), x.reshape(-1).view(np.uint8).data])


def _shown(x: NumPyArray) -> str:
    values = ", ".join(map(str, x.reshape(-1)[:3].tolist()))
    dots = ", …" if x.size > 3 else ""
    made = _leaf_digest(x).tobytes().hex()[:8]
    return f"{_type(x)} [{values}{dots}], digest {made}"


def told(all_processes: ProcessCommunicator, text: str) -> list[str]:
    """A short text of each process, on all of them."""
    mine = np.zeros(_SHOWN, np.uint8)
    data = np.frombuffer(text.encode()[:_SHOWN], np.uint8)
    mine[: data.size] = data
    rows = np.empty((all_processes.size, _SHOWN), np.uint8)
    all_processes.all_gather(mine, rows)
    return [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in rows]


def _flat(
    in_tree: Any, asker: str, parts: bool = False
) -> tuple[list[Any], Any, list[str]]:
    """The leaves as contiguous NumPy arrays, the structure, and the leaves' names.

    With `parts`, arrays of which other processes have parts stay what they are.
    """
    leaves, treedef = tree.flatten(in_tree)
    names = leaf_names(["the argument"], [treedef])
    arrays: list[Any] = []
    for leaf, name in zip(leaves, names, strict=True):
        if parts and isinstance(leaf, GlobalArray):
            arrays.append(leaf)
            continue
        x = np.asarray(as_array(leaf, asker, name))
        arrays.append(np.ascontiguousarray(x).reshape(x.shape))
    return arrays, treedef, names


def _agree(
    all_processes: ProcessCommunicator,
    asker: str,
    arrays: Sequence[Any],
    treedef: Any,
) -> None:
    """Raises `CollectiveError` on all unless structures and types are the same."""
    types = ", ".join([str(_type(x)) for x in arrays])
    all_processes.barrier(f"{asker} of {treedef} with {types}")


def _type(x: Any) -> ArrayType:
    return ArrayType(x.shape, x.dtype)
