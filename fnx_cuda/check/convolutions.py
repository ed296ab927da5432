"""Questions about convolutions: values against the CPU, and rates beside PyTorch's.

Three by three windows at the sizes of a ResNet, with a stride, with groups, and the
two gradients; PyTorch has cuDNN. And layers, which cuBLASLt computes with their bias
and activation where it is there. Next on the walk: `attentions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import lax, nn
from fnx.records import record
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.check.timing import beside, per_call

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
"""Where the features are."""

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.02, "float16": 0.003}
"""The largest error, as a part of the largest value."""


FEW = 4
"""Images whose results are compared with the CPU's."""

LAYERS = ("relu", "float32"), ("relu", "bfloat16"), ("gelu", "bfloat16")
"""The activations of layers, and their dtypes."""


@record
class ConvolutionCase:
    """A convolution of square images by windows of three by three."""

    dtype: str
    batch: int
    size: int
    features: int
    outs: int
    stride: int = 1
    groups: int = 1
    last: bool = True

    def __str__(self) -> str:
        shape = f"{self.batch}×{self.size}²×{self.features}→{self.outs}"
        stride = f" stride {self.stride}" if self.stride > 1 else ""
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        return f"{shape} {self.dtype}{stride}{groups} {'NHWC' if self.last else 'NCHW'}"

    @property
    def operations(self) -> float:
        """Those of the convolution, and of each of its gradients."""
        places = self.batch * (-(-self.size // self.stride)) ** 2
        return 2 * 9 * places * self.outs * self.features / self.groups

    def arrays(self) -> tuple[Any, Any, Any]:
        """Images, a kernel and a cotangent, in float32."""
        rng = np.random.default_rng(0)
        side = -(-self.size // self.stride)
        shapes = (
            (self.batch, self.features, self.size, self.size),
            (self.outs, self.features // self.groups, 3, 3),
            (self.batch, self.outs, side, side),
        )
        x, w, ct = [rng.standard_normal(shape, dtype="float32") for shape in shapes]
        if not self.last:
            return x, w, ct
        last = 0, 2, 3, 1
        return (
            x.transpose(last).copy(),
            w.transpose(2, 3, 1, 0).copy(),
            ct.transpose(last).copy(),
        )

    def run(self, x: Any, w: Any) -> Any:
        """The convolution."""
        return lax.conv_general_dilated(
            x,
            w,
            (self.stride, self.stride),
            ((1, 1), (1, 1)),
            dimension_numbers=LAST if self.last else FIRST,
            feature_group_count=self.groups,
        )


def cases(small: bool) -> tuple[ConvolutionCase, ...]:
    """Layers of a ResNet in each dtype, in both orders of axes, with groups."""
    sizes, wide = [(64, 56, 64, 64), (64, 14, 256, 256)], (64, 28, 128, 128)
    dtypes = ["float32", "bfloat16", "float16"]
    if small:
        sizes, wide, dtypes = [(2, 9, 24, 32)], (4, 20, 16, 64), dtypes[:1]
    found = list[ConvolutionCase]()
    for dtype in dtypes:
        found += [ConvolutionCase(dtype, *size) for size in sizes]
        found += [
            ConvolutionCase(dtype, *wide, stride=2),
            ConvolutionCase(dtype, *wide, last=False),
            ConvolutionCase(dtype, *wide, groups=4),
        ]
    if not small:
        found.append(ConvolutionCase("float64", *wide))
    return tuple(found)


def convolutions(setting: Setting) -> Iterator[Row]:
    """Each case forward and back; layers with their epilogues."""
    for case in cases(setting.small):
        yield from _rows(case, setting)
    yield from _layers(setting)


def _rows(case: ConvolutionCase, setting: Setting) -> Iterator[Row]:
    for number, name in enumerate(("forward", "gradient of x", "gradient of kernel")):
        error = _error(replace(case, batch=min(case.batch, FEW)), number, setting)
        call = fnx.jit(_function(case, number))
        x, w, ct = case.arrays()
        given = [_put(array, case.dtype, setting.device) for array in (x, w, ct)]
        seconds = _seconds(call, given, setting)
        peers = beside({"torch": _torch(case, number)})
        found = case.operations / seconds / 1e12
        yield _answer(
            f"{case} {name}", case.dtype, found, error, peers, case.operations, 0.8
        )


def _function(case: ConvolutionCase, number: int) -> Callable[..., Any]:
    """The convolution, or one of its gradients, of x, the kernel and a cotangent."""
    if number == 0:
        return lambda x, w, ct: case.run(x, w)
    return lambda x, w, ct: fnx.vjp(case.run, x, w)[1](ct)[number - 1]


def _error(case: ConvolutionCase, number: int, setting: Setting) -> float:
    """The largest difference to the CPU in float64, as a part of the largest value."""
    return _difference(_function(case, number), case.arrays(), case.dtype, setting)


def _difference(
    function: Callable[..., Any], arrays: Sequence[Any], dtype: str, setting: Setting
) -> float:
    given = [_put(array, dtype, setting.device) for array in arrays]
    got = np.asarray(fnx.jit(function)(*given)).astype("float64")
    # The rounded numbers are what both compute with.
    wide = [np.asarray(array).astype("float64") for array in given]
    put = [fnx.device_put(array, setting.cpu) for array in wide]
    want = np.asarray(fnx.jit(function)(*put))
    return float(np.abs(got - want).max() / np.abs(want).max())


def _put(array: Any, dtype: str, device: Any) -> Any:
    return fnx.device_put(array, device).astype(dtype)


def _seconds(call: Callable[..., Any], given: Sequence[Any], setting: Setting) -> float:
    return per_call(lambda: call(*given), fnx.block_until_ready, setting.small)


def _answer(
    case: str,
    dtype: str,
    found: float,
    error: float,
    peers: Sequence[tuple[str, float]],
    operations: float,
    share: float,
) -> Row:
    """A row of a rate, which is good if values are right and the peers no faster."""
    rates = tuple([(name, operations / t / 1e12) for name, t in peers])
    fast = all(found >= share * rate for _, rate in rates)
    good = error <= TOLERANCE[dtype] and fast
    note = f"error {error:.1e}"
    goal = f"≥ {share} of torch"
    return Row("convolutions", case, found, "TFLOP/s", goal, good, note, rates)


def _torch(case: ConvolutionCase, number: int) -> Callable[[Any], Callable[[], Any]]:
    """The same by PyTorch: forward, or one of the gradients."""

    def make(torch: Any) -> Callable[[], Any]:
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        order = torch.channels_last if case.last else torch.contiguous_format
        x, w, _ = replace(case, last=False).arrays()

        def put(array: Any) -> Any:
            tensor = torch.as_tensor(array).cuda()
            tensor = tensor.to(getattr(torch, case.dtype))
            return tensor.contiguous(memory_format=order)

        images, kernel = put(x), put(w)
        options = (case.stride, case.stride), (1, 1), (1, 1)

        def forward() -> Any:
            return torch.conv2d(images, kernel, None, *options, case.groups)

        if number == 0:
            return forward
        ct = torch.ones_like(forward())
        mask = [number == 1, number == 2, False]
        rest = False, [0, 0], case.groups, mask
        return lambda: torch.ops.aten.convolution_backward(
            ct, images, kernel, None, *options, *rest
        )

    return make


def _layers(setting: Setting) -> Iterator[Row]:
    """Products with a bias and an activation."""
    size = 48 if setting.small else 4096
    operations = 2 * size**3
    shapes = (size, size), (size, size), (size,)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype="float32") for shape in shapes]
    x, w, b = arrays
    few = x[:64], w / size**0.5, b
    for name, dtype in LAYERS:
        layer = _layer(getattr(nn, name))
        error = _difference(layer, few, dtype, setting)
        given = [_put(array, dtype, setting.device) for array in arrays]
        seconds = _seconds(fnx.jit(layer), given, setting)
        peers = beside({"torch": _torch_layer(arrays, name, dtype)})
        found = operations / seconds / 1e12
        case = f"layer {size} {dtype} {name}"
        yield _answer(case, dtype, found, error, peers, operations, 0.97)


def _layer(activation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w, b: activation(fnp.matmul(x, w) + b)


def _torch_layer(
    arrays: Sequence[Any], name: str, dtype: str
) -> Callable[[Any], Callable[[], Any]]:
    def make(torch: Any) -> Callable[[], Any]:
        torch.backends.cuda.matmul.allow_tf32 = False
        kind = getattr(torch, dtype)
        x, w, b = [torch.as_tensor(array).cuda().to(kind) for array in arrays]
        activation = {"relu": torch.relu, "gelu": torch.nn.GELU("tanh")}[name]
        return lambda: activation(torch.addmm(b, x, w))

    return make
