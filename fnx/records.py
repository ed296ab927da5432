"""Records: frozen dataclasses with slots whose classes are quick to make.

`@record` means `@dataclass(frozen=True, slots=True)`: the same fields, constructor,
comparison, pattern matching, `dataclasses.replace`. But `dataclass` compiles the text
of six functions for every class, which was a third of the time of `import fnx`; here
one short text is compiled, and what does not depend on the fields is written once.
Receives a class with annotations, gives the record; next on the walk: `fnx/errors.py`.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

R = TypeVar("R")

_TEXT = """
def __init__({parameters}):
    {assignments}
def _values(self):
    return ({values})
"""


@overload
def record(cls: type[R], /) -> type[R]: ...
@overload
def record(*, eq: bool = True) -> Callable[[type[R]], type[R]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[R] | None = None, /, *, eq: bool = True) -> Any:
    """Class decorator: an immutable dataclass with slots.

    With `eq=False`, instances are compared and hashed by identity. Fields may have
    defaults (no factories); what the class defines itself, such as `__repr__`, stays.

    >>> @record
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point(1.5), Point(1.5) == Point(1.5, 0.0), dataclasses.replace(Point(1.5), y=2)
    (Point(x=1.5, y=0.0), True, Point(x=1.5, y=2))
    >>> Point(1.5).x = 3
    Traceback (most recent call last):
    dataclasses.FrozenInstanceError: cannot assign to field 'x'
    """
    return _record(cls, eq) if cls is not None else lambda later: _record(later, eq)


def _record(cls: type[Any], eq: bool) -> type[Any]:
    plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)
    made = plain(cls)
    shared = _COMPARED | _SHARED if eq else _SHARED
    for name, function in (shared | _own_functions(made)).items():
        if name not in cls.__dict__:
            setattr(made, name, function)
    return made


def _own_functions(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    """`__init__`, and `_values`, which gives the fields as a tuple."""
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"__name__": cls.__module__}
    parameters, names = ["self"], [field.name for field in fields]
    for field in fields:
        # assignment is refused; the slots themselves are not
        scope[f"_set_{field.name}"] = getattr(cls, field.name).__set__
        if field.default is dataclasses.MISSING:
            parameters.append(field.name)
        else:
            scope[f"_default_{field.name}"] = field.default
            parameters.append(f"{field.name}=_default_{field.name}")
    text = _TEXT.format(
        parameters=", ".join(parameters),
        assignments="; ".join(f"_set_{name}(self, {name})" for name in names) or "pass",
        values="".join(f"self.{name}, " for name in names),
    )
    functions: dict[str, Any] = {}
    exec(text, scope, functions)
    init = functions["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"  # error texts show it
    init.__annotations__ = {field.name: field.type for field in fields}
    return functions


# ---------------------------------------------------------------- what records share


def _equal(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._values() == other._values()  # type: ignore[attr-defined]


def _hash(self: Any) -> int:
    return hash(self._values())


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]
    texts = [f"{name}={getattr(self, name)!r}" for name in shown]
    return f"{type(self).__qualname__}({', '.join(texts)})"


def _refuse_assignment(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), self._values()


_COMPARED = {"__eq__": _equal, "__hash__": _hash}
_SHARED = {
    "__repr__": _repr,
    "__setattr__": _refuse_assignment,
    "__delattr__": _refuse_deletion,
    "__reduce__": _reduce,
}
