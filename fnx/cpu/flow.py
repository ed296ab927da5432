"""Branches and loops: basic blocks around the steps of the plans that they hold.

Receives a `BranchStep` or a `LoopStep`, and the driver that prints the plan which has
it; appends blocks to the same function. A loop tells the plan of a round where its
operands are: what differs from round to round is in registers (where the carry is read
and where the next one goes, where the rows are), so that a round of a small loop is
hardly more than its kernels. Next on the walk: `backend.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fnx.cpu.effort import one_round
from fnx.cpu.grain import kernel_rounds
from fnx.cpu.python import has_clock
from fnx.runtime.plan import (
    BranchStep,
    Carry,
    CopyStep,
    KernelStep,
    LoopStep,
    Output,
    Place,
    Plan,
    Rows,
    all_steps,
    held_plans,
)
from fnx.sizes import surely_at_most, usual

if TYPE_CHECKING:
    from fnx.cpu.driver import Driver

TIGHT = 256
"""So many rounds of its kernels' own loops has a round of a tight loop at most."""

SMALL = 64
"""A carry of at most so many bytes is copied back after a round: its two places need
no registers then, which a loop with many carries has not."""

UNSEEN = 2**14
"""So many rounds of inner loops pass between two looks at the clock: that takes longer
than a round, and should take less than a hundredth of the time between them."""

UNSEEN_UNKNOWN = 16
"""The same for rounds of which nobody knows how long they take. If one takes long,
there is a loop in it that looks itself."""

BASE = Place("base", 0)
"""The start of a plan's arena."""


def print_flow(
    driver: Driver,
    step: BranchStep | LoopStep,
    bounds: tuple[str, str] | None = None,
) -> None:
    """Prints one step; of a loop whose rounds are apart, those within `bounds`."""
    if isinstance(step, BranchStep):
        _branch(driver, step)
    else:
        _Loop(driver, step, bounds).run()


def loop_places(step: LoopStep) -> list[Place]:
    """All places that a loop uses."""
    places = [*step.consts, step.scratch]
    for slot in step.carry:
        places += [slot.start, slot.end]
    places += [rows.place for rows in (*step.rows, *step.results)]
    places += [] if step.count is None else [step.count]
    places += [] if step.counter is None else [step.counter]
    places += [] if step.test is None else step.test.consts
    return list(dict.fromkeys(places))


def looks(step: LoopStep) -> bool:
    """Whether a loop looks for signals, or one in it."""
    held = [inner for plan in held_plans(step) for inner in all_steps(plan)]
    loops = [step, *[inner for inner in held if isinstance(inner, LoopStep)]]
    return any(_period(loop) for loop in loops)


def _period(step: LoopStep) -> int:
    """After how many rounds a loop looks for signals; 0 if it never does."""
    if not has_clock():
        return 0
    effort = one_round(step)
    period = UNSEEN_UNKNOWN if math.isinf(effort) else max(int(UNSEEN / effort), 1)
    is_short = step.length is not None and surely_at_most(step.length, period)
    return 0 if is_short else period


def is_tight(step: LoopStep) -> bool:
    """Whether a round is so few instructions that calls and memory are its cost."""
    small = all(
        s.spare is not None and surely_at_most(s.nbytes, SMALL) for s in step.carry
    )
    return small and sum(map(_weight, held_plans(step))) <= TIGHT


def _weight(plan: Plan) -> float:
    """How much a round of a loop does: rounds of the loops of its kernels."""
    if not surely_at_most(plan.arena, 16 * SMALL):
        return math.inf
    total = 0.0
    for step in plan.steps:
        match step:
            case KernelStep(kernel):
                total += kernel_rounds(kernel)
            case CopyStep(nbytes=nbytes):
                total += usual(nbytes) / SMALL
            case BranchStep(branches=branches):
                total += sum(map(_weight, branches))
            case LoopStep():
                total += sum(map(_weight, held_plans(step)))
            case _:
                return math.inf
    return total


