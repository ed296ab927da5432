"""Families of primitives: rules that many operations share, written once.

An `Elementwise` primitive computes every element of the output from the elements of the
operands at the same place. Its operands have equal shapes, except that a literal stands
for an array of any shape; `fnx.numpy` inserts the broadcasts and conversions.
Next on the walk: `arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.core.links import Links, copied
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import MappedAxis, Primitive, primitive
from fnx.core.program import Literal
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.kernel.scalar import TABLE

BOOL, SIGNED, UNSIGNED, FLOAT, COMPLEX = "biufc"
INTEGER = SIGNED + UNSIGNED
REAL = INTEGER + FLOAT
INEXACT = FLOAT + COMPLEX
NUMBER = INTEGER + INEXACT
ANY = BOOL + NUMBER
STORED = "s"

_WORDS = {
    "s": "storage",
    "b": "bool",
    "i": "int",
    "u": "uint",
    "f": "float",
    "c": "complex",
}
# The kinds of arrays beside which each Python scalar is a literal of their dtype.
_BESIDE = {bool: ANY, int: NUMBER, float: INEXACT, complex: COMPLEX}
_TYPED = (Array, Literal)


def kind(dtype: np.dtype[Any]) -> str:
    """One letter for the kind of a dtype: b, i, u, f or c (bfloat16 is a float).

    Dtypes for storage have another one, that no operation takes.
    """
    if dtypes.is_storage(dtype):
        return STORED
    return FLOAT if dtypes.is_float(dtype) else dtype.kind


class OnHost(Primitive):
    """An operation without native code: a plan calls back for its reference rule."""

    def steps(self, plan: Any, *inputs: Any, **params: Any) -> None:
        """One callback."""
        plan.host()


class Nullary(Primitive):
    """An operation without operands: a constant, which no member of a batch changes."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """A constant."""
        return self(**params), None

    def padded(self, pads: Pads, **params: Any) -> Any:
        """The same, of the sizes that the params say."""
        return self(**params)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        /,  # params may have an axis, too
        **params: Any,
    ) -> tuple[Any, bool]:
        """The same for every member of the batch."""
        return self(**params), False


class Copying(Primitive):
    """An operation whose output elements are elements of its operands."""

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        **params: Any,
    ) -> Links | None:
        """The elements that are copied."""
        return copied(self, position, known, types, params)


class Elementwise(Primitive):
    """Applies a scalar operation at every place.

    `kinds` are the dtypes that the operands may have, as letters; `numpy` computes the
    whole in NumPy. `scalar` names the row of the scalar table that computes one element
    (the one of the operation's name by default), or is a function of the kernel builder
    and the operands' elements. Those of complex arrays are pairs of expressions, `.re`
    and `.im`, which the builder's operations take as they take others; what has no
    complex meaning raises. Without `scalar` a plan calls back for `numpy`.
    """

    lanewise = True

    def __init__(
        self,
        name: str,
        kinds: str,
        numpy: Callable[..., Any],
        *,
        scalar: str | Callable[..., Any] | None = None,
        commutative: bool = False,
        cheap: bool = False,
    ) -> None:
        super().__init__(name)
        self.kinds = kinds
        self.numpy = numpy
        self.scalar = scalar or (name if name in TABLE else None)
        self.commutative = commutative
        self.cheap = cheap

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Applies the operation; Python scalars take the other operands' dtype."""
        operands = self._with_literals(args)
        if operands is not args and _are_literals(operands, args):
            return self._folded(operands, params)
        return bind(self, operands, params)

    def _with_literals(self, args: tuple[Any, ...]) -> Sequence[Any]:
        """Python scalars become literals of the dtype of the operands beside them."""
        arrays = [arg for arg in args if isinstance(arg, Array)]
        if len(arrays) > 1:
            self._check_shapes(arrays)
        if len(arrays) == len(args):
            return args
        typed = [arg.type.dtype for arg in args if isinstance(arg, _TYPED)]
        dtype = typed[-1] if typed else None
        return [
            arg if isinstance(arg, _TYPED) else _literal(arg, dtype) for arg in args
        ]

    def _folded(self, literals: Sequence[Any], params: Mapping[str, Any]) -> Literal:
        # In a rule, a function of literals must stand for any shape as they do.
        type = self.infer(*[x.type for x in literals], **params)
        with np.errstate(all="ignore"):
            value = self.reference(*[x.value for x in literals], **params)
        return Literal(value, type)

    def _check_shapes(self, arrays: Sequence[Array]) -> None:
        # A literal may meet any shape; an array of rank 0 may not: it would need a
        # sum in its transpose.
        shape = arrays[0].type.shape
        if [x for x in arrays if x.type.shape != shape]:
            types = ", ".join(str(x.type) for x in arrays)
            raise errors.ShapeError(
                f"{self.name}: the operands must have equal shapes, got {types}. "
                "fnx.numpy broadcasts them; at this level use fnx.lax.broadcast_in_dim."
            )

    def result_dtype(self, *operands: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of the output; that of the operands unless overridden."""
        return operands[0]

    def infer(self, *types: ArrayType, **params: Any) -> ArrayType:
        """The operands' common shape, with `result_dtype`; weak if all of them are."""
        shape = self._common_shape(types)
        self.check_dtypes(types)
        dtype = self.result_dtype(*[t.dtype for t in types])
        return ArrayType(shape, dtype, all(t.weak for t in types))

    def _common_shape(self, types: Sequence[ArrayType]) -> tuple[int, ...]:
        shape: tuple[int, ...] = ()
        for type in types:
            if type.shape and type.shape != shape:
                if shape:
                    shown = ", ".join(map(str, types))
                    raise errors.ShapeError(
                        f"{self.name}: the operands must have equal shapes, got {shown}"
                    )
                shape = type.shape
        return shape

    def check_dtypes(self, types: Sequence[ArrayType]) -> None:
        """Raises unless the operands share one dtype of an allowed kind."""
        first = types[0].dtype
        if any(t.dtype != first for t in types):
            shown = ", ".join(map(str, types))
            raise errors.DTypeError(
                f"{self.name}: the operands must have equal dtypes, got {shown}"
            )
        if kind(first) not in self.kinds:
            allowed = ", ".join(_WORDS[letter] for letter in self.kinds)
            raise errors.DTypeError(
                f"{self.name}: dtype {first} is not supported; it takes {allowed}"
            )

    def reference(self, *arrays: Any, **params: Any) -> Any:
        """NumPy's value; 16-bit floats are computed in float32 and rounded once."""
        types = [array.dtype for array in arrays]
        if [dtype for dtype in types if dtype.itemsize == 2]:
            arrays = tuple([widened(array) for array in arrays])
        value = self.numpy(*arrays, **params)
        dtype = self.result_dtype(*types)
        exact = value.__class__ is np.ndarray and value.dtype is dtype
        return value if exact else np.asarray(value, dtype)

    def absorb(
        self, inputs: Sequence[Any], makers: Mapping[Any, Any], **params: Any
    ) -> tuple[Sequence[Any], dict[str, Any]] | None:
        """A broadcast literal may stand as the literal, beside an operand in full."""
        plain = [_unbroadcast(atom, makers) for atom in inputs]
        if plain == list(inputs) or _are_literals(plain, plain):
            return None
        return plain, params

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **params: Any,
    ) -> tuple[Any, Any]:
        """The same operation; operands without the axis are broadcast along it."""
        if any(mapped):
            args = [
                arg if is_mapped or isinstance(arg, Literal) else along(axis, arg)
                for arg, is_mapped in zip(args, mapped, strict=True)
            ]
        output = self(*args, **params)
        flag = any(mapped)
        return output, tuple([flag] * len(output)) if self.multiple else flag

    def padded(self, pads: Pads, *inputs: Padded, **params: Any) -> Any:
        """The same operation; a number that varies is broadcast as its literal was."""
        shape = max([x.array.type.shape for x in inputs], key=len)
        arrays = [
            x.array
            if isinstance(x.array, Literal) or x.array.type.shape == shape
            else primitive("broadcast_in_dim")(x.array, shape=shape, dims=())
            for x in inputs
        ]
        return self(*arrays, **params)

    def element(self, k: Any, index: Any, *inputs: Any, **params: Any) -> Any:
        """The scalar operation on the operands' elements at the same index."""
        values = [x(index) for x in inputs]
        if isinstance(self.scalar, str):
            return k.op(self.scalar, *values)
        assert self.scalar is not None  # as `fusible` says
        # As in `reference`, 16-bit floats are computed in float32 and rounded once.
        wide = [k.convert(v, dtypes.compute_dtype(v.dtype)) for v in values]
        value = self.scalar(k, *wide, **params)
        return k.convert(value, self.result_dtype(*[v.dtype for v in values]))

    def alignment(
        self, position: int, types: Sequence[ArrayType], **params: Any
    ) -> tuple[int | None, ...]:
        """Every operand runs along the output."""
        return tuple(range(types[position].ndim))

    def fusible(self, types: Sequence[ArrayType], params: Any) -> bool:
        """What has a scalar operation, or an `element` of its own."""
        own = type(self).element is not Elementwise.element
        return own or self.scalar is not None


class Predicate(Elementwise):
    """An elementwise operation with a boolean result: comparisons, is_finite."""

    def result_dtype(self, *operands: np.dtype[Any]) -> np.dtype[Any]:
        """Always bool."""
        return dtypes.bool_

    def infer(self, *types: ArrayType, **params: Any) -> ArrayType:
        """The operands' common shape in bool; a bool is never weak."""
        return super().infer(*types, **params).strong()

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """A step function has derivative zero."""
        return self(*primals, **params), None


class Stepwise(Elementwise):
    """An elementwise operation that is flat where it is smooth: floor, sign, bits."""

    jvp = Predicate.jvp


def _unbroadcast(atom: Any, makers: Mapping[Any, Any]) -> Any:
    """The literal that an atom is a broadcast of, or the atom."""
    maker = makers.get(atom)
    if maker is None or maker.primitive is not primitive("broadcast_in_dim"):
        return atom
    source = maker.inputs[0]
    return source if isinstance(source, Literal) else atom


def widened(array: Any) -> Any:
    """The array in the dtype it is computed in: float32 for 16-bit floats."""
    dtype = dtypes.compute_dtype(array.dtype)
    return array if dtype is array.dtype else array.astype(dtype)


def along(axis: MappedAxis, x: Any) -> Any:
    """An array, or a literal, repeated along a new leading axis."""
    # By name, since broadcasting is itself defined from the families in this file.
    broadcast_in_dim = primitive("broadcast_in_dim")
    shape = x.type.shape
    dims = tuple(range(1, len(shape) + 1))
    return broadcast_in_dim(x, shape=(axis.size, *shape), dims=dims)


def literal(value: complex, dtype: np.dtype[Any]) -> Literal:
    """A weak scalar constant of that dtype."""
    return _weak_literal(value, dtype, str(value) if value == 0 else "")


@lru_cache(maxsize=1024, typed=True)
def _weak_literal(value: complex, dtype: np.dtype[Any], text: str) -> Literal:
    # The text tells 0.0 from -0.0.
    try:
        return Literal(dtype.type(value), ArrayType((), dtype, True))
    except OverflowError:
        raise errors.ScalarOutOfRange(
            errors.explain(
                f"the Python integer {value} beside an array of {dtype}",
                f"{dtype} cannot hold it, and wrapping it would change its value",
                "convert the array to a wider dtype, or wrap the number yourself: "
                f"numpy.array({value}).astype({dtype.name!r})",
            )
        ) from None


def _literal(value: Any, dtype: np.dtype[Any] | None) -> Any:
    kinds = _BESIDE.get(value.__class__)
    if kinds is None:  # a subclass, or no scalar at all
        found = [scalar for scalar in _BESIDE if isinstance(value, scalar)]
        return _literal(found[0](value), dtype) if found else value
    if dtype is None:
        return Literal(value)
    letter = kind(dtype)
    # Rules write 0 for the zero of any dtype, that of booleans too.
    if letter in kinds or (
        letter == BOOL and kinds == _BESIDE[int] and value in (0, 1)
    ):
        return literal(value, dtype)
    return Literal(value)  # one that does not fit: `infer` complains of its dtype


def _are_literals(operands: Sequence[Any], args: Sequence[Any]) -> bool:
    """Whether the operands are literals, not all of them written as Python scalars."""
    for x in operands:
        if not isinstance(x, Literal):
            return False
    return any(isinstance(x, Literal) for x in args)
