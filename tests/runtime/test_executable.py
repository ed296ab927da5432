"""Running compiled programs: callbacks, errors, threads, and life without LLVM."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.core.primitive import Primitive
from fnx.core.types import ArrayType
from fnx.runtime import compiling
from fnx.runtime.executable import Executable, executable_for


class _Failing(Primitive):
    """Raises when it runs; it has no native code, so a plan calls it back."""

    def infer(self, x: ArrayType) -> ArrayType:
        return x

    def reference(self, x: Any) -> Any:
        if x.sum() > 100:
            raise ZeroDivisionError(f"sum {x.sum()}")
        return x * 2


failing = _Failing("test_failing")


def run(function: Any, *arrays: Any) -> Any:
    inputs = [fnx.numpy.asarray(a) for a in arrays]
    return executable_for(fnx.make_jaxpr(function)(*inputs)).run(inputs)


def test_a_host_step_runs_in_the_middle_of_a_plan() -> None:
    x = np.arange(6, dtype="f4").reshape(2, 3)
    (found,) = run(lambda a: failing(a + 1) * a, x)
    np.testing.assert_array_equal(np.asarray(found), (x + 1) * 2 * x)


def test_an_error_in_a_host_step_reaches_the_caller_and_leaves_all_usable() -> None:
    def function(a: Any) -> Any:
        return failing(a * 1.5) + 1

    x = np.full(10, 3, "f4")
    with pytest.raises(ZeroDivisionError, match=r"sum 450\.0"):
        run(function, x * 10)
    (found,) = run(function, x)
    np.testing.assert_array_equal(np.asarray(found), x * 3 + 1)


def test_threads_may_run_one_executable_at_once() -> None:
    def function(a: Any) -> Any:
        return fnx.numpy.sin(a @ a) @ a

    inputs = [np.full((40, 40), n / 400, "f4") for n in range(8)]
    wanted = [np.asarray(run(function, x)[0]) for x in inputs]
    problems: list[int] = []

    def work(n: int) -> None:
        for _ in range(20):
            if not np.array_equal(np.asarray(run(function, inputs[n])[0]), wanted[n]):
                problems.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_equal_programs_share_an_executable() -> None:
    x = fnx.numpy.zeros(3)
    first = executable_for(fnx.make_jaxpr(lambda a: a * 2 + 1)(x))
    second = executable_for(fnx.make_jaxpr(lambda b: b * 2 + 1)(x))
    assert first is second


def test_each_stage_can_be_printed() -> None:
    built = executable_for(fnx.make_jaxpr(lambda a: a * 2 + 1)(fnx.numpy.zeros(30)))
    assert "mul a 2.0" in built.as_text("program")
    assert "kernel" in built.as_text("plan")
    assert "for i0 in 0..30" in built.as_text("kernel")
    assert "fmul <" in built.as_text("llvm")
    assert "run" in built.as_text("asm")
    assert "__global__" in built.as_text("cuda")  # which needs no device
    with pytest.raises(errors.OptionError, match=r"'spirv'.*program, plan, kernel"):
        built.as_text("spirv")


def test_without_llvm_programs_run_by_reference_after_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoLlvm:
        def compile(self, plan: Any) -> Any:
            raise ImportError("No module named 'llvmlite'")

    monkeypatch.setattr(compiling, "backend", lambda name: NoLlvm())
    compiling._warn_once.cache_clear()
    x = fnx.numpy.arange(4.0)
    programs = [fnx.make_jaxpr(lambda a, n=n: a * 2 + n)(x) for n in range(2)]
    with pytest.warns(RuntimeWarning, match="llvmlite") as caught:
        first = executable_for.__wrapped__(programs[0])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = executable_for.__wrapped__(programs[1])
    assert isinstance(first, Executable)
    (found,) = second.run([x])
    np.testing.assert_array_equal(np.asarray(found), np.arange(4) * 2 + 1)
    with pytest.raises(errors.OptionError, match="without a compiler"):
        first.as_text("llvm")
