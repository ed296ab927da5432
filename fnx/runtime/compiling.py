"""Compiling: from a program to native code, or from the disk cache straight to it.

Receives a `Program`; gives the loaded code and, if it was compiled here, its plan. What
is compiled is kept on disk under the program's digest, the machine's name, and the
versions of everything that has a say in the code. This module is loaded with the first
program that runs compiled, and the compiler with it. Next on the walk: `plan.py`.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fnx import cache as disk
from fnx import errors
from fnx.compiler.inline import inline
from fnx.compiler.pipeline import plan_program
from fnx.compiler.target import CPU, Target
from fnx.config import config
from fnx.core.digest import program_digest
from fnx.core.program import Eqn, Program
from fnx.kernel.printer import kernel_text
from fnx.runtime.backend import (
    Compiler,
    DeviceProgram,
    NativeProgram,
    backend,
    device_backend,
)
from fnx.runtime.plan import HostStep, Plan, all_steps
from fnx.sizes import Undecided

__all__ = [
    "compiled",
    "compiled_for",
    "inlined_for",
    "plan_for",
    "stage_text",
    "stages_of",
]


def compiled(program: Program) -> tuple[NativeProgram | None, Plan | None]:
    """The native code of a program, and its plan if it had to be compiled.

    Without LLVM there is neither, and one warning.
    """
    try:
        return _loaded_or_made(program, "cpu", backend("cpu"))
    except ImportError as error:
        _warn_once(str(error))
        return None, None


def compiled_for(program: Program, name: str) -> tuple[DeviceProgram, Plan | None]:
    """A program loaded for the devices of a backend, and its plan, as `compiled`.

    Raises `DeviceError` where the means are missing.
    """
    try:
        return _loaded_or_made(program, name, device_backend(name))
    except ImportError as error:
        raise errors.DeviceError(
            errors.explain(
                f"a program cannot be compiled for {name}",
                f"{error}",
                "fnx.doctor() shows what is missing",
            )
        ) from error


def _loaded_or_made(program: Program, name: str, target: Any) -> Any:
    key = _key(program, name, target)
    found = None if key is None else _loaded(key, target.load)
    if found is not None:
        return found, None
    plan = plan_for(program, name)
    code = target.compile(plan)
    if key is not None:
        _keep(key, code)
    return target.load(code), plan


def compiled_for_sizes(program: Program) -> Any:
    """A program for many sizes, compiled for the CPU; raises `Undecided`.

    `None` without LLVM, after one warning.
    """
    target = backend("cpu")
    try:
        key = _key(program, "sizes", target)
        found = None if key is None else _loaded(key, lambda code: code)
        if found is not None:
            return found
        plan = plan_for(program, "cpu")
        for step in all_steps(plan):
            if isinstance(step, HostStep) and any(
                isinstance(value, Program) for value in step.params.values()
            ):
                raise Undecided(f"{step.primitive.name} holds programs")
        code = target.compile(plan)
    except ImportError as error:
        _warn_once(str(error))
        return None
    if key is not None:
        _keep(key, code)
    return code


def plan_for(program: Program, name: str) -> Plan:
    """The plan of a program for a backend, which may have kernels of its own kind."""
    return plan_program(program, _target(name))


def _target(name: str) -> Target:
    return CPU if name == "cpu" else device_backend(name).target


def inlined_for(
    program: Program, name: str, kept: Callable[[Eqn], bool] | None
) -> Program:
    """A program as the compiler of a backend sees it, but for equations to be kept."""
    return inline(program, _target(name), kept)


def stage_text(plan: Plan, stage: str, name: str) -> str:
    """A plan at a stage: "plan", "kernel", or what the backend prints."""
    if stage == "plan":
        return str(plan)
    if stage == "kernel":
        return "\n\n".join(map(kernel_text, plan.kernels))
    target: Compiler = backend("cpu") if name == "cpu" else device_backend(name)
    return target.as_text(plan, stage)


def stages_of(name: str) -> tuple[str, ...]:
    """What a backend prints; nothing if it is not there."""
    try:
        target: Compiler = backend("cpu") if name == "cpu" else device_backend(name)
    except ImportError:
        return ()
    return target.stages


@lru_cache(maxsize=1)
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"fnx runs without its compiler, by NumPy, since LLVM is not there ({reason}); "
        "install llvmlite to compile",
        RuntimeWarning,
        stacklevel=2,
    )


# ---------------------------------------------------------------- on disk


def _key(program: Program, name: str, target: Compiler) -> str | None:
    """Under what a program is kept; `None` for one that later processes cannot have."""
    digest = program_digest(program) if config.disk_cache else None
    if digest is None:
        return None
    return disk.key(digest, name, target.machine(), _versions(type(target).__module__))


@cache
def _versions(module: str) -> str:
    """What the code of a program depends on besides the program and the machine.

    `module` is that of the backend.
    """
    package = sys.modules[module.partition(".")[0]]
    folders = {Path(__file__).parent.parent, *map(Path, package.__path__)}
    # Of a version in development, files change and the number does not.
    states = [_state(folder, path) for folder in folders for path in _sources(folder)]
    return " ".join([f"numpy {np.__version__}", *sorted(states)])


def _sources(folder: Path) -> list[Path]:
    return list(folder.rglob("*.py"))


def _state(folder: Path, path: Path) -> str:
    status = os.stat(path)
    file = path.relative_to(folder.parent)
    return f"{file} {status.st_size} {status.st_mtime_ns}"


def _loaded(key: str, load: Callable[[Any], Any]) -> Any:
    """The code that is kept under a key, if it is there and can be loaded."""
    if config.debug >= 2:  # whoever wants to see the compiler wants it to work
        return None
    content = disk.load(key)
    try:
        return None if content is None else load(_Reader(content).load())
    except Exception:  # whatever is wrong with it, it is compiled anew and replaced
        return None


def _keep(key: str, code: Any) -> None:
    try:
        content = pickle.dumps(code, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return  # a host step holds what cannot be written
    disk.store(key, content)


class _Reader(pickle.Unpickler):
    """Reads what was kept; it makes nothing but fnx's data, dtypes and numbers."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))

    def find_class(self, module: str, name: str) -> Any:
        known = module.startswith(("fnx.", "fnx_cuda.")) or (module, name) in _NUMPY
        if not known:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


# What NumPy's dtypes and scalars are made of.
_NUMPY = frozenset(
    {
        ("numpy", "dtype"),
        ("ml_dtypes", "bfloat16"),
        (np.float32(0).__reduce__()[0].__module__, "scalar"),
    }
)
