"""Failures on request: the n-th allocation, compilation or launch from now fails.

    inject.out_of_memory(after=2)     # two allocations succeed, the third fails
    inject.compile_error(match="f32") # texts with these letters do not compile
    inject.launch_error(after=0)      # the next launch fails
    inject.device_lost()              # every call fails, until the machine is reset
    inject.clear()

Next: errors.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from .machine import machine


@dataclass
class _Plan:
    """What shall fail; numbers count down, None is never."""

    allocations: int | None = None
    always_out_of_memory: bool = False
    compile_match: str | None = None
    launches: int | None = None


_plan = _Plan()


def out_of_memory(after: int = 0, always: bool = True) -> None:
    """Let `after` allocations succeed; then all fail, or only one."""
    _plan.allocations, _plan.always_out_of_memory = after, always


def compile_error(match: str = "") -> None:
    """Refuse the texts that contain `match`."""
    _plan.compile_match = match


def launch_error(after: int = 0) -> None:
    """Let `after` launches succeed; the next one fails at the call."""
    _plan.launches = after


def device_lost() -> None:
    """Every later call fails."""
    here = machine()
    here.error = 719, "the device is lost (injected)"
    here.drop_work()


def clear() -> None:
    """Nothing shall fail any more; an error that has happened stays."""
    global _plan
    _plan = _Plan()


def allocation_fails() -> bool:
    """Asked by every allocation."""
    if _plan.allocations is None:
        return False
    if _plan.allocations > 0:
        _plan.allocations -= 1
        return False
    if not _plan.always_out_of_memory:
        _plan.allocations = None
    return True


def compilation_fails(text: str) -> bool:
    """Asked by every compilation."""
    return _plan.compile_match is not None and _plan.compile_match in text


def launch_fails() -> bool:
    """Asked by every launch."""
    if _plan.launches is None:
        return False
    if _plan.launches > 0:
        _plan.launches -= 1
        return False
    _plan.launches = None
    return True
