"""What runs where arrays have been put: operations and programs on devices.

Receives an operation and operands of which one is on a device, or committed to the CPU,
or that runs where another device is the default. Where it runs is said by the operands
(`device.py`); it runs there as a program of one equation, cached by its structure.
Next on the walk: `compiling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fnx import errors
from fnx.config import watching
from fnx.core import hooks
from fnx.core.primitive import Primitive
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.core.types import ArrayType
from fnx.ops.families import Elementwise
from fnx.ops.shape import broadcast_in_dim
from fnx.runtime import eager
from fnx.runtime.array import ConcreteArray, at_host, deleted, wrap
from fnx.runtime.backend import Buffer, DeviceProgram
from fnx.runtime.device import CPU, Conflict, Placement, conflict, defaulting, where
from fnx.runtime.device_array import (
    DeviceArray,
    Origin,
    buffer_at,
    forget_numbers,
    number_at,
    put,
)
from fnx.runtime.executable import Executable, executable_for, run_compiled, single

if TYPE_CHECKING:
    from fnx.runtime.plan import Output, Plan


class DeviceExecutable(Executable):
    """Runs a program on the devices of a backend."""

    __slots__ = ("_made", "backend")

    native: DeviceProgram

    def __init__(
        self, program: Program, native: DeviceProgram, plan: Plan | None, backend: str
    ) -> None:
        super().__init__(program, native, plan)
        self.backend = backend
        # The buffer and the type of each output, if each has a buffer of its own.
        numbers = [o.index for o in native.outputs if o.role == "buffer"]
        usual = len({*numbers}) == len(native.outputs)
        self._made = [(o.index, o.type) for o in native.outputs] if usual else None

    def run(self, arrays: Sequence[ConcreteArray]) -> tuple[ConcreteArray, ...]:
        """It must be said on which device."""
        raise errors.InternalError("a program of a device was run without one")

    def run_at(
        self,
        arrays: Sequence[Any],
        placement: Placement,
        what: str,
        donated: Sequence[bool] = (),
    ) -> tuple[ConcreteArray, ...]:
        """The outputs on a device, whose values are on their way."""
        inputs: list[Any] = [
            x._buffer if x.placement is placement else buffer_at(x, placement)
            for x in arrays
        ]
        if None in inputs:
            raise deleted(arrays[inputs.index(None)].type)
        return self._started(inputs, arrays, placement, what, donated)

    def start(
        self,
        operands: Sequence[ConcreteArray | Literal],
        placement: Placement,
        what: str,
    ) -> tuple[ConcreteArray, ...]:
        """As `run_at`, where some inputs are numbers."""
        inputs = [
            number_at(x, placement)
            if isinstance(x, Literal)
            else buffer_at(x, placement)
            for x in operands
        ]
        return self._started(inputs, operands, placement, what, ())

    def _started(
        self,
        inputs: Sequence[Buffer],
        operands: Sequence[Any],
        placement: Placement,
        what: str,
        donated: Sequence[bool],
    ) -> tuple[ConcreteArray, ...]:
        free = self._free(operands, donated) if True in donated else ()
        made = self.native(inputs, placement.device.ordinal, free)
        origin = Origin(what, errors.user_source())
        if self._made is not None:
            return tuple(
                [DeviceArray(made[n], t, placement, origin) for n, t in self._made]
            )
        return self._gathered(inputs, made, operands, placement, origin)

    def _gathered(
        self,
        inputs: Sequence[Buffer],
        made: Sequence[Buffer],
        operands: Sequence[Any],
        placement: Placement,
        origin: Origin,
    ) -> tuple[ConcreteArray, ...]:
        """The outputs, of which some are numbers, inputs, or the same memory."""
        results: list[DeviceArray] = []
        first: dict[int, DeviceArray] = {}
        for output in self.native.outputs:
            buffer = _buffer(output, inputs, made, placement)
            result = DeviceArray(buffer, output.type, placement, origin)
            other = first.setdefault(id(buffer), result)
            if output.role != "buffer" or other is not result:
                other.shared = result.shared = True
            results.append(result)
        for x in operands:
            if isinstance(x, DeviceArray) and id(x._buffer) in first:
                x.shared = True
        return tuple(results)

    def _free(
        self, operands: Sequence[Any], donated: Sequence[bool]
    ) -> tuple[int, ...]:
        """The donated inputs whose memory nobody else reads, nor the caller later."""
        passed = {o.index for o in self.native.outputs if o.role == "input"}
        return tuple(
            [
                i
                for i, x in enumerate(operands)
                if donated[i] and i not in passed and not getattr(x, "shared", False)
            ]
        )

    def call_path(self, form: Any) -> None:
        """None: native calls are those of the CPU."""
        return None


def _buffer(
    output: Output,
    inputs: Sequence[Buffer],
    made: Sequence[Buffer],
    placement: Placement,
) -> Buffer:
    if output.literal is not None:
        return number_at(output.literal, placement)
    return (inputs if output.role == "input" else made)[output.index]


# ---------------------------------------------------------------- one operation


def evaluate_placed(
    primitive: Primitive,
    operands: Sequence[ConcreteArray | Literal],
    params: Mapping[str, Any],
) -> Any:
    """The result of one primitive, or a tuple of them, where the operands are."""
    arrays = [x for x in operands if not isinstance(x, Literal)]
    try:
        placement = where(arrays)
    except Conflict as found:
        names = [f"operand {i}" for i in range(len(arrays))]
        raise conflict(primitive.name, arrays, names, found.numbers) from None
    if placement is None or placement.device.backend == "cpu":
        return _on_host(primitive, operands, params, placement)
    if primitive.compiled:
        all_arrays = [
            eager.constant(x) if isinstance(x, Literal) else x for x in operands
        ]
        return run_compiled(primitive, all_arrays, params, placement)
    results = _on_device(primitive, operands, params, placement)
    if hooks.busy and (watching() or eager.checked_kinds.get()):
        _look(primitive, operands, params, results)
    return results if primitive.multiple else results[0]


def _on_host(
    primitive: Primitive,
    operands: Sequence[ConcreteArray | Literal],
    params: Mapping[str, Any],
    placement: Placement | None,
) -> Any:
    """The result on a CPU device."""
    here = [
        x if isinstance(x, Literal) else ConcreteArray(x._numpy(), x.type)
        for x in operands
    ]
    with defaulting(CPU):
        results = eager.evaluate(primitive, tuple(here), params)
    if primitive.multiple:
        return tuple([at_host(x, placement) for x in results])
    return at_host(results, placement)


# The executables of operations, by backend, primitive, types and params.
_operations: dict[Any, Executable] = {}
_MOST_OPERATIONS = 4096


def forget_operations() -> None:
    """Forgets what operations on devices have left."""
    _operations.clear()
    forget_numbers()


def _on_device(
    primitive: Primitive,
    operands: Sequence[ConcreteArray | Literal],
    params: Mapping[str, Any],
    placement: Placement,
) -> tuple[ConcreteArray, ...]:
    backend = placement.device.backend
    body = primitive.body(**params)
    executable: Any
    if primitive.has("attends"):
        types = [x.type for x in operands]
        executable = executable_for(single(primitive, types, params), backend)
    elif body is not None:
        executable = executable_for(body, backend)
    elif primitive.personal:
        return _by_the_host(primitive, operands, params, placement)
    else:
        executable = _operation(primitive, operands, params, backend)
    results: tuple[ConcreteArray, ...] = executable.start(
        operands, placement, primitive.name
    )
    return results


def _operation(
    primitive: Primitive,
    operands: Sequence[ConcreteArray | Literal],
    params: Mapping[str, Any],
    backend: str,
) -> Executable:
    types = tuple([x.type for x in operands])
    key = (backend, primitive, types, *params.items())
    try:
        found = _operations.get(key)
    except TypeError:  # a param that is not hashable
        return executable_for(_program(primitive, types, params), backend)
    if found is None:
        found = executable_for(_program(primitive, types, params), backend)
        if len(_operations) >= _MOST_OPERATIONS:
            _operations.clear()
        if not primitive.sees_axes:
            _operations[key] = found
    return found


def _program(
    primitive: Primitive, types: Sequence[ArrayType], params: Mapping[str, Any]
) -> Program:
    """The operation as a program, in which numbers are given the shape of arrays.

    Outside of a trace an operand of rank 0 meets any shape; in a program only a
    literal does.
    """
    alone = single(primitive, types, params)
    (eqn,) = alone.eqns
    shape = eqn.outputs[0].type.shape if isinstance(primitive, Elementwise) else ()
    if not shape:
        return alone
    spread: list[Eqn] = []
    inputs: list[Any] = []
    for var in alone.inputs:
        if var.type.shape:
            inputs.append(var)
            continue
        wide = Var(var.type.with_shape(shape))
        inputs.append(wide)
        at = {"shape": shape, "dims": ()}
        spread.append(Eqn(broadcast_in_dim, (var,), (wide,), at, eqn.source))
    last = Eqn(primitive, tuple(inputs), eqn.outputs, params, eqn.source)
    return Program(alone.inputs, (*spread, last), alone.outputs)


def _by_the_host(
    primitive: Primitive,
    operands: Sequence[ConcreteArray | Literal],
    params: Mapping[str, Any],
    placement: Placement,
) -> tuple[ConcreteArray, ...]:
    """What holds a function or an array is equal only to itself: no program is kept."""
    arrays = [x.value if isinstance(x, Literal) else x._numpy() for x in operands]
    types = primitive.infer(*[x.type for x in operands], **params)
    values = primitive.reference(*arrays, **params)
    pairs = zip(values, types, strict=True) if primitive.multiple else [(values, types)]
    return tuple([put(wrap(value, type), placement) for value, type in pairs])


def _look(
    primitive: Primitive,
    operands: Sequence[ConcreteArray | Literal],
    params: Mapping[str, Any],
    results: Sequence[ConcreteArray],
) -> None:
    """Raises where somebody looks for what an operation has done wrong."""
    arrays = [x.value if isinstance(x, Literal) else x._numpy() for x in operands]
    values = [x._numpy() for x in results]
    if watching():
        eager.check_values(
            primitive, arrays, values if primitive.multiple else values[0]
        )
    if eager.checked_kinds.get():
        eager.look(primitive, arrays, params)
