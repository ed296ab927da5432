"""What a backend is, and which one runs a program.

A backend receives a `Plan` and gives a callable: over NumPy arrays, or, where memory is
that of devices (`DeviceBackend`), over `Buffer`s. Backends live above this layer: `fnx`
says in which modules they are, and the first program that is compiled loads them, and
the compiler. Next on the walk: `device.py`, `fnx.cpu`, `fnx_cuda`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fnx.records import record
from fnx.sizes import Symbol

if TYPE_CHECKING:
    from fnx.runtime.plan import Output, Plan, Target


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
        self,
        inputs: Sequence[np.ndarray[Any, Any]],
        given: Mapping[int, np.ndarray[Any, Any]] = ...,
    ) -> list[np.ndarray[Any, Any]]:
        """The plan's output buffers for arrays of its input types.

        `given` has arrays for those of some numbers; the others are new.
        """
        ...

    def call_path(self, form: CallForm) -> CallPath | None:
        """A call path that runs this plan, if the form of call can have one."""
        ...


class Compiler(Protocol):
    """What all backends have: it turns plans into code.

    Every method raises `ImportError` if the machine lacks the means.
    """

    @property
    def stages(self) -> tuple[str, ...]:
        """What `as_text` can show of a plan: "llvm", "cuda", "asm"."""
        ...

    def machine(self) -> str:
        """Of what machine the compiled code is: code of another one cannot run here."""
        ...

    def compile(self, plan: Plan) -> Any:
        """The plan compiled, as data that another process can load."""
        ...

    def as_text(self, plan: Plan, stage: str) -> str:
        """What is printed for the machine, at one of the `stages`."""
        ...


class Backend(Compiler, Protocol):
    """Turns plans into native code over NumPy arrays."""

    def load(self, compiled: Any) -> NativeProgram:
        """The plan as one native call."""
        ...

    def load_at(self, compiled: Any, sizes: Mapping[Symbol, int]) -> NativeProgram:
        """The plan for many sizes as one native call for these."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A NumPy array that is not initialised, whose memory was used before."""
        ...

    def divided(self, count: int) -> AbstractContextManager[None]:
        """A context in which `count` threads run programs, and share the CPU."""
        ...


# ---------------------------------------------------------------- devices


class Buffer(Protocol):
    """The memory of one array on a device: C-contiguous, of a type known elsewhere.

    It is given back when nobody holds the object any more, in the order of the
    device's work, so that what was started before may still read it.
    """

    @property
    def pointer(self) -> int:
        """The address on the device; 0 if there are no bytes."""
        ...

    @property
    def nbytes(self) -> int:
        """How many bytes the array has."""
        ...

    @property
    def device(self) -> int:
        """The number of the device."""
        ...


class DeviceProgram(Protocol):
    """A plan that is loaded for devices; `outputs` say how its results are gathered."""

    outputs: tuple[Output, ...]

    def __call__(
        self, inputs: Sequence[Buffer], device: int, donated: Sequence[int] = ()
    ) -> Sequence[Buffer]:
        """Starts the program on a device; gives the plan's output buffers.

        All inputs are on that device. The program may write into the inputs of the
        numbers `donated`, and make outputs of their memory: nobody else reads them any
        more. Functions on the host that it calls have been called when it returns. What
        goes wrong in them, or before anything runs, raises here (`DeviceError`,
        `DeviceMemoryError`), and what goes wrong later when a result is waited for.
        """
        ...


@record
class Found:
    """The devices of a platform, or why it has none.

    `kinds` has what each device is called ("NVIDIA H200"). If there are none, `reason`
    says why not and `fix` what to do about it; `unusable` says that there is hardware
    that should work and does not, of which the user hears without asking.
    """

    kinds: tuple[str, ...]
    reason: str = ""
    fix: str = ""
    unusable: bool = False


@record
class Finding:
    """A line of `fnx.doctor()`: what was looked at, what was found, what to do."""

    what: str
    found: str
    fix: str = ""


