"""A program on devices: its arena, and arrays in the places that graphs have in them.

Receives what was compiled; gives a callable over `Buffer`s that starts the program and
does not wait. On each device it has an arena for good, which one thread at a time uses;
what comes in between (a step on the host that calls the program again) takes memory of
its own. Next on the walk: `usage.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from fnx.records import record
from fnx.runtime.plan import Output, Place, Plan
from fnx_cuda import _cupy, failures, frame
from fnx_cuda.device import Device, device
from fnx_cuda.frame import Frame
from fnx_cuda.instructions import Body
from fnx_cuda.memory import Buffer, Slot
from fnx_cuda.run import ready
from fnx_cuda.usage import Row, usage_text

STAGED_BYTES = 2**22
"""Inputs and outputs of at most so many bytes have a fixed place if they move about: to
copy that takes a GPU three microseconds, as long as to start one launch by itself."""

PLACES = 4
"""What was in so many places, and is in another one, moves about."""

_ALIGNMENT = 256
_SHOWN = 3  # so many scopes are named
_CALLS = 64  # so many sets of addresses are known to need no staging


@record
class Compiled:
    """A plan as instructions, which any process can load.

    `plan` has no steps any more; `rows` say what takes most memory in it.
    """

    plan: Plan
    body: Body
    rows: tuple[Row, ...]


class Program:
    """A plan that is loaded, on each device at its first call there."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.outputs: tuple[Output, ...] = compiled.plan.outputs
        self._loaded: dict[int, Loaded] = {}
        self._loading = threading.Lock()

    def __call__(
        self, inputs: Sequence[Buffer], number: int, donated: Sequence[int] = ()
    ) -> list[Buffer]:
        """Starts the program on a device; gives the plan's output buffers."""
        found = self._loaded.get(number)
        if found is None:
            with self._loading:
                found = self._loaded.get(number)
                if found is None:
                    found = Loaded(self.compiled, device(number))
                    self._loaded[number] = found
        return found.run(inputs, tuple(donated))


