"""Which products are one step with kernels beside them: what cuBLASLt does in one call.

Receives the drafts of a plan's steps, in order; gives them with some joined. Kernels
are joined with the product in front of them (a bias, an activation); a layer whose
gradient is in the same plan keeps a mask for it in the place of the product, or the
values before GELU; and sums of rows go with the product that makes the rows or
multiplies them. A joined step
computes the same without the library, by its own launches. Next on the walk:
`blaslt_tuning.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from fnx import dtypes
from fnx.errors import InternalError
from fnx.kernel.ir import Kernel
from fnx.records import record
from fnx.runtime.plan import (
    ArrayType,
    Draft,
    FollowedStep,
    KernelStep,
    MatmulStep,
    Place,
    Step,
    Value,
    kernel_draft,
)
from fnx_cuda.blaslt import calls
from fnx_cuda.blaslt_api import Epilogue
from fnx_cuda.blaslt_before import Layer, from_before, layer_kernel, layer_of
from fnx_cuda.blaslt_epilogue import follower
from fnx_cuda.blaslt_gradients import (
    derives_relu,
    mask_kernel,
    mask_leading,
    mask_shape,
    masked_kernel,
    sums_of_operand,
    sums_rows,
)
from fnx_cuda.products import way

_NOWHERE = Place("work", 0)


def joined(drafts: Sequence[Draft], placed: Container[Value]) -> list[Draft]:
    """The steps, with products and what goes with them in one.

    What is `placed` is needed outside of the plan.
    """
    joining = _Joining(drafts, placed)
    for number in range(len(drafts) - 1):
        joining.layer_with_gradient(number)
    for number in range(len(drafts) - 1):
        joining.layer_with_values(number)
    for number in range(len(drafts) - 1):
        joining.layer(number)
    for number in range(len(drafts)):
        joining.operand_sums(number)
    return [draft for draft in joining.drafts if draft is not None]


@record
class _Pair:
    """A product and the kernel behind it, with the number of the product's draft.

    `made` is the product's output, which the kernel reads from one buffer.
    """

    number: int
    step: MatmulStep
    made: Value
    kernel: Kernel
    values: tuple[Value, ...]

    @property
    def buffer(self) -> int:
        """The number of that buffer."""
        return self.values.index(self.made)


class _Joining:
    """The drafts, of which joined ones leave gaps, and who reads their values."""

    def __init__(self, drafts: Sequence[Draft], placed: Container[Value]) -> None:
        self.drafts: list[Draft | None] = list(drafts)
        self.placed = placed
        self.readers: dict[Value, list[int]] = {}
        for number, draft in enumerate(drafts):
            for value in dict.fromkeys(draft.reads):
                self.readers.setdefault(value, []).append(number)

    # -- layers

    def layer(self, number: int) -> None:
        """Joins a product with a kernel that alone reads it, if that is an epilogue."""
        pair = self._pair(number)
        if pair is None or self._readers(pair.made) != [number + 1]:
            return
        found = follower(pair.step, pair.kernel, pair.buffer)
        if found is not None:
            bias = None if found.bias is None else pair.values[found.bias]
            ends = _Ends(found.epilogue, pair.values[found.out], bias)
            self._join(number, [number + 1], ends)

    def layer_with_gradient(self, number: int) -> None:
        """Joins a layer of ReLU, and its gradient if that is in the plan: by a mask."""
        up = self._pair(number)
        readers = [] if up is None else self._readers(up.made)
        if up is None or len(readers) != 2 or readers[0] != number + 1:
            return
        down = self._pair(readers[1] - 1)
        if down is None or self._readers(down.made) != [readers[1]]:
            return
        activation = follower(up.step, up.kernel, up.buffer)
        if activation is None or activation.epilogue != Epilogue.RELU_BIAS:
            return
        if down.values.count(up.made) != 1 or activation.bias is None:
            return
        layer = down.values.index(up.made)
        slope = derives_relu(down.step, down.kernel, layer, down.buffer)
        bias = up.values[activation.bias]
        if slope is None or slope.bias is None or down.values[slope.bias] is not bias:
            return
        self._mask(up, up.values[activation.out], bias, down, down.values[slope.out])

    def _mask(
        self, up: _Pair, passed: Value, bias: Value, down: _Pair, out: Value
    ) -> None:
        """A layer that gives `passed`, and a gradient that gives `out`, by a mask."""
        product = down.step.product
        rows, columns = product.m, product.n
        leading, dtype = mask_leading(columns), down.step.out_dtype
        same = (up.step.product.m, up.step.product.n) == (rows, columns)
        if not same or up.step.out_dtype != dtype:
            return
        if way(down.step) not in ("tensor", "tiles"):
            return
        forward, backward = Epilogue.RELU_AUX_BIAS, Epilogue.DRELU
        if None in (
            calls(up.step, forward, leading),
            calls(down.step, backward, leading),
        ):
            return
        bits = Value(ArrayType(mask_shape(down.step), dtypes.uint8))
        make = kernel_draft(mask_kernel(dtype, rows, columns), (passed, bits))
        use = kernel_draft(masked_kernel(dtype, rows, columns), (down.made, bits, out))
        self._join(
            up.number, [up.number + 1], _Ends(forward, passed, bias, bits), [make]
        )
        sums = self._sums_of(out)
        if sums is None:
            ends, behind = _Ends(backward, out, None, bits), []
        else:
            made = self._draft(sums).writes[0]
            ends, behind = _Ends(Epilogue.DRELU_BGRAD, out, made, bits), [sums]
        self.drafts[down.number + 1] = use
        self._join(down.number, [down.number + 1, *behind], ends)

    def layer_with_values(self, number: int) -> None:
        """Joins a layer of GELU that keeps values for later: those before GELU.

        What else its kernel has stored later kernels compute of these.
        """
        pair = self._pair(number, alone=False)
        layer = None if pair is None else layer_of(pair.step, pair.kernel, pair.buffer)
        if pair is None or layer is None:
            return
        out, type = (
            pair.values[layer.out],
            ArrayType(_shape(pair.step), pair.made.dtype),
        )
        bias = None if layer.bias is None else pair.values[layer.bias]
        before = pair.made if bias is None else Value(type)
        if bias is not None and layer.before is not None:
            before = pair.values[layer.before]
        lost = {v for v in self._draft(number + 1).writes if v not in (out, before)}
        if before is not pair.made:
            lost.add(pair.made)
        behind = {n for v in lost for n in self._readers(v)} - {number + 1}
        needed = behind or self._readers(before) not in ([], [number + 1])
        turned = {each: self._turned(each, pair, layer, before) for each in behind}
        if not needed or any(v in self.placed for v in lost) or None in turned.values():
            return
        for each, draft in turned.items():
            if draft is not None:
                self.drafts[each] = draft
        own = (pair.made, out) if bias is None else (pair.made, bias, before, out)
        kernel = layer_kernel(pair.step, bias is not None)
        self.drafts[number + 1] = kernel_draft(kernel, own)
        for value in lost - {pair.made}:
            self.readers.pop(value, None)
        self.readers[pair.made] = [
            n for n in self.readers[pair.made] if n not in behind
        ]
        self.readers[before] = sorted({*self.readers.get(before, ()), *behind})
        self._join(number, [number + 1], _Ends(layer.epilogue, out, bias, before))

    def _turned(
        self, number: int, pair: _Pair, layer: Layer, before: Value
    ) -> Draft | None:
        """The draft of a kernel that reads values before GELU, and not what is lost."""
        draft = self.drafts[number] if number < len(self.drafts) else None
        if draft is None or draft.kernel is None:
            return None
        kernel, values = draft.kernel
        shared = {
            n: pair.values.index(v) for n, v in enumerate(values) if v in pair.values
        }
        found = from_before(pair.step, (pair.kernel, layer), kernel, shared)
        if found is None:
            return None
        made, kept = found
        return replace(
            kernel_draft(made, (before, *[values[n] for n in kept])), scope=draft.scope
        )

    # -- sums of rows

    def operand_sums(self, number: int) -> None:
        """Joins a product with the sum over the rows of an operand, if there is one."""
        draft = self.drafts[number]
        if draft is None or not draft.multiplies:
            return
        step = draft.make(lambda value: _NOWHERE)
        if not isinstance(step, MatmulStep) or draft.reads[0] is draft.reads[1]:
            return
        if way(step) not in ("tensor", "tiles"):
            return
        for side, value in zip("yx", draft.reads[::-1], strict=True):
            epilogue = sums_of_operand(step, side, value.type.size)
            sums = self._sums_of(value)
            if epilogue is None or sums is None or calls(step, epilogue) is None:
                continue
            made = self._draft(sums).writes[0]
            # It is made by this product: nothing in front of that may read it.
            if min(self._readers(made), default=number + 1) < number:
                continue
            self._join(number, [sums], _Ends(epilogue, draft.writes[0], made))
            return

    def _sums_of(self, value: Value) -> int | None:
        """The draft that adds up the rows of a value, and does nothing else."""
        for number in self.readers.get(value, ()):
            draft = self.drafts[number]
            if draft is None or draft.kernel is None or draft.reads != (value,):
                continue
            kernel, _ = draft.kernel
            if sums_rows(kernel, value.dtype, value.shape):
                return number
        return None

    # -- drafts

    def _draft(self, number: int) -> Draft:
        draft = self.drafts[number]
        if draft is None:
            raise InternalError(f"draft {number} is a part of another one")
        return draft

    def _readers(self, value: Value) -> list[int]:
        """The drafts that read a value; as if many, if it is needed outside."""
        count = len(self.drafts)
        outside = range(count, count + 3) if value in self.placed else ()
        return [*self.readers.get(value, ()), *outside]

    def _pair(self, number: int, alone: bool = True) -> _Pair | None:
        """A product and a kernel right behind it that reads it.

        It writes one value, if that is to be `alone`.
        """
        both = self.drafts[number : number + 2]
        if number < 0 or len(both) < 2:
            return None
        first, second = both
        if first is None or second is None or second.kernel is None:
            return None
        if not first.multiplies or (alone and len(second.writes) != 1):
            return None
        (made,), (kernel, values) = first.writes, second.kernel
        step = first.make(lambda value: _NOWHERE)
        if not isinstance(step, MatmulStep) or values.count(made) != 1:
            return None
        return _Pair(number, step, made, kernel, values)

    def _join(
        self,
        number: int,
        behind: Sequence[int],
        ends: _Ends,
        more: Sequence[Draft] = (),
    ) -> None:
        """Makes one draft of a product, drafts of kernels and more of them."""
        kernels = [*[self._draft(each) for each in behind], *more]
        self.drafts[number] = _both(self._draft(number), kernels, ends)
        for each in behind:
            self.drafts[each] = None


def _shape(step: MatmulStep) -> tuple[int, int]:
    """The rows and columns of a product."""
    return step.product.m, step.product.n


@record
class _Ends:
    """An epilogue, and the values that it is of."""

    epilogue: Epilogue
    out: Value
    bias: Value | None = None
    aux: Value | None = None


def _both(product: Draft, kernels: Sequence[Draft], ends: _Ends) -> Draft:
    """A product and kernels as one step."""

    def make(place: Callable[[Value], Place]) -> Step:
        first, others = product.make(place), [each.make(place) for each in kernels]
        behind = tuple([each for each in others if isinstance(each, KernelStep)])
        if not isinstance(first, MatmulStep) or len(behind) < len(others):
            raise InternalError(f"joined steps: {first}, {others}")
        return FollowedStep(
            first,
            behind,
            int(ends.epilogue),
            place(ends.out),
            None if ends.bias is None else place(ends.bias),
            None if ends.aux is None else place(ends.aux),
        )

    reads, writes = [*product.reads], [*product.writes]
    for each in kernels:
        reads += [value for value in each.reads if value not in writes]
        writes += each.writes
    return Draft(tuple(reads), tuple(writes), make, scope=kernels[0].scope)
