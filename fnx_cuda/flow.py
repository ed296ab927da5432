"""Branches and loops, driven from the host: it reads what they depend on, if anything.

A loop with a fixed number of rounds reads nothing, and where it is short all its rounds
are part of the graph around it. A test is read after each round, which together with
the test is one graph. The carry is exchanged between two places, so that nothing is
copied. Receives steps and `Ready` bodies, gives actions. Next on the walk: `graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fnx.runtime.plan import BranchStep, LoopStep, Rows, Test
from fnx_cuda import _cupy, transfer
from fnx_cuda.align import ALIGNMENT
from fnx_cuda.device import Device
from fnx_cuda.frame import MOST_NODES, Frame
from fnx_cuda.graph import Graphs
from fnx_cuda.memory import Buffer

if TYPE_CHECKING:
    from fnx_cuda.run import Ready

Action = Callable[[Frame, int], None]

CHUNK_NODES = 512
"""A graph of several rounds of a longer loop has about so many launches: enough that
one more graph is nothing beside them, and few enough that short counts use it."""

MOST_STAGED = 2**24
"""So many bytes of rows are staged for a graph of several rounds at most."""


def branch_action(step: BranchStep, bodies: Sequence[Ready], device: Device) -> Action:
    """Reads the index and runs the body of that number, moved inside the range."""

    def act(at: Frame, stream: int) -> None:
        number = min(max(_int32(device, at.at(step.index)), 0), len(bodies) - 1)
        inputs, outputs = at.all(step.inputs), at.all(step.outputs)
        held = at.held(step.branches[number], inputs, outputs, step.scratch)
        bodies[number].run(held, stream)

    return act


def loop_action(
    step: LoopStep, body: Ready, test: Ready | None, device: Device
) -> Action:
    """Runs rounds: a fixed number, as many as a count says, or while a test holds."""
    if step.test is not None and test is not None:
        return _asking(step, step.test, body, test, device)
    of_round = body.nodes
    if of_round is None:
        return _counting(step, body.run, device)
    if step.count is None and (step.length or 0) * of_round <= MOST_NODES:
        return _counting(step, body.start, device)
    return _Long(step, body, of_round, device).act


class Rounds:
    """Where the rounds of one run of a loop find their operands.

    Each writes the carry where the one before read it, the first where it is wanted or
    in the spare place: so that the last one of a known number leaves it where it is
    wanted. A carry without a spare place stays there all the time.
    """

    def __init__(self, step: LoopStep, at: Frame, rounds: int | None = None) -> None:
        self.step = step
        self.at = at
        self.consts = at.all(step.consts)
        self.stacks = [at.at(rows.place) for rows in step.rows]
        self.results = [at.at(rows.place) for rows in step.results]
        ends = at.all([carry.end for carry in step.carry])
        pairs = list(zip(step.carry, ends, strict=True))
        self.starts = [e if c.spare is None else at.at(c.start) for c, e in pairs]
        spares = [e if c.spare is None else at.at(c.spare) for c, e in pairs]
        self.ends = ends
        first_spare = rounds is not None and rounds % 2 == 0
        self.targets = (spares, ends) if first_spare else (ends, spares)

    def carry(self, number: int) -> list[int]:
        """Where the carry is before a round."""
        return self.targets[(number - 1) % 2] if number else self.starts

    def frame(self, number: int, row: int) -> Frame:
        """The frame of a round, which is given a row."""
        return self.frame_of(
            number,
            _rows(self.stacks, self.step.rows, row),
            _rows(self.results, self.step.results, row),
        )

    def frame_of(
        self, number: int, rows: Sequence[int], results: Sequence[int]
    ) -> Frame:
        """The frame of a round with rows at these addresses."""
        inputs = [*self.consts, *self.carry(number), *rows]
        targets = [*self.targets[number % 2], *results]
        return self.at.held(self.step.body, inputs, targets, self.step.scratch)

    def question(self, test: Test, number: int) -> Frame:
        """The frame of the test before a round."""
        inputs = [*self.at.all(test.consts), *self.carry(number)]
        answer = [self.at.at(test.answer)]
        return self.at.held(test.plan, inputs, answer, self.step.scratch)

    def finish(self, number: int, stream: int) -> None:
        """Brings the carry after so many rounds to where it is wanted."""
        last = self.carry(number)
        for carry, here, end in zip(self.step.carry, last, self.ends, strict=True):
            if here != end and carry.nbytes:
                _cupy.copy(end, here, carry.nbytes, stream)


def _rows(starts: Sequence[int], rows: Sequence[Rows], number: int) -> list[int]:
    pairs = zip(starts, rows, strict=True)
    return [start + number * row.nbytes for start, row in pairs]


def _counting(
    step: LoopStep, run: Callable[[Frame, int], None], device: Device
) -> Action:
    """So many rounds, each by `run`."""

    def act(at: Frame, stream: int) -> None:
        count = _count(step, at, device)
        rounds = Rounds(step, at, count)
        for number in range(count):
            row = count - 1 - number if step.reverse else number
            run(rounds.frame(number, row), stream)
        rounds.finish(count, stream)

    return act


def _count(step: LoopStep, at: Frame, device: Device) -> int:
    length = step.length or 0
    if step.count is None:
        return length
    return min(max(_int32(device, at.at(step.count)), 0), length)


class _Staged:
    """A fixed place for a few rows of each stack, as graphs need it.

    Rows have another address in every round; those of a graph are copied there before
    it, and from there after it.
    """

    def __init__(self, step: LoopStep, together: int, device: Device) -> None:
        self.step = step
        self.together = together
        self.device = device
        self.memory: Buffer | None = None

    def load(self, rounds: Rounds, low: int, stream: int) -> None:
        """Copies the rows that are read, from one on."""
        stacks, _ = self.places()
        for here, stack, rows in zip(
            stacks, rounds.stacks, self.step.rows, strict=True
        ):
            self.copy(here, stack + low * rows.nbytes, rows, stream)

    def store(self, rounds: Rounds, low: int, stream: int) -> None:
        """Copies the rows that were written, to one and those behind it."""
        _, results = self.places()
        ends = zip(results, rounds.results, self.step.results, strict=True)
        for here, stack, rows in ends:
            self.copy(stack + low * rows.nbytes, here, rows, stream)

    def frame(self, rounds: Rounds, number: int, row: int) -> Frame:
        """The frame of a round, which is given a row of those here."""
        stacks, results = self.places()
        return rounds.frame_of(
            number,
            _rows(stacks, self.step.rows, row),
            _rows(results, self.step.results, row),
        )

    def copy(self, out: int, source: int, rows: Rows, stream: int) -> None:
        """Copies as many rows as there are together."""
        if rows.nbytes:
            _cupy.copy(out, source, self.together * rows.nbytes, stream)

    def places(self) -> tuple[list[int], list[int]]:
        """Where the rows are, of the stacks and of the results."""
        if self.memory is None:
            size = sum(map(self.room, (*self.step.rows, *self.step.results)))
            self.memory = self.device.memory.allocate(size, "rows of a loop")
        address, starts = self.memory.pointer, []
        for rows in (*self.step.rows, *self.step.results):
            starts.append(address)
            address += self.room(rows)
        count = len(self.step.rows)
        return starts[:count], starts[count:]

    def room(self, rows: Rows) -> int:
        """The bytes for rows of a stack, so that those behind begin as arrays do."""
        return -(-self.together * rows.nbytes // ALIGNMENT) * ALIGNMENT


class _Long:
    """Many rounds, a graph of several at a time."""

    def __init__(
        self, step: LoopStep, body: Ready, of_round: int, device: Device
    ) -> None:
        self.step = step
        self.body = body
        self.device = device
        most = min(max(CHUNK_NODES // max(of_round, 1), 2), step.length or 0)
        row_bytes = sum(rows.nbytes for rows in (*step.rows, *step.results))
        if row_bytes:
            most = min(most, MOST_STAGED // row_bytes)
        # An even number, so that the next graph finds the carry where this one did.
        self.together = most - most % 2
        self.staged = _Staged(step, self.together, device)
        self.graphs = Graphs(device, "rounds of a loop")

    def act(self, at: Frame, stream: int) -> None:
        """The action of the loop."""
        step, together = self.step, self.together
        count = _count(step, at, self.device)
        rounds = Rounds(step, at, count)
        number = 0
        while together and count - number >= together:
            low = count - number - together if step.reverse else number
            self.staged.load(rounds, low, stream)
            self.several(rounds, number, stream)
            self.staged.store(rounds, low, stream)
            number += together
        for rest in range(number, count):
            row = count - 1 - rest if step.reverse else rest
            self.body.start(rounds.frame(rest, row), stream)
        rounds.finish(count, stream)

    def several(self, rounds: Rounds, begin: int, stream: int) -> None:
        """As many rounds as there are together, from one on."""
        order = range(self.together)
        ways = reversed(order) if self.step.reverse else order
        frames = [
            self.staged.frame(rounds, begin + number, row)
            for number, row in zip(order, ways, strict=True)
        ]

        def record(stream: int) -> None:
            for frame in frames:
                self.body.start(frame, stream)

        self.graphs.run((*_key(frames[0]), *_key(frames[1])), record, stream)


def _asking(
    step: LoopStep, asked: Test, body: Ready, test: Ready, device: Device
) -> Action:
    """Rounds as long as a test says so: each with the test behind it, as one graph."""
    captured = body.nodes is not None and test.nodes is not None
    graphs = Graphs(device, "a round of a loop") if captured else None
    staged = _Staged(step, 1, device)

    def one(rounds: Rounds, number: int, answer: int, stream: int) -> None:
        question = rounds.question(asked, number + 1)
        if graphs is None:
            body.run(rounds.frame(number, number), stream)
            test.run(question, stream)
            device.fetch(answer, 1, stream)
            return
        staged.load(rounds, number, stream)
        frame = staged.frame(rounds, number, 0)

        def record(stream: int) -> None:
            body.start(frame, stream)
            test.start(question, stream)
            device.fetch(answer, 1, stream)

        graphs.run((*_key(frame), *_key(question)), record, stream)
        staged.store(rounds, number, stream)

    def act(at: Frame, stream: int) -> None:
        rounds = Rounds(step, at)
        answer = at.at(asked.answer)
        test.run(rounds.question(asked, 0), stream)
        device.fetch(answer, 1, stream)
        number = 0
        while device.fetched(1) != b"\0":
            if step.length is not None and number >= step.length:
                assert step.full is not None
                raise step.full.with_traceback(None)
            one(rounds, number, answer, stream)
            number += 1
        rounds.finish(number, stream)
        if step.counter is not None:
            _write_int32(device, at.at(step.counter), number, stream)

    return act


def _key(frame: Frame) -> tuple[int, ...]:
    return (*frame.inputs, *frame.outputs, frame.arena, frame.work)


def _int32(device: Device, address: int) -> int:
    device.fetch(address, 4, device.compute)
    return int.from_bytes(device.fetched(4), "little", signed=True)


def _write_int32(device: Device, address: int, value: int, stream: int) -> None:
    transfer.send(device, address, np.array(value, np.int32), stream)
