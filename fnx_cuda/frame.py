"""Where the places of a plan are while it runs, and what instructions say about them.

Receives addresses, gives those of places; and of an instruction which places of the
plan around it uses, how many nodes of a graph it is, and what people call it.
Next on the walk: `run.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fnx.runtime.plan import HostStep, LoopStep, Place, Plan
from fnx_cuda.instructions import (
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
    Numbered,
    Product,
    Served,
)
from fnx_cuda.served import served_nodes

MOST_NODES = 4096
"""A loop with so many launches, over all its rounds, is part of a graph at most."""


class Frame:
    """The addresses of a plan's inputs, its output buffers and its arena.

    `work` is that of the work memory, which all the plans of a program share.
    """

    __slots__ = ("arena", "inputs", "outputs", "work")

    def __init__(
        self, inputs: Sequence[int], outputs: Sequence[int], arena: int, work: int
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.arena = arena
        self.work = work

    def at(self, place: Place) -> int:
        """The address of a place."""
        role = place.role
        if role == "arena":
            return self.arena + place.index
        if role == "input":
            return self.inputs[place.index]
        if role == "output":
            return self.outputs[place.index]
        return self.work + place.index

    def all(self, places: Sequence[Place]) -> list[int]:
        """The addresses of places."""
        return [self.at(place) for place in places]

    def held(
        self, plan: Plan, inputs: Sequence[int], targets: Sequence[int], scratch: Place
    ) -> Frame:
        """The frame of a plan that a branch or loop holds.

        Its outputs go to `targets`; one that is an input is in its place already.
        """
        outputs = [0] * len(plan.buffers)
        for output, target in zip(plan.outputs, targets, strict=True):
            if output.role == "buffer":
                outputs[output.index] = target
        return Frame(inputs, outputs, self.at(scratch), self.work)


def places(instruction: Instruction) -> Iterator[Place]:
    """The places of the plan that an instruction reads or writes."""
    match instruction:
        case Launch(pointers=pointers):
            yield from pointers
        case Copy(out, source):
            yield from (out, source)
        case Host(step) | Meet(step) | Numbered(step):
            yield from [item for item in step.inputs if isinstance(item, Place)]
            yield from step.outputs
        case Product(step):
            yield from (step.out, step.x, step.y)
            for launch in all_launches(instruction):
                yield from launch.pointers
        case Convolve(step, launches, packing):
            yield from (step.out, step.x, step.kernel)
            for launch in (*launches, *packing):
                yield from launch.pointers
        case Served(step, stages, own):
            yield from [item for item in step.inputs if isinstance(item, Place)]
            yield from step.outputs
            for stage in (*stages, *(own or ())):
                yield from stage.pointers if isinstance(stage, Launch) else stage.places
        case Attend(step):
            yield from (*step.inputs, *step.outputs, step.scratch)
        case Branch(step):
            yield from (step.index, *step.inputs, *step.outputs, step.scratch)
        case Loop(step):
            yield from loop_places(step)


def all_launches(product: Product) -> tuple[Launch, ...]:
    """The launches of a product and of what follows it."""
    after = product.after
    return product.launches if after is None else product.launches + after.launches


def loop_places(step: LoopStep) -> Iterator[Place]:
    """The places of the plan around it that a loop uses."""
    yield from (*step.consts, step.scratch)
    for carry in step.carry:
        yield from (carry.start, carry.end)
        if carry.spare is not None:
            yield carry.spare
    yield from [rows.place for rows in (*step.rows, *step.results)]
    yield from [p for p in (step.count, step.counter) if p is not None]
    if step.test is not None:
        yield from (*step.test.consts, step.test.answer)


def ends_of_collectives(instructions: Sequence[Instruction]) -> dict[int, int]:
    """For each collective, by its number, the number of the first instruction that
    touches what it writes, and so has to wait for it; else their count.
    """
    return {
        number: _end_of(number, instruction.step, instructions)
        for number, instruction in enumerate(instructions)
        if isinstance(instruction, Meet)
    }


def _end_of(number: int, step: HostStep, instructions: Sequence[Instruction]) -> int:
    for later in range(number + 1, len(instructions)):
        if any(_is_made(place, step) for place in places(instructions[later])):
            return later
    return len(instructions)


def _is_made(place: Place, step: HostStep) -> bool:
    """Whether a place begins in what a step writes."""
    for out, type in zip(step.outputs, step.output_types, strict=True):
        size = type.size * type.dtype.itemsize if out.role == "arena" else 1
        if place.role == out.role and 0 <= place.index - out.index < max(size, 1):
            return True
    return False


def moving_places(instructions: Sequence[Instruction]) -> tuple[Place, ...]:
    """The inputs and outputs that instructions use, whose addresses change."""
    used = [place for item in instructions for place in places(item)]
    moving = [place for place in used if place.role in ("input", "output")]
    return tuple(dict.fromkeys(moving))


def nodes(instruction: Instruction, captured: Callable[[HostStep], bool]) -> int | None:
    """How many nodes of a graph an instruction is; `None` if it cannot be in one.

    `captured` says which collectives can.
    """
    match instruction:
        case Host() | Branch():
            return None
        case Meet(step):
            return 1 if captured(step) else None
        case Product():
            return max(len(all_launches(instruction)), 1)
        case Convolve(launches=launches, packing=packing):
            return max(len(launches), 1 + len(packing))
        case Attend(body=body):
            of_body = body_nodes(body, captured)
            return None if of_body is None else max(of_body, 1)
        case Served():
            return served_nodes(instruction)
        case Loop(step, body):
            if step.test is not None or step.count is not None:
                return None
            of_round = body_nodes(body, captured)
            if of_round is None or step.length is None:
                return None
            count = step.length * of_round + len(step.carry)
            return count if count <= MOST_NODES else None
    return 1


def body_nodes(body: Body, captured: Callable[[HostStep], bool]) -> int | None:
    """How many nodes all of a body is; `None` if not all of it can be in a graph."""
    counts = [nodes(item, captured) for item in body.instructions]
    found = [count for count in counts if count is not None]
    return sum(found) if len(found) == len(counts) else None


def texts(body: Body) -> Iterator[str]:
    """The translation units that a body launches kernels of."""
    for instruction in body.instructions:
        match instruction:
            case Launch(text) | Numbered(launch=Launch(text)):
                yield text
            case Product():
                yield from [launch.text for launch in all_launches(instruction)]
            case Convolve(launches=launches, packing=packing):
                yield from [launch.text for launch in (*launches, *packing)]
            case Served(_, stages, own):
                every = *stages, *(own or ())
                yield from [each.text for each in every if isinstance(each, Launch)]
            case Attend(body=inner):
                yield from texts(inner)
            case Branch(branches=branches):
                for branch in branches:
                    yield from texts(branch)
            case Loop(body=inner, test=test):
                yield from texts(inner)
                if test is not None:
                    yield from texts(test)


def name(instruction: Instruction) -> str:
    """What people call an instruction."""
    match instruction:
        case Launch(function=function):
            return f"kernel {function!r}"
        case Copy(nbytes=nbytes):
            return f"a copy of {nbytes} bytes"
        case Host(step):
            return f"{step.primitive.name!r} on the host"
        case Meet(step):
            return f"the collective {step.primitive.name!r}"
        case Numbered():
            return "the number of a replica"
        case Product(step):
            p = step.product
            return f"the product {p.stack}×{p.m}×{p.n}×{p.k} of {step.dtype}"
        case Convolve(step):
            c = step.convolved
            size = f"{c.groups}×{c.batch * c.places}×{c.outs}×{c.summed}"
            return f"the convolution {size} of {step.dtype}"
        case Attend(step):
            size = "×".join(map(str, step.input_types[0].shape))
            return f"the attention {size} of {step.input_types[0].dtype}"
        case Served(step):
            return f"{step.primitive.name!r}"
        case Branch(branches=branches):
            return f"one of {len(branches)} branches"
        case Loop():
            return "a loop"
