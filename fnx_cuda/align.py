"""Rows where kernels can read them: a loop's rows are copied if their sizes are odd.

Kernels read up to 16 bytes at once, at addresses that are multiples of so many; arrays
and the arena begin at such addresses, but row 1 of an array of rows of 12 bytes does
not. A round copies such rows to work memory and back, where a kernel needs it. Receives
a `Body`, gives one. Next on the walk: `modules.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from fnx.runtime.plan import Carry, HostStep, LoopStep, Place, Plan, Rows
from fnx_cuda.instructions import (
    After,
    Attend,
    Body,
    Branch,
    Call,
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

ALIGNMENT = 16
"""What addresses of arrays are multiples of."""

_WORK = 256  # what places in work memory are multiples of


def aligned(body: Body) -> Body:
    """The body with copies of rows where something in it needs them."""
    work = _Work(body.work)
    made = work.body(body)
    return dataclasses.replace(made, work=work.size)


class _Work:
    """Work memory, behind that which launches have for themselves."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // _WORK) * _WORK

    def place(self, nbytes: int) -> Place:
        """A place for a row, for good: outer loops keep theirs during inner ones."""
        place = Place("work", self.size)
        self.size += -(-nbytes // _WORK) * _WORK
        return place

    def body(self, body: Body) -> Body:
        """A body with copies in all the loops inside."""
        made = tuple([self.instruction(item) for item in body.instructions])
        return dataclasses.replace(body, instructions=made)

    def instruction(self, item: Instruction) -> Instruction:
        """An instruction with copies in all the loops inside."""
        match item:
            case Attend(step, body):
                return Attend(step, self.body(body))
            case Branch(step, branches):
                return Branch(step, tuple([self.body(branch) for branch in branches]))
            case Loop(step, body, test):
                asked = None if test is None else self.body(test)
                return Loop(step, self.rows(step, self.body(body)), asked)
        return item

    def rows(self, step: LoopStep, body: Body) -> Body:
        """The body of a loop with copies of its own rows."""
        moved: dict[Place, Place] = {}
        before, after = list[Copy](), list[Copy]()
        first = len(step.consts) + len(step.carry)
        for number, rows in enumerate(step.rows, first):
            place = Place("input", number)
            if rows.nbytes % needed(body, place):
                moved[place] = self.place(rows.nbytes)
                before.append(Copy(moved[place], place, rows.nbytes))
        results = step.body.outputs[len(step.carry) :]
        for output, rows in zip(results, step.results, strict=True):
            place = Place("output", output.index)
            if output.role == "buffer" and rows.nbytes % needed(body, place):
                moved[place] = self.place(rows.nbytes)
                after.append(Copy(place, moved[place], rows.nbytes))
        if not moved:
            return body
        inside = [_mapped(item, moved) for item in body.instructions]
        scopes = body.scopes or ("",) * len(inside)
        return Body(
            (*before, *inside, *after),
            body.work,
            (*[""] * len(before), *scopes, *[""] * len(after)),
        )


def needed(body: Body, place: Place) -> int:
    """What the address of a place has to be a multiple of for what a body does."""
    return max([_needed(item, place) for item in body.instructions], default=1)


def _needed(item: Instruction, place: Place) -> int:
    match item:
        case Launch(pointers=pointers, alignment=alignment):
            return alignment if place in pointers else 1
        case Product(step, _, after):
            ends = [] if after is None else [after.bias, after.out, after.aux]
            return ALIGNMENT if place in (step.out, step.x, step.y, *ends) else 1
        case Convolve(step):
            return ALIGNMENT if place in (step.out, step.x, step.kernel) else 1
        case Served(step):
            return ALIGNMENT if place in (*step.inputs, *step.outputs) else 1
        case Attend(step):
            return ALIGNMENT if place in (*step.inputs, *step.outputs) else 1
        case Branch(step, branches):
            pairs = list(zip(branches, step.branches, strict=True))
            inside = [
                *[(b, _inputs(step.inputs, place)) for b, _ in pairs],
                *[(b, _outputs(plan, step.outputs, place)) for b, plan in pairs],
            ]
            return _most(inside)
        case Loop(step, body, test):
            # Rounds find the carry in any of its places, and leave it in two of them.
            written = [
                place if place in (carry.end, carry.spare) else carry.end
                for carry in step.carry
            ]
            carried = [
                carry.start if place == carry.start else other
                for carry, other in zip(step.carry, written, strict=True)
            ]
            inputs = [*step.consts, *carried, *[rows.place for rows in step.rows]]
            outputs = [*written, *[rows.place for rows in step.results]]
            inside = [
                (body, _inputs(inputs, place)),
                (body, _outputs(step.body, outputs, place)),
            ]
            if step.test is not None and test is not None:
                asked = [*step.test.consts, *carried]
                inside.append((test, _inputs(asked, place)))
            return _most(inside)
    return 1


def _inputs(given: Sequence[Place], place: Place) -> list[Place]:
    """The inputs of a held plan that are at a place."""
    return [Place("input", n) for n, each in enumerate(given) if each == place]


def _outputs(plan: Plan, targets: Sequence[Place], place: Place) -> list[Place]:
    """The outputs of a held plan that are at a place."""
    pairs = zip(plan.outputs, targets, strict=True)
    return [Place("output", o.index) for o, target in pairs if target == place]


def _most(inside: Sequence[tuple[Body, list[Place]]]) -> int:
    found = [needed(body, place) for body, places in inside for place in places]
    return max(found, default=1)


# ---------------------------------------------------------------- other places


def _mapped(item: Instruction, moved: dict[Place, Place]) -> Instruction:
    """An instruction with other places."""

    def at(place: Place) -> Place:
        return moved.get(place, place)

    def all_at(places: Sequence[Place]) -> tuple[Place, ...]:
        return tuple([at(place) for place in places])

    def launches_at(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
        return tuple([_launch_mapped(each, at) for each in launches])

    match item:
        case Launch():
            return _launch_mapped(item, at)
        case Copy(out, source, nbytes):
            return Copy(at(out), at(source), nbytes)
        case Host(step) | Meet(step):
            return type(item)(_host_mapped(step, at))
        case Numbered(step, launch):
            return Numbered(_host_mapped(step, at), _launch_mapped(launch, at))
        case Served(step, stages, own):
            moved_stages = tuple([_stage_mapped(each, at) for each in stages])
            moved_own = None if own is None else launches_at(own)
            return Served(_host_mapped(step, at), moved_stages, moved_own)
        case Product(step, launches, after):
            x, y, out = at(step.x), at(step.y), at(step.out)
            moved_step = dataclasses.replace(step, out=out, x=x, y=y)
            if after is not None:
                after = After(
                    after.epilogue,
                    None if after.bias is None else at(after.bias),
                    at(after.out),
                    launches_at(after.launches),
                    None if after.aux is None else at(after.aux),
                )
            return Product(moved_step, launches_at(launches), after)
        case Convolve(step, launches, packing, packed):
            x, kernel, out = at(step.x), at(step.kernel), at(step.out)
            turned = dataclasses.replace(step, out=out, x=x, kernel=kernel)
            return Convolve(turned, launches_at(launches), launches_at(packing), packed)
        case Attend(step, body):
            given, ends = all_at(step.inputs), all_at(step.outputs)
            return Attend(dataclasses.replace(step, inputs=given, outputs=ends), body)
        case Branch(step, branches):
            given, ends = all_at(step.inputs), all_at(step.outputs)
            return Branch(
                dataclasses.replace(
                    step, index=at(step.index), inputs=given, outputs=ends
                ),
                branches,
            )
        case Loop(step, body, test):
            return Loop(_loop_mapped(step, at), body, test)


At = Callable[[Place], Place]


def _launch_mapped(launch: Launch, at: At) -> Launch:
    pointers = tuple([at(place) for place in launch.pointers])
    return dataclasses.replace(launch, pointers=pointers)


def _stage_mapped(stage: Launch | Call, at: At) -> Launch | Call:
    if isinstance(stage, Launch):
        return _launch_mapped(stage, at)
    return Call(stage.made, tuple([at(place) for place in stage.places]))


def _host_mapped(step: HostStep, at: At) -> HostStep:
    inputs = tuple([at(x) if isinstance(x, Place) else x for x in step.inputs])
    outputs = tuple([at(place) for place in step.outputs])
    return dataclasses.replace(step, inputs=inputs, outputs=outputs)


def _loop_mapped(step: LoopStep, at: At) -> LoopStep:
    def maybe(place: Place | None) -> Place | None:
        return None if place is None else at(place)

    test = step.test
    if test is not None:
        consts = tuple([at(place) for place in test.consts])
        test = dataclasses.replace(test, consts=consts, answer=at(test.answer))
    return dataclasses.replace(
        step,
        consts=tuple([at(place) for place in step.consts]),
        carry=tuple(
            [
                Carry(at(c.start), at(c.end), maybe(c.spare), c.nbytes)
                for c in step.carry
            ]
        ),
        rows=tuple([Rows(at(rows.place), rows.nbytes) for rows in step.rows]),
        results=tuple([Rows(at(rows.place), rows.nbytes) for rows in step.results]),
        count=maybe(step.count),
        counter=maybe(step.counter),
        test=test,
    )
