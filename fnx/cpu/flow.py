"""Branches and loops: calls of the functions of other plans, from a plan's driver.

Receives a `BranchStep` or a `LoopStep`, and the driver that prints the plan's function;
appends basic blocks to it. A held plan's function takes an array of pointers, as the
plan's own does; a loop writes into it what differs from round to round: where the carry
is, and where the rows are. Next on the walk: `backend.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fnx.runtime.plan import BranchStep, Carry, LoopStep, Output, Plan, Rows

if TYPE_CHECKING:
    from fnx.cpu.driver import Driver


def print_flow(driver: Driver, step: BranchStep | LoopStep) -> None:
    """Prints one step."""
    if isinstance(step, BranchStep):
        _branch(driver, step)
    else:
        _Loop(driver, step).run()


def _branch(driver: Driver, step: BranchStep) -> None:
    inputs, count = len(step.inputs), len(step.branches)
    args = driver.array(inputs + len(step.outputs) + 1)
    for number, place in enumerate(step.inputs):
        driver.put(args, number, driver.pointer(place))
    outputs = [driver.pointer(place) for place in step.outputs]
    scratch = driver.pointer(step.scratch)
    index = f"%index{driver.label('')}"
    done, labels = driver.label("done"), [driver.label("branch") for _ in range(count)]
    clamp = "i32 @llvm.{}.i32(i32 {}, i32 {})"
    for name in ("smax", "smin"):
        driver.module.declare(
            f"llvm.{name}.i32", f"declare i32 @llvm.{name}.i32(i32, i32)"
        )
    cases = " ".join(f"i32 {n}, label %{label}" for n, label in enumerate(labels))
    driver.lines += [
        f"{index} = load i32, ptr {driver.pointer(step.index)}",
        f"{index}.low = call {clamp.format('smax', index, 0)}",
        f"{index}.in = call {clamp.format('smin', f'{index}.low', count - 1)}",
        f"switch i32 {index}.in, label %{labels[0]} [{cases}]",
    ]
    for plan, label in zip(step.branches, labels, strict=True):
        driver.lines.append(f"{label}:")
        _put_outputs(driver, args, plan, plan.outputs, outputs)
        driver.put(args, inputs + len(plan.buffers), scratch)
        driver.checked_call(f"@{driver.held(plan)}(ptr {args})")
        driver.lines.append(f"br label %{done}")
    driver.lines.append(f"{done}:")


def _put_outputs(
    driver: Driver,
    args: str,
    plan: Plan,
    outputs: Sequence[Output],
    pointers: Sequence[str],
) -> None:
    """Where a held plan writes these of its outputs, unless in an input's place."""
    for output, pointer in zip(outputs, pointers, strict=True):
        if output.role == "buffer":
            driver.put(args, len(plan.inputs) + output.index, pointer)


