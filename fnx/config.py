"""The process-wide options, as attributes of one object: `fnx.config`.

Receives assignments (`fnx.config.strong_zero = False`) and the environment variables of
the table; every name, type and range is checked. To add an option,
add one row to `OPTIONS` and one annotation to `Config`. Default dtypes are no option:
they are scoped (`fnx.default_dtypes`). Next on the walk: `fnx/dtypes.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fnx.errors import ArgumentError, OptionError, hide_frames
from fnx.records import record


@record
class Option:
    """One row of the option table; `values` lists what an integer option may be."""

    default: Any
    meaning: str
    variable: str | None = None
    values: range | None = None

    def validate(self, name: str, value: object) -> Any:
        """The value in the option's own type, or an error that names the option."""
        kind = type(self.default)
        if type(value) is not kind:
            raise ArgumentError(
                f"fnx.config.{name} takes {kind.__name__} ({self.meaning}), got "
                f"{value!r} of type {type(value).__name__}."
            )
        if self.values is not None and value not in self.values:
            raise OptionError(
                f"fnx.config.{name} takes {self.values[0]} to {self.values[-1]} "
                f"({self.meaning}), got {value}."
            )
        return value

    def parse(self, text: str) -> Any:
        """The value that an environment variable's text means."""
        if not text.strip().isdecimal():
            raise OptionError(f"{self.variable} takes a number, got {text!r}.")
        number = int(text)
        return bool(number) if isinstance(self.default, bool) else number


class ChoiceOption(Option):
    """One of several names; `None` is one where it is the default."""

    __slots__ = ("names",)
    names: tuple[str, ...]

    def __init__(
        self, default: str | None, meaning: str, names: tuple[str, ...], variable: str
    ) -> None:
        super().__init__(default, meaning, variable)
        object.__setattr__(self, "names", names)

    def validate(self, name: str, value: object) -> Any:
        """The value, if it is one of the names."""
        if value == self.default or value in self.names:
            return value
        known = ", ".join(map(repr, self.names))
        raise OptionError(
            f"fnx.config.{name} is one of {known} ({self.meaning}), not {value!r}."
        )

    def parse(self, text: str) -> Any:
        """The name; the default is said by an empty text."""
        return text.strip() or self.default


class DeviceOption(Option):
    """A device, or the name of a platform or device ("cpu", "gpu", "cuda:1")."""

    __slots__ = ()

    def validate(self, name: str, value: object) -> Any:
        """The value as it is: which devices there are is not known here."""
        if value is None or isinstance(value, str) or hasattr(value, "platform"):
            return value
        raise ArgumentError(
            f"fnx.config.{name} takes a device, a name such as 'cpu' or 'cuda:1', or "
            f"None ({self.meaning}), got {value!r} of type {type(value).__name__}."
        )

    def parse(self, text: str) -> Any:
        """The name of a device; nothing is said by an empty text."""
        return text.strip() or None


