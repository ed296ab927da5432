"""What a backend is, and which one runs a program.

A backend receives a `Plan` and gives a callable over NumPy arrays. Backends live above
this layer: `fnx` says in which modules they are, and the first program that is compiled
loads them, and the compiler. Next on the walk: `fnx.cpu`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from fnx.runtime.plan import Output, Plan


@dataclass(frozen=True, slots=True)
class Leaf:
    """Stands for an array in the form of a call: a plan's input or output number.

    `kind` says what the caller passes: "array" (of ours), "numpy", or a Python "float",
    "int" or "bool".
    """

    index: int
    kind: str = "array"


@dataclass(frozen=True, slots=True)
class CallForm:
    """One way of calling a jitted function, for a call path in machine code.

    `args` and `result` are trees with `Leaf`s in them; anything else in `args` is what
    exactly that argument must be. The last arguments are passed by `names`. `captured`
    are the arrays that are the plan's first inputs; `bits` and `strong_zero` are the
    settings under which the function was traced.
    """

    args: tuple[Any, ...]
    names: tuple[str, ...]
    result: Any
    captured: tuple[Any, ...]
    bits: int
    strong_zero: bool


@dataclass(frozen=True, slots=True)
class CallSite:
    """A class of functions whose calls can be made in machine code.

    Its instances keep what `NativeCalls.linked` gives in `slot`; `slow` is the Python
    way, for whatever no call path fits, and while `busy` has elements or `disabled` is
    true. `array` is the class of arrays.
    """

    owner: Any
    slot: str
    slow: Callable[..., Any]
    array: Any
    busy: list[None]
    disabled: ContextVar[bool]


class CallPath(Protocol):
    """One form of call in machine code."""

    @property
    def hits(self) -> int:
        """How many calls it has served."""
        ...


class NativeCalls(Protocol):
    """What turns call paths into the `__call__` of a class."""

    def install(self) -> None:
        """Makes calls of the class's instances native."""
        ...

    def linked(self, paths: Sequence[Any]) -> tuple[Any, ...]:
        """What the slot of a function holds: its paths in the order they are tried."""
        ...


class NativeProgram(Protocol):
    """A plan that is loaded; `outputs` say how its results are gathered."""

    outputs: tuple[Output, ...]

    def __call__(
        self, inputs: Sequence[np.ndarray[Any, Any]]
    ) -> list[np.ndarray[Any, Any]]:
        """The plan's output buffers for arrays of its input types."""
        ...

    def call_path(self, form: CallForm) -> CallPath | None:
        """A call path that runs this plan, if the form of call can have one."""
        ...


class Backend(Protocol):
    """Turns plans into native code.

    Every method but the last raises `ImportError` if the machine lacks the means.
    """

    def machine(self) -> str:
        """Of what machine the compiled code is: code of another one cannot run here."""
        ...

    def compile(self, plan: Plan) -> Any:
        """The plan compiled, as data that another process can load."""
        ...

    def load(self, compiled: Any) -> NativeProgram:
        """The plan as one native call."""
        ...

    def as_text(self, plan: Plan, stage: str) -> str:
        """What is printed for the machine: "llvm" or "asm"."""
        ...

    def native_calls(self, site: CallSite) -> NativeCalls | None:
        """What makes calls of a class's instances native, where that is possible."""
        ...


# The module of each backend; its `BACKEND` is the backend.
_modules: dict[str, str] = {}


def offer(name: str, module: str) -> None:
    """Says in which module the backend of that name is."""
    _modules[name] = module


def backend(name: str = "cpu") -> Backend:
    """The backend of that name, loaded when it is first asked for."""
    found: Backend = importlib.import_module(_modules[name]).BACKEND
    return found
