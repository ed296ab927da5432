"""Questions about attention: values against the CPU, and rates beside PyTorch's.

At the sizes of a language model, forward and with its gradients, with and without the
order of time, and with heads of keys that several heads of queries share. Each case
says who computes it. Next on the walk: `routines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import nn
from fnx.records import record
from fnx_cuda.check.report import Row, Setting
from fnx_cuda.check.timing import beside, per_call
from fnx_cuda.cudnn_graph import LIBRARY

TOLERANCE = {"bfloat16": 0.02, "float16": 0.003}
"""The largest error, as a part of the largest value."""

FEW = 256
"""Positions whose results are compared with the CPU's."""


@record
class AttentionCase:
    """Queries, keys and values of one length."""

    dtype: str
    batch: int
    length: int
    heads: int
    shared: int
    width: int
    causal: bool

    def __str__(self) -> str:
        heads = f"{self.heads}" + f"/{self.shared}" * (self.shared != self.heads)
        causal = " causal" if self.causal else ""
        return f"{self.batch}×{self.length}×{heads}×{self.width} {self.dtype}{causal}"

    @property
    def operations(self) -> float:
        """Those of both products."""
        products = self.batch * self.heads * self.length**2
        return 4 * products * self.width / (2 if self.causal else 1)

    def arrays(self) -> list[Any]:
        """Queries, keys, values and a cotangent, in float32."""
        rng = np.random.default_rng(0)
        heads = self.heads, self.shared, self.shared, self.heads
        shapes = [(self.batch, self.length, count, self.width) for count in heads]
        return [rng.standard_normal(shape, dtype="float32") for shape in shapes]

    def run(self, q: Any, k: Any, v: Any) -> Any:
        """The attention."""
        return nn.dot_product_attention(q, k, v, is_causal=self.causal)


def cases(small: bool) -> tuple[AttentionCase, ...]:
    """Of a language model: in both dtypes, with all heads of keys, and with few."""
    if small:
        return (AttentionCase("float16", 1, 40, 2, 1, 16, True),)
    one = AttentionCase("bfloat16", 4, 2048, 16, 16, 128, True)
    return (
        one,
        replace(one, causal=False),
        replace(one, shared=4),
        replace(one, dtype="float16", batch=8, length=1024, width=64),
    )


def attentions(setting: Setting) -> Iterator[Row]:
    """Each case forward, and forward and back."""
    for case in cases(setting.small):
        for back in (False, True):
            few = replace(case, length=min(case.length, FEW), batch=1)
            error = _error(few, back, setting)
            call = fnx.jit(_function(case, back))
            given = [_put(x, case.dtype, setting.device) for x in case.arrays()]
            work = case.operations * (3.5 if back else 1)
            seconds = _seconds(call, given, setting)
            peers = beside({"torch": _torch(case, back)})
            rates = tuple([(name, work / t / 1e12) for name, t in peers])
            found = work / seconds / 1e12
            fast = all(found >= 0.8 * rate for _, rate in rates)
            good = error <= TOLERANCE[case.dtype] and fast
            who = "cuDNN or kernels" if LIBRARY.serves() else "kernels"
            note = f"error {error:.1e}, by {who}"
            what = f"{case} {'with gradients' if back else 'forward'}"
            goal = "≥ 0.8 of torch"
            yield Row("attentions", what, found, "TFLOP/s", goal, good, note, rates)


def _function(case: AttentionCase, back: bool) -> Callable[..., Any]:
    """The attention of q, k, v and a cotangent; if `back`, with its gradients."""
    if not back:
        return lambda q, k, v, ct: (case.run(q, k, v),)

    def both(q: Any, k: Any, v: Any, ct: Any) -> Any:
        out, pull = fnx.vjp(case.run, q, k, v)
        return out, *pull(ct)

    return both


def _error(case: AttentionCase, back: bool, setting: Setting) -> float:
    """The largest difference to the CPU in float64, as a part of the largest value."""
    function = fnx.jit(_function(case, back))
    given = [_put(x, case.dtype, setting.device) for x in case.arrays()]
    # The rounded numbers are what both compute with.
    wide = [fnx.device_put(np.asarray(x).astype("float64"), setting.cpu) for x in given]
    rows = zip(function(*given), function(*wide), strict=True)
    pairs = [(np.asarray(x).astype("float64"), np.asarray(y)) for x, y in rows]
    return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)


def _put(array: Any, dtype: str, device: Any) -> Any:
    return fnp.asarray(fnx.device_put(array, device), dtype)


def _seconds(call: Callable[..., Any], given: Any, setting: Setting) -> float:
    return per_call(lambda: call(*given), fnx.block_until_ready, setting.small)


def _torch(case: AttentionCase, back: bool) -> Callable[[Any], Callable[[], Any]]:
    """The same by PyTorch, whose heads come before positions."""

    def make(torch: Any) -> Callable[[], Any]:
        def put(array: Any) -> Any:
            tensor = torch.as_tensor(array).cuda().to(getattr(torch, case.dtype))
            return tensor.transpose(1, 2)

        *operands, ct = map(put, case.arrays())
        options = {"is_causal": case.causal, "enable_gqa": case.shared != case.heads}
        attend = torch.nn.functional.scaled_dot_product_attention
        if not back:
            return lambda: attend(*operands, **options)
        leaves = [x.detach().requires_grad_() for x in operands]
        return lambda: torch.autograd.grad(attend(*leaves, **options), leaves, ct)

    return make