class SecondsOption(Option):
    """A time in seconds, whole or not."""

    __slots__ = ()

    def validate(self, name: str, value: object) -> float:
        """The value, if it is a time that somebody can wait."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentError(
                f"fnx.config.{name} takes a number ({self.meaning}), got {value!r} of "
                f"type {type(value).__name__}."
            )
        if not 0 < value < 2**20:
            raise OptionError(
                f"fnx.config.{name} takes more than 0 and less than 2**20 "
                f"({self.meaning}), got {value}."
            )
        return value

    def parse(self, text: str) -> float:
        """The number that the text is."""
        try:
            seconds = float(text)
        except ValueError:
            raise OptionError(
                f"{self.variable} takes a number, got {text!r}."
            ) from None
        return int(seconds) if seconds.is_integer() else seconds


OPTIONS: Mapping[str, Option] = {
    "strong_zero": Option(
        True, "an exactly zero tangent or cotangent times inf or nan is zero"
    ),
    "debug": Option(
        0,
        "1 timings, 2 programs, 3 groups and plans, 4 kernels, 5 LLVM IR or CUDA C, "
        "6 assembly; any level shows fnx's own frames in tracebacks",
        variable="FNX_DEBUG",
        values=range(7),
    ),
    "disk_cache": Option(
        True, "compiled programs are kept on disk", variable="FNX_DISK_CACHE"
    ),
    "cache_megabytes": Option(
        1024,
        "what the disk cache holds at most, in MiB",
        variable="FNX_CACHE_MEGABYTES",
        values=range(1, 2**20),
    ),
    "debug_nans": Option(
        False,
        "a NaN in a result is an error that names the operation that made it",
        variable="FNX_DEBUG_NANS",
    ),
    "debug_infs": Option(
        False,
        "an infinity in a result is an error that names the operation that made it",
        variable="FNX_DEBUG_INFS",
    ),
    "log_compiles": Option(
        False,
        "what is traced and compiled is shown on standard error",
        variable="FNX_LOG_COMPILES",
    ),
    "explain_cache_misses": Option(
        False,
        "calls of jitted functions that are traced anew say why on standard error",
        variable="FNX_EXPLAIN_CACHE_MISSES",
    ),
    "numpy_dtype_promotion": ChoiceOption(
        "standard",
        "what arrays of different dtypes have in common; strict: nothing",
        ("standard", "strict"),
        "FNX_NUMPY_DTYPE_PROMOTION",
    ),
    "numpy_rank_promotion": ChoiceOption(
        "allow",
        "whether arrays of different ranks are broadcast",
        ("allow", "warn", "raise"),
        "FNX_NUMPY_RANK_PROMOTION",
    ),
    "default_matmul_precision": ChoiceOption(
        None,
        "the precision of products that ask for none",
        ("default", "high", "highest"),
        "FNX_DEFAULT_MATMUL_PRECISION",
    ),
    "default_device": DeviceOption(
        None,
        "where programs run; None is the first GPU, if there is one, else the CPU",
        variable="FNX_DEFAULT_DEVICE",
    ),
    "cpu_devices": Option(
        1,
        "how many CPU devices there are, for pmap and shard_map",
        variable="FNX_CPU_DEVICES",
        values=range(1, 1025),
    ),
    "collective_timeout": SecondsOption(
        300,
        "how many seconds replicas and processes wait for each other at a collective",
        variable="FNX_COLLECTIVE_TIMEOUT",
    ),
    "replicate_uncut": Option(
        False,
        "what jit cannot compute in parts is computed whole on every device",
        variable="FNX_REPLICATE_UNCUT",
    ),
    "check": Option(False, "run the checker after each pass", variable="FNX_CHECK"),
}


# Not empty while native calls must go through Python instead: one element for each
# trace in progress and each bound axis, in any thread, and for each option that looks
# at results. (Appending to a list and popping from it cannot be interrupted by another
# thread; counting in a number can.)
busy: list[None] = []

# One number: how many threads share large work on the host (see `fnx.num_threads`).
threads: list[int] = [1]

_WATCHES = ("debug_nans", "debug_infs")
# What a trace depends on, besides strong_zero, which native calls know.
_TRACED = ("numpy_dtype_promotion", "numpy_rank_promotion", "default_matmul_precision")

# What is called, without arguments, after an option has another value.
changed: dict[str, Callable[[], None]] = {}

# What `Config.update` sets that is no option, since it is scoped: by its name.
scoped: dict[str, Callable[[Any], object]] = {}


class Config:
    """The options of this process; reading one is a plain attribute access.

    >>> from fnx.config import config
    >>> config.strong_zero
    True
    >>> with config.override(strong_zero=False):
    ...     config.strong_zero
    False
    """

    __slots__ = ("_lock", *OPTIONS)

    strong_zero: bool
    debug: int
    disk_cache: bool
    cache_megabytes: int
    debug_nans: bool
    debug_infs: bool
    log_compiles: bool
    explain_cache_misses: bool
    numpy_dtype_promotion: str
    numpy_rank_promotion: str
    default_matmul_precision: str | None
    default_device: Any
    cpu_devices: int
    collective_timeout: float
    replicate_uncut: bool
    check: bool

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        object.__setattr__(self, "_lock", threading.RLock())
        for name, option in OPTIONS.items():
            text = environment.get(option.variable) if option.variable else None
            setattr(self, name, option.default if text is None else option.parse(text))

    def __setattr__(self, name: str, value: object) -> None:
        """Set an option after checking its name, type and range."""
        option = self._option(name)
        with object.__getattribute__(self, "_lock"):
            before = getattr(self, name, option.default)
            object.__setattr__(self, name, option.validate(name, value))
            if name == "debug":
                hide_frames(self.debug == 0)
            if name in (*_WATCHES, *_TRACED):
                usual = option.default
                if (value == usual) != (before == usual):
                    busy.pop() if value == usual else busy.append(None)
            if name in changed and value != before:
                changed[name]()

    def __delattr__(self, name: str) -> None:
        """Refuse: an option always has a value."""
        raise OptionError(f"fnx.config.{name} cannot be deleted; assign its default.")

    def __repr__(self) -> str:
        """The options and their values, one a line."""
        rows = [f"  {name}={getattr(self, name)!r}" for name in OPTIONS]
        return "\n".join(["fnx.config:", *rows])

    @contextmanager
    def override(self, **options: Any) -> Iterator[None]:
        """Set options for a `with` block, in the whole process (all threads)."""
        before = {name: getattr(self, self._known(name)) for name in options}
        try:
            for name, value in options.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def update(self, name: str, val: Any) -> None:
        """Set an option by its name, with "jax_" before it or not.

        For scripts that say `config.update("jax_enable_x64", True)`: that and
        "jax_disable_jit" hold from there on in this thread, "jax_platforms" and
        "jax_platform_name" give the default device. Raises `OptionError` for names
        that are not known, and what assigning the option raises.

        >>> from fnx.config import config
        >>> config.update("jax_debug_nans", False)
        """
        short = name.removeprefix("jax_")
        if short in scoped:
            if type(val) is not bool:
                raise ArgumentError(
                    f"fnx.config.update: {name} takes bool, got {val!r}"
                )
            scoped[short](val)
        elif short in ("platforms", "platform_name"):
            if val is not None and type(val) is not str:
                raise ArgumentError(
                    f"fnx.config.update: {name} takes a name or None, got {val!r}"
                )
            self.default_device = val.split(",")[0] if val else None
        else:
            setattr(self, short, val)

    def _option(self, name: str) -> Option:
        return OPTIONS[self._known(name)]

    def _known(self, name: str) -> str:
        if name not in OPTIONS:
            known = ", ".join(OPTIONS)
            raise OptionError(f"fnx.config has no option {name!r}; it has {known}.")
        return name


config = Config()
"""The options of this process."""


for_any_size: ContextVar[bool] = ContextVar("fnx_for_any_size", default=False)
"""Whether what is traced is to be one program for many sizes of its arrays.

Then nothing may depend on whether a number that follows from a size is an integer, as
the place of a quantile is at some sizes alone (`fnx/numpy/quantiles.py`).
"""


def traced_options() -> tuple[Any, ...]:
    """The options that a trace depends on: a part of what its program is known by."""
    return (
        for_any_size.get(),
        config.strong_zero,
        config.numpy_dtype_promotion,
        config.numpy_rank_promotion,
        config.default_matmul_precision,
    )


def watching() -> bool:
    """Whether results are looked at for NaNs or infinities."""
    return config.debug_nans or config.debug_infs
