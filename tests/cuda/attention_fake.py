"""What stands in the place of the package `cudnn`: attention and gradients, by NumPy.

Graphs have to be described and finished in the package's order, and tensors say their
sizes, strides and dtypes; addresses are memory of this process. What the package would
refuse it refuses, with its errors; the work is done when its stream comes to it, and
nothing is written where no element of a tensor is. Next: `test_attention.py`.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from tests.cuda.library_fakes import Later, Written, memory, now

STAGES = (
    "validate",
    "build_operation_graph",
    "create_execution_plans",
    "check_support",
    "build_plans",
)
WORKSPACE = 5000


class cudnnGraphNotSupportedError(Exception):
    """A graph that the library does not have."""


class data_type(enum.Enum):
    NOT_SET, FLOAT, HALF, BFLOAT16 = range(4)


_NUMPY = {
    data_type.FLOAT: np.dtype(np.float32),
    data_type.HALF: np.dtype(np.float16),
    data_type.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}


class Tensor:
    """A tensor's attributes, which are set one after the other."""

    def __init__(self, uid: int, dim=(), stride=(), kind=data_type.NOT_SET) -> None:
        self.uid, self.dim, self.stride, self.kind = uid, dim, stride, kind
        self.is_output = False

    def set_output(self, is_output: bool) -> Tensor:
        self.is_output = is_output
        return self

    def set_data_type(self, kind: data_type) -> Tensor:
        self.kind = kind
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = tuple(dim)
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = tuple(stride)
        return self

    def get_uid(self) -> int:
        return self.uid

    def view(self, address: int) -> Any:
        """The memory at an address, with these sizes and strides."""
        dtype, pairs = _NUMPY[self.kind], zip(self.dim, self.stride, strict=True)
        reach = sum([(size - 1) * step for size, step in pairs]) + 1
        flat = memory(address, reach, dtype)
        steps = [step * dtype.itemsize for step in self.stride]
        return np.lib.stride_tricks.as_strided(flat, self.dim, steps)


class FakeCudnn:
    """The package; `ran` are the operations that have run.

    `refused` operations are not supported, `fails` has a function raise.
    """

    __version__ = "1.23.0"
    cudnnGraphNotSupportedError = cudnnGraphNotSupportedError
    data_type = data_type
    heur_mode = SimpleNamespace(A="A")
    diagonal_alignment = SimpleNamespace(TOP_LEFT="TOP_LEFT")

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.fails: set[str] = set()
        self.ran: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.later: Later = now
        self.numbers = itertools.count(1)
        self.streams: dict[int, int] = {}
        self.workspace = WORKSPACE

    def backend_version(self) -> int:
        return 91500

    def create_handle(self) -> int:
        self.check("create_handle")
        return next(self.numbers)

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream

    def check(self, function: str) -> None:
        if function in self.fails:
            raise RuntimeError(f"{function} gave CUDNN_STATUS_EXECUTION_FAILED")

    def pygraph(
        self,
        io_data_type: data_type,
        intermediate_data_type: data_type,
        compute_data_type: data_type,
        handle: int,
    ) -> FakeGraph:
        assert io_data_type in (data_type.HALF, data_type.BFLOAT16)
        assert intermediate_data_type == compute_data_type == data_type.FLOAT
        assert handle
        return FakeGraph(self)


