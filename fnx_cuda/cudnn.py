"""cuDNN's convolutions through ctypes: descriptors, algorithms, and calls.

Receives a `Problem` and a device; gives a `Convolution`, which runs it on addresses.
Used are algorithms that add up products one by one and give the same in every run: no
transforms, which spread a NaN and round in another way, and no atomics. Workspace and
stream are told, so that calls can be in graphs. Next on the walk: `convolving.py`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import c_float, c_int, c_size_t
from enum import IntEnum
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.records import record
from fnx_cuda.called import Library, address
from fnx_cuda.cudnn_problem import Filter, Problem, Tensor

LIBRARY = Library("cudnn")


class Data(IntEnum):
    """cudnnDataType_t."""

    FLOAT = 0
    DOUBLE = 1
    HALF = 2
    BFLOAT16 = 9


class Math(IntEnum):
    """cudnnMathType_t: with the first two, operands of float32 may be rounded."""

    DEFAULT_MATH = 0
    TENSOR_OP_MATH = 1
    FMA_MATH = 3


CONVOLUTION, CROSS_CORRELATION = 0, 1
"""cudnnConvolutionMode_t: with a filter that is reversed, or not."""

FEATURES_FIRST, FEATURES_LAST = 0, 1
"""cudnnTensorFormat_t: CUDNN_TENSOR_NCHW and CUDNN_TENSOR_NHWC."""

DETERMINISTIC = 1
"""cudnnDeterminism_t."""

NOT_SUPPORTED = range(3000, 4000)
"""cudnnStatus_t: what the library does not have."""

_DATA = {
    dtypes.float32: Data.FLOAT,
    dtypes.float64: Data.DOUBLE,
    dtypes.float16: Data.HALF,
    dtypes.bfloat16: Data.BFLOAT16,
}

_FUNCTIONS = {
    "forward": "Forward",
    "data": "BackwardData",
    "filter": "BackwardFilter",
}

_ALGORITHMS = {"forward": (0, 1, 2), "data": (1,), "filter": (1,)}
"""IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM and GEMM; ALGO_1 of the gradients."""

_ASKED = 10
"""Algorithms that are asked for: more than there are."""


class Found(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t, and those of the gradients, which are the same."""

    _fields_ = (
        ("algorithm", c_int),
        ("status", c_int),
        ("time", c_float),
        ("memory", c_size_t),
        ("determinism", c_int),
        ("math", c_int),
        ("reserved", c_int * 3),
    )


@record
class Algorithm:
    """A way to compute: its number, its arithmetic, and its bytes of workspace."""

    number: int
    math: int
    workspace: int


class Described:
    """A descriptor of the library; it goes with the last reference."""

    def __init__(self, kind: str) -> None:
        self._destroy = LIBRARY.function(f"cudnnDestroy{kind}Descriptor")
        self.pointer = ctypes.c_void_p()
        LIBRARY.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.pointer))

    def __del__(self) -> None:
        if self.pointer.value:
            self._destroy(self.pointer)


