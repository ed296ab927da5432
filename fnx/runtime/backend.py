"""What a backend is, and which one runs a program.

A backend receives a `Plan` and gives a callable over NumPy arrays. Backends live above
this layer: `fnx` says in which modules they are, and the first program that is compiled
loads them, and the compiler. Next on the walk: `fnx.cpu`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fnx.records import record

if TYPE_CHECKING:
    from fnx.runtime.plan import Output, Plan


@record
class Leaf:
    """Stands for an array in the form of a call: a plan's input or output number.

    `kind` says what the caller passes: "array" (of ours), "numpy", or a Python "float",
    "int" or "bool".
    """

    index: int
    kind: str = "array"


@record
class Called:
    """Stands for a whole result: what a function gives for the memory of inputs.

    `function` takes NumPy arrays, those behind the inputs of these numbers.
    """

    function: Callable[..., Any]
    inputs: tuple[int, ...]


@record
class Argument:
    """Stands for an object that is passed on: the array that is input `index`."""

    index: int


@record
class Index:
    """Stands for an integer in [-size, size): an index of an axis of input `input`.

    The axis has elements `stride` bytes apart. The path was made for the index `value`;
    for another one it reads the input's memory as far from there.
    """

    input: int
    value: int
    size: int
    stride: int


@record
class CallForm:
    """One way of calling a jitted function, for a call path in machine code.

    `args` and `result` are trees with `Leaf`s in them, `args` also with `Index`es;
    anything else in `args` is what exactly that argument must be. The last arguments
    are passed by `names`. `captured` are the arrays that are the plan's first inputs;
    `bits` and `strong_zero` are the settings under which the function was traced.
    """

    args: tuple[Any, ...]
    names: tuple[str, ...]
    result: Any
    captured: tuple[Any, ...]
    bits: int
    strong_zero: bool


@record
class Functions:
    """A class of functions whose calls can be made in machine code.

    Its instances, of which `one` is one, keep what `NativeCalls.linked` gives in the
    slot `_paths`; `slow` is the Python way, for whatever no call path fits, and while
    `disabled` is true.
    """

    owner: Any
    one: Any
    slow: Callable[..., Any]
    disabled: ContextVar[bool] | None


@record
class Member:
    """A method (or property) of arrays: a function that is given the array first."""

    name: str
    function: Any
    is_property: bool


@record
class CallSite:
    """All that can be called in machine code.

    `jitted` and `eager` are classes of functions; `members` are of the second one, and
    methods of the class `owner`. `array` is the class of arrays that paths take, whose
    `type` is a `type`; `makers` are functions of the module `arrays` to be replaced.
    While `busy` has elements every call that paths could serve is made in Python.
    """

    jitted: Functions
    eager: Functions
    owner: Any
    members: Sequence[Member]
    array: Any
    type: Any
    arrays: Any
    makers: Mapping[str, Callable[..., Any]]
    busy: list[None]


class CallPath(Protocol):
    """One form of call in machine code."""

    @property
    def hits(self) -> int:
        """How many calls it has served."""
        ...


class NativeCalls(Protocol):
    """What turns call paths into calls."""

    def install(self) -> None:
        """Makes the calls of functions and methods native."""
        ...

    def eager_path(
        self,
        form: CallForm,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        replay: Callable[..., Any],
    ) -> CallPath | None:
        """A path that does natively what `replay` does with NumPy arrays, bit for bit.

        `None` where it would be something else than loops of NumPy and copies.
        """
        ...

    def calling_path(self, form: CallForm, inputs: Sequence[Any]) -> CallPath | None:
        """A path whose result is that of a Python function (`Called`)."""
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

    Every method raises `ImportError` if the machine lacks the means.
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


# The module of each backend, which is its `BACKEND`; "calls" is that of native calls.
_modules: dict[str, str] = {}


def offer(name: str, module: str) -> None:
    """Says in which module the backend of that name is."""
    _modules[name] = module


def backend(name: str = "cpu") -> Backend:
    """The backend of that name, loaded when it is first asked for."""
    found: Backend = importlib.import_module(_modules[name]).BACKEND
    return found


def native_calls(site: CallSite) -> NativeCalls | None:
    """What makes calls native, where that is possible; it needs no compiler."""
    entry = importlib.import_module(_modules["calls"])
    found: NativeCalls | None = entry.native_calls(site)
    return found