class FakeGraph:
    """A graph of one operation."""

    def __init__(self, owner: FakeCudnn) -> None:
        self.owner = owner
        self.tensors: list[Tensor] = []
        self.name = ""
        self.options: dict[str, Any] = {}
        self.ends: dict[str, Tensor] = {}
        self.done: list[str] = []

    def tensor(self, name: str, dim: Any, stride: Any, data_type: Any) -> Tensor:
        made = Tensor(len(self.tensors) + 100, tuple(dim), tuple(stride), data_type)
        self.tensors.append(made)
        return made

    def _new(self) -> Tensor:
        return self.tensor("", (), (), data_type.NOT_SET)

    def sdpa(self, q: Any, k: Any, v: Any, generate_stats: bool, **options: Any) -> Any:
        self.name, self.options = "sdpa", options
        out, stats = self._new(), self._new() if generate_stats else None
        self.ends = {"q": q, "k": k, "v": v, "o": out}
        self.ends |= {} if stats is None else {"stats": stats}
        return [out, stats]

    def sdpa_backward(
        self, q: Any, k: Any, v: Any, o: Any, dO: Any, stats: Any, **options: Any
    ) -> Any:
        assert options.pop("use_deterministic_algorithm") is True
        self.name, self.options = "sdpa_backward", options
        made = [self._new() for _ in "qkv"]
        self.ends = {"q": q, "k": k, "v": v, "o": o, "dO": dO, "stats": stats}
        self.ends |= dict(zip(("dq", "dk", "dv"), made, strict=True))
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in STAGES:
            raise AttributeError(name)
        return lambda *given: self._stage(name)

    def _stage(self, name: str) -> None:
        self.owner.check(name)
        assert name == STAGES[len(self.done)], "a stage out of order"
        self.done.append(name)
        if name == "validate":
            self._validate()
        if name == "check_support" and self.name in self.owner.refused:
            raise cudnnGraphNotSupportedError("no engine")

    def _validate(self) -> None:
        """What the package says of sizes, strides and the band."""
        known = {name: tensor.dim for name, tensor in self.ends.items()}
        (b, h, s, d), (_, shared, keys, _) = known["q"], known["k"]
        assert known["k"] == known["v"] == (b, shared, keys, d)
        assert known["o"] == (b, h, s, d) and not h % shared
        assert known.get("stats", (b, h, s, 1)) == (b, h, s, 1)
        for name in "qkv":
            assert known.get(f"d{name}", known[name]) == known[name]
        for name, tensor in self.ends.items():
            assert (tensor.kind == data_type.FLOAT) == (name == "stats")
            assert tensor.stride[3] == 1
        made = {"o", "stats"} if self.name == "sdpa" else {"dq", "dk", "dv"}
        for name, tensor in self.ends.items():
            assert tensor.is_output == (name in made)
        left, right = [
            self.options[f"diagonal_band_{side}_bound"] for side in ("left", "right")
        ]
        if d % 8 or d > 256 or (s == keys == 1 and self.name == "sdpa_backward"):
            raise cudnnGraphNotSupportedError("sizes")
        if left is not None and (left <= 0 or s > keys or right is None):
            raise cudnnGraphNotSupportedError("left bound")

    def get_workspace_size(self) -> int:
        assert self.done == list(STAGES)
        return self.owner.workspace

    def execute(self, pack: dict[int, int], workspace: int, handle: int) -> None:
        self.owner.check("execute")
        assert self.done == list(STAGES) and not workspace % 256
        assert all(type(key) is type(value) is int for key, value in pack.items())
        views = {n: t.view(pack[t.uid]) for n, t in self.ends.items()}
        places = {n: pack[t.uid] for n, t in self.ends.items()}
        assert len(pack) == len(views)

        def run() -> Written:
            self.owner.ran.append(self.name)
            self.owner.asked.append(self.options)
            memory(workspace, self.owner.workspace, np.uint8)[...] = 0xAB
            wide = {name: view.astype(np.float64) for name, view in views.items()}
            made = attended(wide, self.options)
            if self.name == "sdpa_backward":
                made = differentiated(wide, self.options)
            written = [(workspace, self.owner.workspace)]
            for name in set(made) & set(views):
                views[name][...] = made[name].astype(views[name].dtype)
                written.append((places[name], views[name].size * views[name].itemsize))
            return written

        self.owner.later(self.owner.streams[handle], run)


# ---------------------------------------------------------------- values


def _weights(given: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """The products of visible keys, others -inf, and the heads of keys repeated."""
    groups = given["q"].shape[1] // given["k"].shape[1]
    k = np.repeat(given["k"], groups, 1)
    products = options["attn_scale"] * given["q"] @ np.swapaxes(k, 2, 3)
    assert options["diagonal_alignment"] == "TOP_LEFT"
    left, right = [options[f"diagonal_band_{s}_bound"] for s in ("left", "right")]
    rows, columns = np.indices(products.shape[2:])
    seen = np.ones(products.shape[2:], bool)
    if right is not None:
        seen &= columns <= rows + right
    if left is not None:
        seen &= columns > rows - left
    assert seen.any(1).all(), "the library is not asked for rows that see nothing"
    return np.where(seen, products, -np.inf), k


def attended(given: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The output and the statistics of a forward pass."""
    products, k = _weights(given, options)
    v = np.repeat(given["v"], k.shape[1] // given["v"].shape[1], 1)
    most = products.max(-1, keepdims=True)
    weights = np.exp(products - most)
    sums = weights.sum(-1, keepdims=True)
    return {"o": weights / sums @ v, "stats": most + np.log(sums)}


def differentiated(given: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The gradients, by the statistics that are given."""
    products, k = _weights(given, options)
    shared = given["k"].shape[1]
    v = np.repeat(given["v"], k.shape[1] // shared, 1)
    weights = np.exp(products - given["stats"])
    dv = np.swapaxes(weights, 2, 3) @ given["dO"]
    dweights = given["dO"] @ np.swapaxes(v, 2, 3)
    steady = (given["dO"] * given["o"]).sum(-1, keepdims=True)
    dproducts = weights * (dweights - steady) * options["attn_scale"]
    dk = np.swapaxes(dproducts, 2, 3) @ given["q"]

    def summed(x: Any) -> Sequence[Any]:
        b, h, s, d = x.shape
        return x.reshape(b, shared, h // shared, s, d).sum(2)

    return {"dq": dproducts @ k, "dk": summed(dk), "dv": summed(dv)}