class Convolution:
    """A convolution or one of its gradients on a device.

    Raises `LibraryError` where the library does not take its numbers.
    """

    def __init__(self, problem: Problem, device: int) -> None:
        self.problem = problem
        self.device = device
        self._x, self._y = _tensor(problem, problem.x), _tensor(problem, problem.y)
        self._filter = _filter(problem, problem.filter)
        self._convolution = _convolution(problem)
        wide = problem.dtype == dtypes.float64
        scalar = np.float64 if wide else np.float32
        self._scalars = np.ones(1, scalar), np.zeros(1, scalar)
        # The arithmetic is a part of the descriptor.
        self._lock = threading.Lock()

    def algorithms(self, most: int) -> list[Algorithm]:
        """What serves, of no more than so many bytes of workspace, the best first."""
        problem, found, number = self.problem, (Found * _ASKED)(), c_int()
        x, kernel, y = [each.pointer for each in self._arrays()]
        first = (kernel, y) if problem.kind == "data" else (x, kernel)
        if problem.kind == "filter":
            first = x, y
        last = {"forward": y, "data": x, "filter": kernel}[problem.kind]
        name = f"cudnnGetConvolution{_FUNCTIONS[problem.kind]}Algorithm_v7"
        LIBRARY.call(
            name,
            _handle(self.device),
            *first,
            self._convolution.pointer,
            last,
            _ASKED,
            ctypes.byref(number),
            found,
        )
        return [
            Algorithm(each.algorithm, each.math, each.memory)
            for each in found[: number.value]
            if each.status == 0
            and each.determinism == DETERMINISTIC
            and each.algorithm in _ALGORITHMS[problem.kind]
            and each.math in arithmetics(problem)
            and each.memory <= most
        ]

    def run(
        self,
        algorithm: Algorithm,
        places: tuple[int, int, int],
        workspace: int,
        stream: int,
    ) -> None:
        """Starts it on the addresses of x, the filter and y, in a stream's order."""
        problem, handle = self.problem, _handle(self.device)
        one, zero = [address(scalar.ctypes.data) for scalar in self._scalars]
        offsets = problem.x.offset, problem.filter.offset, problem.y.offset
        size = problem.dtype.itemsize
        x, kernel, y = [
            (each.pointer, address(place + offset * size))
            for each, place, offset in zip(self._arrays(), places, offsets, strict=True)
        ]
        given, out = {
            "forward": ((*x, *kernel), y),
            "data": ((*kernel, *y), x),
            "filter": ((*x, *y), kernel),
        }[problem.kind]
        convolution = self._convolution.pointer
        work = address(workspace), c_size_t(algorithm.workspace)
        with self._lock:
            LIBRARY.call("cudnnSetStream", handle, address(stream))
            LIBRARY.call("cudnnSetConvolutionMathType", convolution, algorithm.math)
            LIBRARY.call(
                f"cudnnConvolution{_FUNCTIONS[problem.kind]}",
                handle,
                one,
                *given,
                convolution,
                algorithm.number,
                *work,
                zero,
                *out,
            )

    def _arrays(self) -> tuple[Described, Described, Described]:
        return self._x, self._filter, self._y


def arithmetics(problem: Problem) -> tuple[Math, ...]:
    """What may be used: float32 is rounded to fewer bits only where that is allowed."""
    if problem.dtype == dtypes.float32 and not problem.tf32:
        return (Math.FMA_MATH,)
    return tuple(Math)


def version() -> int:
    """The version of the library: 91000 for 9.10."""
    return int(LIBRARY.function("cudnnGetVersion")())


def _tensor(problem: Problem, given: Tensor) -> Described:
    made, sizes = Described("Tensor"), given.sizes
    LIBRARY.call(
        "cudnnSetTensorNdDescriptor",
        made.pointer,
        _DATA[problem.dtype],
        len(sizes),
        _ints(sizes),
        _ints(given.strides),
    )
    return made


def _filter(problem: Problem, given: Filter) -> Described:
    made, sizes = Described("Filter"), given.sizes
    LIBRARY.call(
        "cudnnSetFilterNdDescriptor",
        made.pointer,
        _DATA[problem.dtype],
        FEATURES_LAST if given.features_last else FEATURES_FIRST,
        len(sizes),
        _ints(sizes),
    )
    return made


def _convolution(problem: Problem) -> Described:
    made = Described("Convolution")
    wide = problem.dtype == dtypes.float64
    LIBRARY.call(
        "cudnnSetConvolutionNdDescriptor",
        made.pointer,
        len(problem.pads),
        _ints(problem.pads),
        _ints(problem.strides),
        _ints(problem.dilations),
        CONVOLUTION if problem.filter.reversed else CROSS_CORRELATION,
        Data.DOUBLE if wide else Data.FLOAT,
    )
    LIBRARY.call("cudnnSetConvolutionGroupCount", made.pointer, problem.groups)
    math = Math.TENSOR_OP_MATH if problem.dtype.itemsize == 2 else Math.DEFAULT_MATH
    if math not in arithmetics(problem):
        math = Math.FMA_MATH
    LIBRARY.call("cudnnSetConvolutionMathType", made.pointer, math)
    return made


def _ints(numbers: Sequence[int]) -> Any:
    return (c_int * len(numbers))(*numbers)


def _handle(device: int) -> Any:
    """This thread's handle for a device, which is the current one."""
    return LIBRARY.made("cudnnCreate", device)