class DeviceBackend(Compiler, Protocol):
    """Runs plans on devices that have memory of their own.

    Devices are numbers from 0. Work on one device is in order: what is started first
    is, for whatever is started later, as if it had ended. Nothing but `get`, `wait` and
    `taken` waits for a device. Memory that cannot be had is `errors.DeviceMemoryError`,
    whatever else goes wrong on a device `errors.DeviceError`.
    """

    def found(self) -> Found:
        """The devices that there are; it does not raise."""
        ...

    def findings(self) -> Sequence[Finding]:
        """What `fnx.doctor()` shows of this platform; it does not raise."""
        ...

    @property
    def target(self) -> Target:
        """What the compiler has to know of it."""
        ...

    def load(self, compiled: Any) -> DeviceProgram:
        """The plan as one call, on any device."""
        ...

    def put(self, data: np.ndarray[Any, Any], device: int) -> Buffer:
        """Memory with a copy of a contiguous array, which nobody changes afterwards."""
        ...

    def get(
        self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray[Any, Any]:
        """A new NumPy array with a copy of the memory; waits for it.

        Raises what has gone wrong in a run that made it.
        """
        ...

    def wait(self, buffer: Buffer) -> None:
        """Waits until the memory has its values; raises as `get` does."""
        ...

    def is_ready(self, buffer: Buffer) -> bool:
        """Whether `wait` would not wait."""
        ...

    def moved(self, buffer: Buffer, device: int) -> Buffer:
        """A copy of the memory on another device of the platform, or on the same."""
        ...

    def taken(self, source: Any) -> tuple[Buffer, tuple[int, ...], np.dtype[Any]]:
        """The memory of an array of another library, its shape and dtype.

        `source` has `__cuda_array_interface__` or `__dlpack__`. The buffer keeps it
        alive, and is a copy only if its elements do not lie one after another.
        """
        ...

    def view(self, buffer: Buffer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array of the platform's own library on the memory (CuPy's), no copy.

        It has `__dlpack__`, and keeps the buffer alive. What its library runs on its
        own stream comes after the work that has been started.
        """
        ...

    def stream(self, device: int) -> int:
        """The handle of the stream that a device's work is on."""
        ...

    def communicator(self, member: Any, device: int) -> Any:
        """What meets replicas on other devices, for the one on this device.

        `member` (`fnx.runtime.exchange.Member`) meets their threads, or other processes
        (`fnx.runtime.lines.Joined`); it is what there is where devices have no better
        way.
        """
        ...

    def memory_stats(self, device: int) -> Mapping[str, int]:
        """Bytes: "bytes_in_use", "peak_bytes_in_use", "bytes_limit" and others."""
        ...


# The module of each backend, which is its `BACKEND`; "calls" is that of native calls.
_modules: dict[str, str] = {}

# The platform ("gpu") of each backend that has devices.
_platforms: dict[str, str] = {}


def offer(name: str, module: str, platform: str = "", finding: str = "") -> None:
    """Says in which module the backend of that name is.

    One for a `platform` is a `DeviceBackend`. Whether to load that at all, which may
    take long, is said by the function `glance` of the module `finding`, if there is
    one: `None`, or why there are no devices.
    """
    _modules[name] = module
    if platform:
        _platforms[name] = platform
    if finding:
        _modules[f"{name}.finding"] = finding


def device_platforms() -> dict[str, str]:
    """The platform of each backend that has devices, in the order of the offers."""
    return dict(_platforms)


def backend(name: str = "cpu") -> Backend:
    """The backend of that name, loaded when it is first asked for."""
    found: Backend = _loaded(_modules[name]).BACKEND
    return found


def device_backend(name: str) -> DeviceBackend:
    """The backend of a platform with devices, loaded when it is first asked for."""
    found: DeviceBackend = _loaded(_modules[name]).BACKEND
    return found


@functools.cache
def _loaded(module: str) -> Any:
    """A module with a backend; programs on devices ask at every call."""
    return importlib.import_module(module)


def found_devices(name: str) -> Found:
    """What there is of a platform's devices; `ImportError` without its backend."""
    finding = _modules.get(f"{name}.finding")
    if finding is not None:
        seen: Found | None = importlib.import_module(finding).glance()
        if seen is not None:
            return seen
    return device_backend(name).found()


def native_calls(site: CallSite) -> NativeCalls | None:
    """What makes calls native, where that is possible; it needs no compiler."""
    entry = importlib.import_module(_modules["calls"])
    found: NativeCalls | None = entry.native_calls(site)
    return found