class Loaded:
    """A program on one device."""

    def __init__(self, compiled: Compiled, device: Device) -> None:
        plan = compiled.plan
        self.compiled = compiled
        self.device = device
        self.what = _what(compiled)
        with device:
            try:
                self.body = ready(compiled.body, device)
            except _cupy.cuda_errors() as error:
                number = device.number
                what = f"loading {self.what}"
                raise failures.device_error(error, number, what) from error
        sizes = [type.size * type.dtype.itemsize for type in plan.buffers]
        input_sizes = [type.size * type.dtype.itemsize for type in plan.inputs]
        self.arena = -(-plan.arena // _ALIGNMENT) * _ALIGNMENT
        self.total = self.arena + compiled.body.work
        self.memory: Buffer | None = None
        self.read = Places(input_sizes, device)
        self.written = Places(sizes, device)
        self.slots = [Slot(device.memory, size) for size in sizes]
        self.pairs: dict[tuple[int, ...], dict[int, int]] = {}
        self.running = 0  # runs that have begun and not ended
        device.memory.caches.add(self)

    def run(self, inputs: Sequence[Buffer], donated: tuple[int, ...]) -> list[Buffer]:
        """Starts the program; gives its output buffers."""
        device = self.device
        with device:
            nested = self.running > 0
            self.running += 1
            try:
                outputs = self._start(inputs, donated, nested)
                moment = device.now(self.what)
            except _cupy.cuda_errors() as error:
                number = device.number
                raise failures.device_error(error, number, self.what) from error
            finally:
                self.running -= 1
        for buffer in outputs:
            buffer.moment = moment
        return outputs

    def release(self) -> None:
        """Gives up the arena and the places of inputs, unless they are in use."""
        if not self.running:
            self.memory = None
            self.read.release()
            self.written.release()
            for slot in self.slots:
                slot.release()

    # -- inside

    def _start(
        self, inputs: Sequence[Buffer], donated: tuple[int, ...], nested: bool
    ) -> list[Buffer]:
        device = self.device
        device.settle()
        outputs = self._outputs(inputs, donated)
        memory = self._memory(nested)
        device.join()
        given = [buffer.pointer for buffer in inputs]
        wanted = [buffer.pointer for buffer in outputs]
        start, work = memory.pointer, memory.pointer + self.arena
        if nested:
            self.body.run(Frame(given, wanted, start, work), device.compute)
        else:
            read, written = self.read.chosen(given), self.written.chosen(wanted)
            self.read.copy(read, given)
            self.body.run(Frame(read, written, start, work), device.compute)
            self.written.copy(wanted, written)
        return outputs

    def _memory(self, nested: bool) -> Buffer:
        """The arena and the work memory; those inside of a run have their own."""
        if nested:
            return self._allocate(self.total, "the arena of a program")
        if self.memory is None:
            self.memory = self._allocate(self.total, "the arena of a program")
        return self.memory

    def _outputs(
        self, inputs: Sequence[Buffer], donated: tuple[int, ...]
    ) -> list[Buffer]:
        """Memory for the outputs: new, or that of donated inputs."""
        pairs = self._pairs(donated) if donated else {}
        outputs = []
        for number, slot in enumerate(self.slots):
            given = pairs.get(number)
            if given is not None and _is_alone(inputs, given):
                outputs.append(inputs[given])
            else:
                outputs.append(slot.take("the outputs of a program", self._usage))
        return outputs

    def _pairs(self, donated: tuple[int, ...]) -> dict[int, int]:
        """For outputs the donated input whose memory they take."""
        found = self.pairs.get(donated)
        if found is None:
            found = self.pairs[donated] = taken_over(self.compiled, donated)
        return found

    def _allocate(self, nbytes: int, what: str) -> Buffer:
        return self.device.memory.allocate(nbytes, what, self._usage)

    def _usage(self) -> str:
        return usage_text(self.compiled.plan, self.compiled.rows)


class Places:
    """Where a program finds its inputs or leaves its outputs: in the arrays, or fixed.

    A graph is of use only where its addresses come again, so an array that is somewhere
    else at many calls has a place of its own, from or to which it is copied.
    """

    def __init__(self, sizes: Sequence[int], device: Device) -> None:
        self.sizes = sizes
        self.device = device
        self.known: dict[int, set[int]] = {
            number: set()
            for number, size in enumerate(sizes)
            if 0 < size <= STAGED_BYTES
        }
        self.fixed: dict[int, Buffer] = {}
        self.calls: set[tuple[int, ...]] = set()

    def chosen(self, addresses: list[int]) -> list[int]:
        """The addresses to use for arrays at these."""
        call = tuple(addresses)
        if call in self.calls:  # they have been there, and nothing moves about
            return addresses
        chosen = list(addresses)
        for number in self.known:
            place = self._fixed(number, addresses[number])
            if place is not None:
                chosen[number] = place.pointer
        if not self.fixed and len(self.calls) < _CALLS:
            self.calls.add(call)
        return chosen

    def copy(self, targets: Sequence[int], sources: Sequence[int]) -> None:
        """Copies the arrays that are not where they are used."""
        stream = self.device.compute
        for number in self.fixed:
            target, source = targets[number], sources[number]
            if target != source:
                _cupy.copy(target, source, self.sizes[number], stream)

    def release(self) -> None:
        """Gives up the places; arrays may show again that they move about."""
        self.fixed.clear()
        for known in self.known.values():
            known.clear()

    def _fixed(self, number: int, address: int) -> Buffer | None:
        """The place of an array that moves about."""
        place = self.fixed.get(number)
        if place is None:
            known = self.known[number]
            if len(known) < PLACES or address in known:
                known.add(address)
                return None
            size = self.sizes[number]
            place = self.device.memory.allocate(size, "the fixed place of an array")
            self.fixed[number] = place
            self.calls.clear()
        return place


def taken_over(compiled: Compiled, donated: Sequence[int]) -> dict[int, int]:
    """For outputs a donated input of as many bytes, last used before they are written.

    An input that is itself an output of the program stays.
    """
    first: dict[Place, int] = {}
    last: dict[Place, int] = {}
    instructions = compiled.body.instructions
    ends = frame.ends_of_collectives(instructions)
    for number, instruction in enumerate(instructions):
        for place in frame.places(instruction):
            first.setdefault(place, number)
            last[place] = max(ends.get(number, number), last.get(place, 0))
    plan = compiled.plan
    stay = {output.index for output in plan.outputs if output.role == "input"}
    free = [number for number in donated if number not in stay]
    taken = {}
    end = len(instructions)
    for number, type in enumerate(plan.buffers):
        written = first.get(Place("output", number), end)
        size = type.size * type.dtype.itemsize
        for given in free:
            of = plan.inputs[given]
            read = last.get(Place("input", given), -1)
            if of.size * of.dtype.itemsize == size and read < written and size:
                taken[number] = given
                free.remove(given)
                break
    return taken


def _is_alone(inputs: Sequence[Buffer], number: int) -> bool:
    """Whether a program may write into an input: it is ours, and no other input."""
    buffer = inputs[number]
    return buffer.ours and [b.pointer for b in inputs].count(buffer.pointer) == 1


def _what(compiled: Compiled) -> str:
    """What people call a program: its first instruction, how many more, their scopes.

    >>> from fnx_cuda.instructions import Copy
    >>> copy = Copy(Place("output", 0), Place("input", 0), 8)
    >>> body = Body((copy, copy), 0, ("encoder", "decoder"))
    >>> _what(Compiled(Plan((), (), (), (), 0), body, ()))
    'a program of a copy of 8 bytes and 1 more step, in encoder and decoder'
    """
    body = compiled.body
    if not body.instructions:
        return "a program"
    more = len(body.instructions) - 1
    text = f"a program of {frame.name(body.instructions[0])}"
    if more:
        text += f" and {more} more step{'s' if more > 1 else ''}"
    scopes = [scope for scope in dict.fromkeys(body.scopes) if scope]
    if len(scopes) > _SHOWN:
        scopes[_SHOWN:] = [f"{len(scopes) - _SHOWN} other scopes"]
    return f"{text}, in {' and '.join(scopes)}" if scopes else text