def _branch(driver: Driver, step: BranchStep) -> None:
    function, count = driver.function, len(step.branches)
    inputs = [driver.pointer(place) for place in step.inputs]
    outputs = [driver.pointer(place) for place in step.outputs]
    scratch, source = driver.pointer(step.scratch), driver.pointer(step.index)
    index = f"%index{function.number()}"
    done, labels = (
        function.label("done"),
        [function.label("branch") for _ in range(count)],
    )
    for name in ("smax", "smin"):
        declared = f"declare i32 @llvm.{name}.i32(i32, i32)"
        function.module.declare(f"llvm.{name}.i32", declared)
    cases = " ".join(f"i32 {n}, label %{label}" for n, label in enumerate(labels))
    function.lines += [
        f"{index} = load i32, ptr {source}",
        f"{index}.low = call i32 @llvm.smax.i32(i32 {index}, i32 0)",
        f"{index}.in = call i32 @llvm.smin.i32(i32 {index}.low, i32 {count - 1})",
        f"switch i32 {index}.in, label %{labels[0]} [{cases}]",
    ]
    for plan, label in zip(step.branches, labels, strict=True):
        function.lines.append(f"{label}:")
        driver.held(plan, _pointers(plan, inputs, plan.outputs, outputs, scratch))
        function.lines.append(f"br label %{done}")
    function.lines.append(f"{done}:")


def _pointers(
    plan: Plan,
    inputs: Sequence[str],
    outputs: Sequence[Output],
    targets: Sequence[str],
    scratch: str,
) -> dict[Place, str]:
    """Where a held plan finds its operands; an output in an input's place is there."""
    pointers = {Place("input", n): pointer for n, pointer in enumerate(inputs)}
    for output, pointer in zip(outputs, targets, strict=True):
        if output.role == "buffer":
            pointers[Place("output", output.index)] = pointer
    pointers[BASE] = scratch
    return pointers


