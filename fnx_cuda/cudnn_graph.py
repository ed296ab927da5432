"""cuDNN's attention, by NVIDIA's package `cudnn`: graphs of one operation.

The library has it only as a graph of some twenty operations, of which the package knows
the right ones for each version and device. It is optional. Receives a `Problem` and a
device; gives a `Graph`, which runs on addresses: workspace and stream are told, so that
calls can be in graphs of CUDA. Gradients are asked to be the same in every run. Next
on the walk: `attending.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fnx.errors import FnxError
from fnx_cuda import _cupy, libraries
from fnx_cuda.called import LibraryError

if TYPE_CHECKING:
    from fnx_cuda.attention_problem import Problem, Strided

OLDEST = 90300
"""The first version of cuDNN whose attention is used: 9.3."""

_DATA = {"f16": "HALF", "bf16": "BFLOAT16"}


class GraphError(LibraryError):
    """The library cannot compute a graph: it has no such, or it is out of order."""

    def __init__(self, text: str, is_refusal: bool) -> None:
        FnxError.__init__(self, text)
        self.status = 0
        self.is_refusal = is_refusal


class Frontend:
    """The package, which is looked for at the first use.

    One that is `forbidden` does not serve, though it may be there.
    """

    def __init__(self) -> None:
        self.forbidden = False
        self._lock = threading.Lock()
        self._made = threading.local()
        self._found: Any = None
        self._looked = False
        self._stands_in = False
        self._uses = 0

    def use(self, stand_in: Any) -> None:
        """Puts a stand-in in its place; `None` has it looked for again."""
        with self._lock:
            self._found = stand_in
            self._looked = self._stands_in = stand_in is not None
            self._uses += 1

    def is_installed(self) -> bool:
        """Whether there is such a package, which need not find the library."""
        return self._stands_in or importlib.util.find_spec("cudnn") is not None

    def serves(self) -> bool:
        """Whether it is there, with the library, for the devices that there are."""
        if self.forbidden:
            return False
        if self._stands_in:
            return True
        if getattr(_cupy.cupy(), "EMULATES", False):
            return False
        with self._lock:
            if not self._looked:
                self._found, self._looked = _found(), True
        return self._found is not None

    def module(self) -> Any:
        """The package; only where it serves."""
        return self._found

    def version(self) -> str:
        """The versions of the package and of the library."""
        return f"{self._found.__version__} {self._found.backend_version()}"

    def handle(self, device: int) -> Any:
        """This thread's handle for a device, which is the current one."""
        everything: dict[Any, Any] = self._made.__dict__.setdefault("made", {})
        key = self._uses, device
        if key not in everything:
            everything[key] = self._found.create_handle()
        return everything[key]


LIBRARY = Frontend()


def _found() -> Any:
    """The package, unless it is missing, finds no library, or one that is too old."""
    libraries.load("cudnn")  # where fnx finds it; the package then finds it, too
    with suppress(ImportError, RuntimeError, OSError):
        module = importlib.import_module("cudnn")
        if module.backend_version() >= OLDEST:
            return module
    return None


class Graph:
    """An attention or its gradients on a device, which is the current one.

    Raises `GraphError` where the library does not take it.
    """

    def __init__(self, problem: Problem, device: int) -> None:
        self._device = device
        self._cudnn = LIBRARY.module()
        self._graph, self._ends = self._tried(lambda: self._built(problem))
        self.workspace = int(self._tried(self._graph.get_workspace_size))

    def run(self, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Starts it on a stream; the addresses are those of inputs, then outputs."""
        handle = LIBRARY.handle(self._device)
        pack = dict(zip(self._ends, addresses, strict=True))

        def start() -> None:
            self._cudnn.set_stream(handle=handle, stream=stream)
            self._graph.execute(pack, workspace, handle=handle)

        self._tried(start)

    def _tried(self, function: Any) -> Any:
        """What a function of the package gives; its errors as ours."""
        try:
            return function()
        except self._cudnn.cudnnGraphNotSupportedError as error:
            raise GraphError(f"cuDNN: {error}", True) from error
        except (RuntimeError, ValueError, TypeError) as error:
            raise GraphError(f"cuDNN: {error}", False) from error

    def _built(self, problem: Problem) -> tuple[Any, list[int]]:
        """The graph, and the numbers of its inputs and outputs."""
        cudnn, number = (
            self._cudnn,
            getattr(self._cudnn.data_type, _DATA[problem.dtype]),
        )
        graph = cudnn.pygraph(
            io_data_type=number,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=LIBRARY.handle(self._device),
        )

        def kind(strided: Strided) -> Any:
            return cudnn.data_type.FLOAT if strided.sizes[3] == 1 else number

        inputs = [
            graph.tensor(
                name=f"in{n}",
                dim=list(each.sizes),
                stride=list(each.strides),
                data_type=kind(each),
            )
            for n, each in enumerate(problem.inputs)
        ]
        outputs = _operation(cudnn, graph, problem, inputs)
        for tensor, each in zip(outputs, problem.outputs, strict=True):
            tensor.set_output(True).set_data_type(kind(each))
            tensor.set_dim(list(each.sizes)).set_stride(list(each.strides))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        return graph, [tensor.get_uid() for tensor in (*inputs, *outputs)]


def _operation(
    cudnn: Any, graph: Any, problem: Problem, inputs: Sequence[Any]
) -> list[Any]:
    """The outputs of the operation that a problem is."""
    q, k, v, *saved = inputs
    band = {
        "attn_scale": problem.scale,
        "diagonal_alignment": cudnn.diagonal_alignment.TOP_LEFT,
        "diagonal_band_left_bound": problem.left,
        "diagonal_band_right_bound": problem.right,
    }
    if problem.gradients:
        out, sums, ct = saved
        return list(
            graph.sdpa_backward(
                q=q,
                k=k,
                v=v,
                o=out,
                dO=ct,
                stats=sums,
                use_deterministic_algorithm=True,
                **band,
            )
        )
    summed = len(problem.outputs) == 2
    out, sums = graph.sdpa(q=q, k=k, v=v, generate_stats=summed, **band)
    return [out, sums] if summed else [out]
