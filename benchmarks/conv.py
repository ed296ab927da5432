"""Convolutions and pools of images, and their gradients, as in VGG and MobileNet.

Receives whether to be quick (a batch of 2), gives cases of a batch of 8: the layer, and
the gradient of its weighted sum by image and kernel. fnx and JAX run the same text on
images with channels last (NHWC; one row has them first), PyTorch its own operators on
the same memory, with kernels as it wants them. Next on the walk: `matmul.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Build, Case, Inputs, Run, both, on_arguments

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


@dataclass(frozen=True)
class Layer:
    """A convolution of square images by square kernels, padded to its size."""

    side: int
    ins: int
    outs: int
    size: int = 3
    stride: int = 1
    groups: int = 1
    layout: tuple[str, str, str] = LAST

    @property
    def name(self) -> str:
        """What a reader calls it."""
        kind = "depthwise" if self.groups > 1 else f"{self.ins}→{self.outs}"
        steps = f", stride {self.stride}" if self.stride > 1 else ""
        first = ", channels first" if self.layout is FIRST else ""
        where = f"{self.side}²x{self.ins}" if self.groups > 1 else f"{self.side}²"
        return f"{self.size}x{self.size} {kind} on {where}{steps}{first}"

    @property
    def pad(self) -> int:
        """What is put around the image."""
        return (self.size - 1) // 2

    def shapes(self, batch: int) -> tuple[tuple[int, ...], ...]:
        """Of the weights of the sum, the image and the kernel."""
        sizes = {"N": batch, "H": self.side, "W": self.side, "C": self.ins}
        window = {
            "H": self.size,
            "W": self.size,
            "I": self.ins // self.groups,
            "O": self.outs,
        }
        image, kernel, out = self.layout
        end = sizes | {"C": self.outs}
        end |= dict.fromkeys("HW", -(-self.side // self.stride))
        return (
            tuple([end[axis] for axis in out]),
            tuple([sizes[axis] for axis in image]),
            tuple([window[axis] for axis in kernel]),
        )

    def flops(self, batch: int) -> int:
        """Of direct sums."""
        window = self.size**2 * self.ins // self.groups
        return 2 * batch * (self.side // self.stride) ** 2 * self.outs * window


def layer_function(layer: Layer) -> Callable[[Any], Any]:
    def make(library: Any) -> Any:
        pads = ((layer.pad, layer.pad),) * 2
        steps = (layer.stride,) * 2

        def function(x: Any, kernel: Any) -> Any:
            return library.lax.conv_general_dilated(
                x,
                kernel,
                steps,
                pads,
                dimension_numbers=layer.layout,
                feature_group_count=layer.groups,
            )

        return function

    return make


def torch_layer(layer: Layer) -> Callable[[Any], Any]:
    """The layer on images as PyTorch sees them: channels first, wherever they lie."""

    def make(torch: Any) -> Any:
        return lambda x, kernel: torch.nn.functional.conv2d(
            x, kernel, stride=layer.stride, padding=layer.pad, groups=layer.groups
        )

    return make


@dataclass(frozen=True)
class Pool:
    """A pool of images with channels last."""

    kind: str
    side: int
    channels: int
    size: int = 2
    stride: int = 2

    @property
    def name(self) -> str:
        """What a reader calls it."""
        steps = f"{self.size}x{self.size}, stride {self.stride}"
        return f"{self.kind} pool {steps}, {self.side}²x{self.channels}"

    @property
    def pad(self) -> int:
        """What is put around the image."""
        return (self.size - 1) // 2

    def shapes(self, batch: int) -> tuple[tuple[int, ...], ...]:
        """Of the weights of the sum and of the image."""
        out = (self.side + 2 * self.pad - self.size) // self.stride + 1
        image = (batch, self.side, self.side, self.channels)
        return (batch, out, out, self.channels), image


def pool_function(pool: Pool) -> Callable[[Any], Any]:
    def make(library: Any) -> Any:
        size, steps = (1, pool.size, pool.size, 1), (1, pool.stride, pool.stride, 1)
        pads = ((0, 0), (pool.pad, pool.pad), (pool.pad, pool.pad), (0, 0))
        lax = library.lax

        def largest(x: Any) -> Any:
            return lax.reduce_window(x, -np.inf, lax.max, size, steps, pads)

        def mean(x: Any) -> Any:
            total = lax.reduce_window(x, 0.0, lax.add, size, steps, pads)
            return total / pool.size**2

        return largest if pool.kind == "max" else mean

    return make


def torch_pool(pool: Pool) -> Callable[[Any], Any]:
    def make(torch: Any) -> Any:
        functional = torch.nn.functional
        function = functional.avg_pool2d
        if pool.kind == "max":
            function = functional.max_pool2d
        return lambda x: function(x, pool.size, pool.stride, pool.pad)

    return make


# ---------------------------------------------------------------- columns


def forward(make: Callable[[Any], Any]) -> Build:
    def build(library: Any, inputs: Inputs) -> Run:
        return on_arguments(library.jit(make(library)), inputs[1:])

    return build


def gradient(make: Callable[[Any], Any]) -> Build:
    def build(library: Any, inputs: Inputs) -> Run:
        function = make(library)

        def loss(weights: Any, *arguments: Any) -> Any:
            return (function(*arguments) * weights).sum()

        by = tuple(range(1, len(inputs)))
        return on_arguments(library.jit(library.grad(loss, argnums=by)), inputs)

    return build


def as_torch_has_them(torch: Any, inputs: Inputs, layout: Any) -> list[Any]:
    """Images as views with channels first; the kernel laid out as its images are."""
    if layout is FIRST:
        return list(inputs)
    weights, image, *kernel = inputs
    views = [weights.permute(0, 3, 1, 2), image.permute(0, 3, 1, 2)]
    for each in kernel:
        view = each.permute(3, 2, 0, 1)
        views.append(view.contiguous(memory_format=torch.channels_last))
    return views


def torch_forward(make: Callable[[Any], Any], layout: Any) -> Build:
    def build(torch: Any, inputs: Inputs) -> Run:
        function = make(torch)
        _, *arguments = as_torch_has_them(torch, inputs, layout)
        back = (0, 1, 2, 3) if layout is FIRST else (0, 2, 3, 1)
        return lambda: function(*arguments).permute(back)

    return build


def torch_gradient(make: Callable[[Any], Any], layout: Any) -> Build:
    def build(torch: Any, inputs: Inputs) -> Run:
        function = make(torch)
        weights, *arguments = as_torch_has_them(torch, inputs, layout)
        arguments = [x.detach().requires_grad_() for x in arguments]
        orders = [(0, 2, 3, 1), (2, 3, 1, 0)]
        if layout is FIRST:
            orders = [(0, 1, 2, 3)] * 2

        def run() -> Any:
            loss = (function(*arguments) * weights).sum()
            found = torch.autograd.grad(loss, arguments)
            pairs = zip(found, orders, strict=False)
            return tuple([x.permute(order) for x, order in pairs])

        return run

    return build


# ---------------------------------------------------------------- cases

LAYERS = (
    Layer(112, 64, 64),
    Layer(56, 128, 128),
    Layer(28, 256, 256),
    Layer(14, 512, 512),
    Layer(32, 64, 64),
    Layer(16, 128, 128),
    Layer(8, 256, 256),
    Layer(32, 64, 64, layout=FIRST),
    Layer(56, 64, 128, stride=2),
    Layer(56, 3, 64),
    Layer(56, 256, 64, size=1),
    Layer(56, 128, 128, groups=128),
)
POOLS = (
    Pool("max", 112, 64),
    Pool("max", 56, 64, size=3),
    Pool("average", 112, 64),
)


def inputs_of(shapes: tuple[tuple[int, ...], ...]) -> Any:
    """Weights, image, and a kernel whose sums have about unit variance."""

    def draw(rng: np.random.Generator) -> Inputs:
        drawn = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
        for kernel in drawn[2:]:
            kernel /= np.sqrt(kernel[..., 0].size, dtype=np.float32)
        return tuple(drawn)

    return draw


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    batch = 2 if quick else 8
    rows = []
    for layer in LAYERS:
        make, torch_make = layer_function(layer), torch_layer(layer)
        inputs, flops = inputs_of(layer.shapes(batch)), layer.flops(batch)
        theirs = {"torch": torch_forward(torch_make, layer.layout)}
        back = {"torch": torch_gradient(torch_make, layer.layout)}
        rows += [
            Case(
                layer.name,
                inputs,
                both(forward(make)) | theirs,
                tolerance=1e-3,
                flops=flops,
            ),
            Case(
                f"gradient of {layer.name}",
                inputs,
                both(gradient(make)) | back,
                tolerance=1e-3,
                flops=2 * flops,
            ),
        ]
    for pool in POOLS:
        make, torch_make = pool_function(pool), torch_pool(pool)
        inputs = inputs_of(pool.shapes(batch))
        moved = 4 * sum(int(np.prod(shape)) for shape in pool.shapes(batch))
        theirs = {"torch": torch_forward(torch_make, LAST)}
        back = {"torch": torch_gradient(torch_make, LAST)}
        rows += [
            Case(pool.name, inputs, both(forward(make)) | theirs, moved=moved),
            Case(
                f"gradient of {pool.name}",
                inputs,
                both(gradient(make)) | back,
                moved=2 * moved,
            ),
        ]
    return rows