class _Loop:
    """Prints one loop.

    Registers of a loop are named by its number: `%loop3.i` is the round. In `bounds`
    rounds are made from the first to the last one, since their order is all the same.
    """

    def __init__(
        self, driver: Driver, step: LoopStep, bounds: tuple[str, str] | None
    ) -> None:
        self.driver = driver
        self.bounds = bounds
        self.function = driver.function
        self.step = step
        self.name = self.function.label("loop")
        # Loaded here, so that all blocks of the loop can use them.
        self.consts = [driver.pointer(place) for place in step.consts]
        self.starts = [driver.pointer(slot.start) for slot in step.carry]
        self.targets = [driver.pointer(slot.end) for slot in step.carry]
        self.local = self.function.is_tight and is_tight(step)
        self.ends = [self.place(slot.end, slot.nbytes) for slot in step.carry]
        self.spares = [
            "" if slot.spare is None else self.place(slot.spare, slot.nbytes)
            for slot in step.carry
        ]
        self.stacks = [driver.pointer(rows.place) for rows in step.rows]
        self.results = [driver.pointer(rows.place) for rows in step.results]
        # Of a loop that is local, all sizes are known.
        arenas = [plan.arena for plan in held_plans(step)] if self.local else [0]
        self.scratch = self.place(step.scratch, max(arenas))
        # Threads of the pool cannot look.
        self.period = 0 if self.function.in_part else _period(step)

    def run(self) -> None:
        """The blocks of the loop: enter, head, round, next, leave.

        A long loop makes its rounds in stretches, between which it looks for signals.
        """
        name, step = self.name, self.step
        limit = self.limit()
        tests = [] if step.test is None else list(step.test.consts)
        asked = [self.driver.pointer(place) for place in tests]
        answer = "" if step.test is None else self.place(step.test.answer, 1)
        counter = "" if step.counter is None else self.driver.pointer(step.counter)
        self.begin()
        self.write(f"br label %{name}.enter", f"{name}.enter:")
        if self.period:
            self.stretch("" if step.test else limit)
        self.write(f"br label %{name}.head", f"{name}.head:")
        self.phis()
        if step.test is None:
            self.count(limit)
        else:
            inputs = [*asked, *[self.here(n) for n in range(len(step.carry))]]
            self.ask(step.test.plan, inputs, answer, limit)
        self.write(f"{name}.round:")
        self.round(limit)
        self.write(f"br label %{name}.next", f"{name}.next:")
        self.advance()
        self.write(f"br label %{name}.head", f"{name}.leave:")
        self.finish(counter)

    def place(self, place: Place, nbytes: int) -> str:
        """The address of memory that only the loop uses."""
        if self.local:  # on the stack, and then in registers
            return self.function.memory(nbytes)
        return self.driver.pointer(place)

    def register(self, what: object) -> str:
        """The name of a register of this loop."""
        return f"%{self.name}.{what}"

    def write(self, *lines: str) -> None:
        """Appends instructions."""
        self.function.lines += lines

    def declare(self, name: str) -> None:
        """Declares an operation of LLVM's on two integers."""
        declared = f"declare i64 @llvm.{name}.i64(i64, i64)"
        self.function.module.declare(f"llvm.{name}.i64", declared)

    # -- where the carry is

    def moves(self, slot: Carry) -> bool:
        """Whether the two places of a carry are exchanged after every round."""
        return slot.spare is not None and not surely_at_most(slot.nbytes, SMALL)

    def here(self, number: int) -> str:
        """Where a round finds a carry."""
        moves = self.moves(self.step.carry[number])
        return self.register(f"here{number}") if moves else self.ends[number]

    def there(self, number: int) -> str:
        """Where a round puts the next one."""
        moves = self.moves(self.step.carry[number])
        return self.register(f"there{number}") if moves else self.spares[number]

    def begin(self) -> None:
        """Brings small carries to their places."""
        for number, slot in enumerate(self.step.carry):
            if slot.spare is not None and not self.moves(slot):
                self.function.copy(self.ends[number], self.starts[number], slot.nbytes)

    def phis(self) -> None:
        """The round, and for each carry where it is and where the next one goes."""
        i = self.register("i")
        before = f"%{self.name}.{'stretch' if self.period else 'enter'}"
        next_ = f"%{self.name}.next"
        first = "0" if self.bounds is None else self.bounds[0]
        begin = f"{i}.from" if self.period else first
        self.write(f"{i} = phi i64 [ {begin}, {before} ], [ {i}.next, {next_} ]")
        for number, slot in enumerate(self.step.carry):
            if self.moves(slot):
                here, there = self.here(number), self.there(number)
                first, second = self.starts[number], self.ends[number]
                if self.period:
                    first, second = f"{here}.from", f"{there}.from"
                self.write(
                    f"{here} = phi ptr [ {first}, {before} ], [ {there}, {next_} ]",
                    f"{there} = phi ptr [ {second}, {before} ], "
                    f"[ {there}.next, {next_} ]",
                )

    # -- looking for signals

    def stretch(self, limit: str) -> None:
        """Begins with so many rounds, from where the stretch before has ended."""
        name, i = self.name, self.register("i")
        enter, looked = f"%{name}.enter", f"%{name}.looked"
        self.write(
            f"br label %{name}.stretch",
            f"{name}.stretch:",
            f"{i}.from = phi i64 [ 0, {enter} ], [ {i}, {looked} ]",
        )
        for number, slot in enumerate(self.step.carry):
            if self.moves(slot):
                ends = (self.here(number), self.starts), (self.there(number), self.ends)
                self.write(
                    *[
                        f"{at}.from = phi ptr [ {first[number]}, {enter} ], "
                        f"[ {at}, {looked} ]"
                        for at, first in ends
                    ]
                )
        if not limit:
            self.write(f"{i}.end = add i64 {i}.from, {self.period}")
            return
        self.declare("smin")
        self.write(
            f"{i}.far = add i64 {i}.from, {self.period}",
            f"{i}.end = call i64 @llvm.smin.i64(i64 {i}.far, i64 {limit})",
        )

    def look(self) -> None:
        """Looks for signals, then begins the next stretch."""
        self.write(f"{self.name}.look:")
        self.function.look_for_signals()
        self.write(
            f"br label %{self.name}.looked",
            f"{self.name}.looked:",
            f"br label %{self.name}.stretch",
        )

    def advance(self) -> None:
        """The next round writes where this one read, but never where the loop began."""
        i = self.register("i")
        self.write(f"{i}.next = add i64 {i}, 1", f"{i}.first = icmp eq i64 {i}, 0")
        for number, slot in enumerate(self.step.carry):
            here, there = self.here(number), self.there(number)
            if self.moves(slot):
                spare = self.spares[number]
                chosen = f"select i1 {i}.first, ptr {spare}, ptr {here}"
                self.write(f"{there}.next = {chosen}")
            elif slot.spare is not None:
                self.function.copy(here, there, slot.nbytes)

    # -- whether there is one more round

    def limit(self) -> str:
        """The number of rounds as an operand; empty if only a test decides."""
        step = self.step
        if self.bounds is not None:
            return self.bounds[1]
        if step.count is None:
            return "" if step.length is None else self.function.size(step.length)
        count, high = self.register("count"), self.register("limit")
        most = "" if step.length is None else self.function.size(step.length)
        self.declare("smax")
        self.declare("smin")
        self.write(
            f"{count} = load i32, ptr {self.driver.pointer(step.count)}",
            f"{count}.wide = sext i32 {count} to i64",
            f"{count}.low = call i64 @llvm.smax.i64(i64 {count}.wide, i64 0)",
            f"{high} = call i64 @llvm.smin.i64(i64 {count}.low, i64 {most})",
        )
        return high

    def count(self, limit: str) -> None:
        """Goes on to a round while there are some left."""
        name, i, more = self.name, self.register("i"), self.register("more")
        if self.period:
            self.write(
                f"{i}.on = icmp slt i64 {i}, {i}.end",
                f"br i1 {i}.on, label %{name}.round, label %{name}.pause",
                f"{name}.pause:",
            )
        going_on = "look" if self.period else "round"
        self.write(
            f"{more} = icmp slt i64 {i}, {limit}",
            f"br i1 {more}, label %{name}.{going_on}, label %{name}.leave",
        )
        if self.period:
            self.look()

    def ask(self, test: Plan, inputs: Sequence[str], answer: str, limit: str) -> None:
        """Goes on to a round if the test says so."""
        name, result, i = self.name, self.register("answer"), self.register("i")
        if self.period:
            self.write(
                f"{i}.pause = icmp eq i64 {i}, {i}.end",
                f"br i1 {i}.pause, label %{name}.look, label %{name}.on",
            )
            self.look()
            self.write(f"{name}.on:")
        pointers = _pointers(test, inputs, test.outputs, [answer], self.scratch)
        self.driver.held(test, pointers)
        target = f"{name}.room" if limit else f"{name}.round"
        self.write(
            f"{result} = load i8, ptr {answer}",
            f"{result}.more = icmp ne i8 {result}, 0",
            f"br i1 {result}.more, label %{target}, label %{name}.leave",
        )
        if limit:
            self.check_room(limit)

    def check_room(self, limit: str) -> None:
        """Ends the run with an error where there is no room to record a round."""
        name, fits = self.name, self.register("fits")
        self.write(
            f"{name}.room:",
            f"{fits} = icmp slt i64 {self.register('i')}, {limit}",
            f"br i1 {fits}, label %{name}.round, label %{name}.full",
            f"{name}.full:",
        )
        assert self.step.full is not None
        in_blas = self.function.in_blas
        self.function.host(self.step.full, [])
        self.function.in_blas = in_blas  # that block never goes on
        self.write(f"br label %{name}.round")

    # -- rounds

    def round(self, limit: str) -> None:
        """The steps of one round."""
        step, body = self.step, self.step.body
        row = self.register("i")
        if step.reverse and self.bounds is None:
            row, last = self.register("row"), self.register("last")
            self.write(
                f"{last} = sub i64 {limit}, 1",
                f"{row} = sub i64 {last}, {self.register('i')}",
            )
        count = len(step.carry)
        inputs = [
            *self.consts,
            *[self.here(number) for number in range(count)],
            *self.rows("in", self.stacks, step.rows, row),
        ]
        targets = [
            *[self.there(number) for number in range(count)],
            *self.rows("out", self.results, step.results, row),
        ]
        pointers = _pointers(body, inputs, body.outputs, targets, self.scratch)
        self.driver.held(body, pointers)

    def rows(
        self, what: str, stacks: Sequence[str], rows: Sequence[Rows], number: str
    ) -> list[str]:
        """The addresses of a row of each stack."""
        found = []
        for n, (start, stack) in enumerate(zip(stacks, rows, strict=True)):
            at = self.register(f"{what}{n}")
            self.write(
                f"{at}.bytes = mul i64 {number}, {self.function.size(stack.nbytes)}",
                f"{at} = getelementptr i8, ptr {start}, i64 {at}.bytes",
            )
            found.append(at)
        return found

    def finish(self, counter: str) -> None:
        """Brings the carry to where it is wanted, and tells the number of rounds."""
        for number, slot in enumerate(self.step.carry):
            if self.moves(slot):
                self.bring(number, slot)
            elif self.local:
                self.function.copy(self.targets[number], self.ends[number], slot.nbytes)
        if counter:
            count = self.register("rounds")
            self.write(
                f"{count} = trunc i64 {self.register('i')} to i32",
                f"store i32 {count}, ptr {counter}",
            )

    def bring(self, number: int, slot: Carry) -> None:
        """Copies a carry that the last round left elsewhere."""
        here, end = self.here(number), self.ends[number]
        label, after = self.function.label("bring"), self.function.label("brought")
        self.write(
            f"{here}.there = icmp eq ptr {here}, {end}",
            f"br i1 {here}.there, label %{after}, label %{label}",
            f"{label}:",
        )
        self.function.copy(end, here, slot.nbytes)
        self.write(f"br label %{after}", f"{after}:")