class _Loop:
    """Prints one loop.

    Registers of a loop are named by its number: `%loop3.i` is the round.
    """

    def __init__(self, driver: Driver, step: LoopStep) -> None:
        self.driver = driver
        self.step = step
        self.name = driver.label("loop")
        self.moving = [n for n, slot in enumerate(step.carry) if slot.spare is not None]

    def register(self, what: object) -> str:
        """The name of a register of this loop."""
        return f"%{self.name}.{what}"

    def write(self, *lines: str) -> None:
        """Appends instructions."""
        self.driver.lines += lines

    def run(self) -> None:
        """The blocks of the loop: enter, head, round, next, leave."""
        driver, step, name = self.driver, self.step, self.name
        body = driver.held(step.body)
        args = self.arguments(step.body)
        test = None if step.test is None else self.arguments(step.test.plan)
        self.fixed(args, test)
        limit = self.limit()
        self.write(f"br label %{name}.enter", f"{name}.enter:")
        self.write(f"br label %{name}.head", f"{name}.head:")
        self.phis()
        self.decide(limit, test)
        self.write(f"{name}.round:")
        self.put_round(args)
        driver.checked_call(f"@{body}(ptr {args})")
        self.write(f"br label %{name}.next", f"{name}.next:")
        self.advance()
        self.write(f"br label %{name}.head", f"{name}.leave:")
        self.finish()

    def arguments(self, plan: Plan) -> str:
        """The array of pointers of a held plan, with that of its arena."""
        args = self.driver.array(len(plan.inputs) + len(plan.buffers) + 1)
        scratch = self.driver.pointer(self.step.scratch)
        self.driver.put(args, len(plan.inputs) + len(plan.buffers), scratch)
        return args

    def fixed(self, args: str, test: str | None) -> None:
        """Pointers that are the same in every round."""
        driver, step = self.driver, self.step
        for number, place in enumerate(step.consts):
            driver.put(args, number, driver.pointer(place))
        for number, slot in enumerate(step.carry):
            if slot.spare is None:
                end = driver.pointer(slot.end)
                driver.put(args, len(step.consts) + number, end)
                if test is not None and step.test is not None:
                    driver.put(test, len(step.test.consts) + number, end)
            else:
                # Loaded here, so that the blocks of the loop can use them.
                driver.pointer(slot.start)
                driver.pointer(slot.spare)
                driver.pointer(slot.end)
        for rows in (*step.rows, *step.results):
            driver.pointer(rows.place)
        if test is not None and step.test is not None:
            for number, place in enumerate(step.test.consts):
                driver.put(test, number, driver.pointer(place))
            answer = driver.pointer(step.test.answer)
            _put_outputs(driver, test, step.test.plan, step.test.plan.outputs, [answer])
        if step.counter is not None:
            driver.pointer(step.counter)

    def limit(self) -> str | None:
        """How many rounds there are, as an operand; `None` if only a test decides."""
        step = self.step
        if step.count is None:
            return None if step.length is None else str(step.length)
        count, high = self.register("count"), self.register("limit")
        driver = self.driver
        for name in ("smax", "smin"):
            declared = f"declare i64 @llvm.{name}.i64(i64, i64)"
            driver.module.declare(f"llvm.{name}.i64", declared)
        self.write(
            f"{count} = load i32, ptr {driver.pointer(step.count)}",
            f"{count}.wide = sext i32 {count} to i64",
            f"{count}.low = call i64 @llvm.smax.i64(i64 {count}.wide, i64 0)",
            f"{high} = call i64 @llvm.smin.i64(i64 {count}.low, i64 {step.length})",
        )
        return high

    def phis(self) -> None:
        """The round, and for each carry where it is and where the next one goes."""
        i = self.register("i")
        enter, next_ = f"%{self.name}.enter", f"%{self.name}.next"
        self.write(f"{i} = phi i64 [ 0, {enter} ], [ {i}.next, {next_} ]")
        for number in self.moving:
            slot = self.step.carry[number]
            here, there = (
                self.register(f"here{number}"),
                self.register(f"there{number}"),
            )
            start = self.driver.pointer(slot.start)
            first = self.driver.pointer(slot.end)
            self.write(
                f"{here} = phi ptr [ {start}, {enter} ], [ {there}, {next_} ]",
                f"{there} = phi ptr [ {first}, {enter} ], [ {there}.next, {next_} ]",
            )

    def decide(self, limit: str | None, test: str | None) -> None:
        """Goes on to a round, or leaves."""
        driver, step, name = self.driver, self.step, self.name
        if test is None or step.test is None:
            more = self.register("more")
            self.write(
                f"{more} = icmp slt i64 {self.register('i')}, {limit}",
                f"br i1 {more}, label %{name}.round, label %{name}.leave",
            )
            return
        for number in self.moving:
            driver.put(
                test, len(step.test.consts) + number, self.register(f"here{number}")
            )
        driver.checked_call(f"@{driver.held(step.test.plan)}(ptr {test})")
        answer = self.register("answer")
        target = f"{name}.room" if limit is not None else f"{name}.round"
        self.write(
            f"{answer} = load i8, ptr {driver.pointer(step.test.answer)}",
            f"{answer}.more = icmp ne i8 {answer}, 0",
            f"br i1 {answer}.more, label %{target}, label %{name}.leave",
        )
        if limit is not None:
            fits = self.register("fits")
            self.write(
                f"{name}.room:",
                f"{fits} = icmp slt i64 {self.register('i')}, {limit}",
                f"br i1 {fits}, label %{name}.round, label %{name}.full",
                f"{name}.full:",
            )
            assert step.full is not None
            in_blas = driver.in_blas
            driver.host(step.full)
            driver.in_blas = in_blas  # that block is never left
            self.write(f"br label %{name}.round")

    def put_round(self, args: str) -> None:
        """Pointers that differ from round to round."""
        driver, step = self.driver, self.step
        first, body = len(step.consts), step.body
        for number in self.moving:
            driver.put(args, first + number, self.register(f"here{number}"))
        there = [self.register(f"there{number}") for number in self.moving]
        outputs = [body.outputs[number] for number in self.moving]
        _put_outputs(driver, args, body, outputs, there)
        row = self.register("i")
        if step.reverse:
            row = self.register("row")
            last = self.register("last")
            self.write(
                f"{last} = sub i64 {self.limit_name()}, 1",
                f"{row} = sub i64 {last}, {self.register('i')}",
            )
        for number, rows in enumerate(step.rows):
            at = self.row(f"in{number}", rows, row)
            driver.put(args, first + len(step.carry) + number, at)
        results = [
            self.row(f"out{n}", rows, row) for n, rows in enumerate(step.results)
        ]
        _put_outputs(driver, args, body, body.outputs[len(step.carry) :], results)

    def limit_name(self) -> str:
        """The operand that `limit` gave."""
        return (
            str(self.step.length) if self.step.count is None else self.register("limit")
        )

    def row(self, what: str, rows: Rows, number: str) -> str:
        """The address of a row."""
        at, start = self.register(what), self.driver.pointer(rows.place)
        self.write(
            f"{at}.bytes = mul i64 {number}, {rows.nbytes}",
            f"{at} = getelementptr i8, ptr {start}, i64 {at}.bytes",
        )
        return at

    def advance(self) -> None:
        """The next round writes where this one read, but never where the loop began."""
        i = self.register("i")
        self.write(f"{i}.next = add i64 {i}, 1", f"{i}.first = icmp eq i64 {i}, 0")
        for number in self.moving:
            slot = self.step.carry[number]
            assert slot.spare is not None
            here, there = (
                self.register(f"here{number}"),
                self.register(f"there{number}"),
            )
            spare = self.driver.pointer(slot.spare)
            self.write(f"{there}.next = select i1 {i}.first, ptr {spare}, ptr {here}")

    def finish(self) -> None:
        """Brings the carry to where it is wanted, and tells the number of rounds."""
        for number in self.moving:
            self.bring(number, self.step.carry[number])
        if self.step.counter is not None:
            count = self.register("rounds")
            self.write(
                f"{count} = trunc i64 {self.register('i')} to i32",
                f"store i32 {count}, ptr {self.driver.pointer(self.step.counter)}",
            )

    def bring(self, number: int, slot: Carry) -> None:
        """Copies a carry that the last round left elsewhere."""
        here, end = self.register(f"here{number}"), self.driver.pointer(slot.end)
        label, after = self.driver.label("bring"), self.driver.label("brought")
        memcpy = "llvm.memcpy.p0.p0.i64"
        declared = f"declare void @{memcpy}(ptr, ptr, i64, i1)"
        self.driver.module.declare(memcpy, declared)
        self.write(
            f"{here}.there = icmp eq ptr {here}, {end}",
            f"br i1 {here}.there, label %{after}, label %{label}",
            f"{label}:",
            f"call void @{memcpy}(ptr {end}, ptr {here}, i64 {slot.nbytes}, i1 false)",
            f"br label %{after}",
            f"{after}:",
        )
