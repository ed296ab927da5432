"""Files of named arrays in the safetensors format.

Receives NumPy arrays by name, gives them back; the header is JSON, the data lies behind
it as it is, so that other tools read it.
(https://github.com/huggingface/safetensors, "Format".) Next on the walk:
`checkpoint.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.errors import CheckpointError

NumPyArray = np.ndarray[Any, Any]

_NAMES = {
    dtypes.bool_: "BOOL",
    dtypes.int8: "I8",
    dtypes.int16: "I16",
    dtypes.int32: "I32",
    dtypes.int64: "I64",
    dtypes.uint8: "U8",
    dtypes.uint16: "U16",
    dtypes.uint32: "U32",
    dtypes.uint64: "U64",
    dtypes.float16: "F16",
    dtypes.bfloat16: "BF16",
    dtypes.float32: "F32",
    dtypes.float64: "F64",
    dtypes.complex64: "C64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_LENGTH = struct.Struct("<Q")


def write(path: Path, arrays: Mapping[str, NumPyArray]) -> str:
    """Writes a file, and waits until it is on the disk; gives its SHA-256.

    complex128 is written as pairs of float64: `read` gives pairs back.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "fnx"}}
    buffers: list[Any] = []
    start = 0
    for name, x in arrays.items():
        if x.dtype == dtypes.complex128:
            x = np.ascontiguousarray(x).reshape(x.shape)[..., None].view(np.float64)
        data = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        header[name] = {
            "dtype": _NAMES[dtypes.same(x.dtype)],
            "shape": list(x.shape),
            "data_offsets": [start, start + data.size],
        }
        buffers.append(data.data)
        start += data.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    made = hashlib.sha256()
    with open(path, "wb") as file:
        part: Any
        for part in (_LENGTH.pack(len(text)), text, *buffers):
            file.write(part)
            made.update(part)
        file.flush()
        os.fsync(file.fileno())
    return made.hexdigest()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: Path) -> dict[str, NumPyArray]:
    """The arrays of a file, whose data is read when it is looked at.

    Raises `CheckpointError` for a file that is not of this format.
    """
    try:
        with open(path, "rb") as file:
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            if length > path.stat().st_size:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        base = _LENGTH.size + length
        rows = {n: row for n, row in dict(header).items() if n != "__metadata__"}
        return {name: _array(path, base, row) for name, row in rows.items()}
    except (struct.error, ValueError, KeyError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{path} is no safetensors file: {error}") from error


def _array(path: Path, base: int, row: Mapping[str, Any]) -> NumPyArray:
    dtype, shape = _DTYPES[row["dtype"]], tuple(row["shape"])
    start, end = row["data_offsets"]
    if end - start != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"{end - start} bytes for {row['dtype']}{list(shape)}")
    if start == end:
        return np.empty(shape, dtype)
    data = np.memmap(path, np.uint8, "r", base + start, end - start)
    return data.view(dtype).reshape(shape)
