"""What the demo prints: a table of a run, or one form of its training step.

Receives a `Run`, gives text. Next on the walk: `__main__.py`.
"""

from __future__ import annotations

from typing import Any

from fnx.demo.digits import Run
from fnx.runtime.executable import STAGES, Executable


def executable_of(step: Any, example: tuple[Any, ...]) -> Executable:
    """The compiled training step: equal programs share one executable."""
    executable: Executable = step.trace(*example).entry.executable
    return executable


def stage_text(step: Any, example: tuple[Any, ...], stage: str) -> str:
    """The training step as its program, plan, kernels, LLVM IR or assembly."""
    return executable_of(step, example).as_text(stage)


def table(run: Run, test_images: int) -> str:
    """The run's figures, one a line, and how to see more."""
    executable = executable_of(run.step, run.example)
    rate = run.steps / run.seconds
    rows = [
        ("test accuracy", f"{run.accuracy:.4f} on {test_images} images"),
        ("last training loss", f"{run.loss:.4f}"),
        ("steps", f"{run.steps} in {run.seconds:.2f} s, {rate:.0f} a second"),
        ("trace the step", f"{run.trace_seconds:.3f} s"),
        ("compile the step", f"{executable.compile_seconds:.3f} s"),
        ("kernels", _kernels(executable)),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:{width}}  {value}" for name, value in rows]
    return "\n".join([*lines, "", *_hints()])


def _kernels(executable: Executable) -> str:
    if executable.native is None:
        return "none: llvmlite is missing, so NumPy runs the step"
    plan = executable.plan
    return f"{len(plan.kernels)} different ones in a plan of {len(plan.steps)} steps"


def _hints() -> list[str]:
    return [
        f"See the training step at any stage ({', '.join(STAGES)}):",
        "  python -m fnx.demo digits --show kernel",
        "Or watch the compiler at work: FNX_DEBUG=3 python -m fnx.demo digits",
    ]
