"""Lowering: a plan's steps become instructions for a GPU.

Kernels are printed as CUDA C, once each; their local buffers get places in the
program's work memory. Receives a `Plan` whose kernels are scheduled by
`fnx.kernel.grid`, gives a `Body`. Next on the walk: `modules.py`, then `run.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Mapping

from fnx.errors import InternalError
from fnx.kernel.expr import Buffer
from fnx.kernel.ir import Kernel, Sort
from fnx.runtime.plan import (
    AttentionStep,
    BranchStep,
    ConvolutionStep,
    CopyStep,
    FollowedStep,
    ForeignStep,
    HostStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Place,
    Plan,
    Step,
)
from fnx_cuda.collectives import numbered
from fnx_cuda.convolution import convolution_launches, convolution_work
from fnx_cuda.cudnn_problem import packing_kernel, places, problem
from fnx_cuda.emit import Source, kernel_source
from fnx_cuda.instructions import (
    After,
    Attend,
    Body,
    Branch,
    Convolve,
    Copy,
    Host,
    Instruction,
    Launch,
    Loop,
    Meet,
    Product,
    Served,
)
from fnx_cuda.ordering import sorted_keys
from fnx_cuda.products import product_launches, product_work
from fnx_cuda.routines import routine_launches
from fnx_cuda.served import stages
from fnx_cuda.work import Work


def lower(plan: Plan) -> Body:
    """The instructions of a plan."""
    return _Lowering().body(plan)


class _Lowering:
    """The kernels printed so far, and how much work memory they take."""

    def __init__(self) -> None:
        self.sources: dict[Hashable, Source] = {}
        self.work = 0

    def body(self, plan: Plan) -> Body:
        """The instructions of a plan, and the work memory of all bodies so far."""
        found: list[Instruction] = []
        scopes: list[str] = []
        names = plan.scopes or ("",) * len(plan.steps)
        for step, name in zip(plan.steps, names, strict=True):
            made = self.step(step)
            found += made
            scopes += [name] * len(made)
        return Body(tuple(found), self.work, tuple(scopes))

    def step(self, step: Step) -> list[Instruction]:
        """The instructions of one step."""
        match step:
            case KernelStep(kernel, places):
                return [*self.launches(kernel, places)]
            case MatmulStep():
                self.work = max(self.work, product_work(step))
                return [Product(step, product_launches(step))]
            case ConvolutionStep():
                self.work = max(self.work, convolution_work(step))
                return self.convolved(step)
            case FollowedStep():
                return [self.followed(step)]
            case AttentionStep(plan=plan):
                return [Attend(step, self.body(plan))]
            case CopyStep(out, source, nbytes):
                return [Copy(out, source, nbytes)] if nbytes else []
            case HostStep():
                return self.host(step)
            case ForeignStep():
                return [_foreign(step)]
            case BranchStep():
                bodies = tuple([self.body(plan) for plan in step.branches])
                return [Branch(step, bodies)]
            case LoopStep():
                test = None if step.test is None else self.body(step.test.plan)
                return [Loop(step, self.body(step.body), test)]
        raise InternalError(f"no instruction for {step}")

    def followed(self, step: FollowedStep) -> Product:
        """A product and kernels behind it, which the library does in one call."""
        product, launches = step.product, list[Launch]()
        self.work = max(self.work, product_work(product))
        for each in step.kernels:
            launches += self.launches(each.kernel, each.buffers)
        after = After(step.epilogue, step.bias, step.out, tuple(launches), step.aux)
        return Product(product, product_launches(product), after)

    def convolved(self, step: ConvolutionStep) -> list[Instruction]:
        """A convolution, with a copy of the filter if a library needs one."""
        launches, found = convolution_launches(step), problem(step)
        if found is None:
            return [*launches]
        if found.filter.loose is None:
            return [Convolve(step, launches)]
        work = Work()
        size = math.prod(found.filter.sizes) * step.dtype.itemsize
        packed, loose = work.place(size), places(found.kind, step)[1]
        self.work = max(self.work, work.size)
        ends = (packed, loose) if found.kind == "filter" else (loose, packed)
        packing = self.launches(packing_kernel(found), ends)
        return [Convolve(step, launches, tuple(packing), packed)]

    def launches(self, kernel: Kernel, places: tuple[Place, ...]) -> list[Launch]:
        """The launches of a kernel on buffers."""
        source = self.sources.get(kernel.key)
        if source is None:
            source = self.sources[kernel.key] = kernel_source(kernel)
        work = Work()
        every = (*places, *[_local_place(buffer, work) for buffer in kernel.locals])
        at = dict(zip((*kernel.buffers, *kernel.locals), every, strict=True))
        functions = iter(source.functions)
        found = list[Launch]()
        for each in kernel.launches:
            if isinstance(each, Sort):
                found += _sorted(each, at, work)
            else:
                function = next(functions)
                pointers = tuple([every[number] for number in function.buffers])
                grid = function.blocks, 1, 1
                found.append(
                    Launch(
                        source.text,
                        function.name,
                        grid,
                        function.block,
                        0,
                        pointers,
                        alignment=function.alignment,
                    )
                )
        self.work = max(self.work, work.size)
        return found

    def host(self, step: HostStep) -> list[Instruction]:
        """A routine that a library or code here has, or else its rule on the host."""
        if step.meets and all(isinstance(item, Place) for item in step.inputs):
            return [Meet(step)]
        if step.routine == "axis_index":
            return [numbered(step)]
        work = Work()
        launches = routine_launches(step, work)
        other = Work()  # in its place
        found = stages(step, other)
        self.work = max(self.work, work.size, other.size)
        if found is not None and launches != []:
            return [Served(step, found, None if launches is None else tuple(launches))]
        return [Host(step)] if launches is None else [*launches]


def _foreign(step: ForeignStep) -> Instruction:
    """A kernel of the user's; without CUDA C, what it does on the host."""
    cuda, launch, host = step.code.cuda, step.launch, step.host
    if cuda is None or launch is None:
        return Host(host)
    sizes = [size for type in host.input_types for size in type.shape]
    block, *axes = launch.block
    return Launch(
        cuda.source,
        cuda.name,
        launch.grid,
        block,
        launch.shared,
        tuple([x for x in (*host.inputs, *host.outputs) if isinstance(x, Place)]),
        struct.pack(f"{len(sizes)}q", *sizes),
        separate=True,
        block_axes=(axes[0], axes[1]),
    )


def _sorted(sort: Sort, at: Mapping[Buffer, Place], work: Work) -> list[Launch]:
    """The launches of a sort."""
    keys, ends = sort.keys, (at[sort.ordered], at[sort.places])
    return sorted_keys(at[keys], keys.dtype, keys.size, sort.bits, ends, work)


def _local_place(buffer: Buffer, work: Work) -> Place:
    """Where a kernel's own buffer is; one in registers is nowhere."""
    in_memory = buffer.role == "local"
    return work.place(buffer.size * buffer.dtype.itemsize if in_memory else 0)
