"""The thread pool: the same bits for every number of threads, and no way to hang.

The pool is tested through plans, and directly: with parts that a test writes itself.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.compiler.pipeline import plan_program
from fnx.cpu import driver, grain, jit, library, threads, workers
from fnx.cpu.backend import BACKEND
from fnx.cpu.pool import RUNS
from fnx.cpu.threads import MOST_THREADS
from fnx.runtime.plan import KernelStep, Plan

posix = pytest.mark.skipif(sys.platform == "win32", reason="there is no pool")


@pytest.fixture(autouse=True)
def restored():
    """The number of threads as it was before the test."""
    before = fnx.num_threads()
    yield
    fnx.set_num_threads(before)


def bits(array) -> bytes:
    return np.asarray(array).tobytes()


# ---------------------------------------------------------------- the number


@pytest.mark.parametrize(
    ("variable", "expected"),
    [(None, 8), ("3", 3), ("4,2", 4), (" 2 ", 2), ("", 8), ("many", 8), ("0", 8)],
)
def test_default_number(variable, expected):
    assert threads.default_threads(variable, 8) == expected


def test_default_number_has_a_limit():
    assert threads.default_threads("100000", 8) == MOST_THREADS
    assert threads.default_threads(None, 100000) == MOST_THREADS


def printed(code: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_environment_is_honoured():
    assert printed("import fnx; print(fnx.num_threads())", OMP_NUM_THREADS="3") == "3"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has affinity masks")
def test_affinity_mask_is_honoured():
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
        "import fnx; print(fnx.num_threads())"
    )
    assert printed(code, OMP_NUM_THREADS="") == "1"


def test_number_is_set():
    fnx.set_num_threads(3)
    assert fnx.num_threads() == 3
    fnx.set_num_threads(np.int64(2))
    assert fnx.num_threads() == 2
    fnx.set_num_threads(10**9)
    assert fnx.num_threads() == MOST_THREADS


def test_bad_numbers():
    with pytest.raises(
        errors.ArgumentError, match=r"n is a number.*2\.5 of type float"
    ):
        fnx.set_num_threads(2.5)
    with pytest.raises(errors.OptionError, match="at least 1, got 0"):
        fnx.set_num_threads(0)


def test_blas_has_its_threads_back():
    if not library.has_set_threads():
        pytest.skip("SciPy has another BLAS")
    set_threads = library._set_threads()
    set_threads(2)
    f = fnx.jit(lambda x: fnp.sort(x @ x) @ x)  # a step in Python between two products
    x = np.ones((60, 60), np.complex64)
    for _ in range(3):
        np.testing.assert_allclose(f(x), 3600.0)
    assert set_threads(2) == 2  # gives how many there were


def test_plans_that_run_at_once_all_have_one_blas_thread():
    if not library.has_set_threads():
        pytest.skip("SciPy has another BLAS")
    none = ctypes.CFUNCTYPE(None)
    begin, end = [
        none(library.blas_threads_address(name))
        for name in (library.BLAS_BEGIN, library.BLAS_END)
    ]
    set_threads = library._set_threads()
    set_threads(2)
    begin()
    begin()
    end()
    assert set_threads(1) == 1
    end()
    assert set_threads(2) == 2


# ---------------------------------------------------------------- the grain


@pytest.mark.parametrize("nanoseconds", [0.0, 1e3, 7_999.0])
def test_little_work_is_not_cut(nanoseconds):
    assert grain.cut(10_000, 8, nanoseconds) is None


@pytest.mark.parametrize("rounds", [2, 17, 1000, 1001, 10**6 + 3])
@pytest.mark.parametrize("width", [1, 8, 32])
@pytest.mark.parametrize("nanoseconds", [50_000.0, 1e6, 1e12])
def test_chunks_are_whole_vectors_with_enough_work(rounds, width, nanoseconds):
    share = grain.cut(rounds, width, nanoseconds)
    if share is None:
        assert rounds <= width
        return
    assert share.rounds == rounds
    assert share.chunk % width == 0
    assert 0 < share.chunk < rounds
    assert -(-rounds // share.chunk) <= grain.MOST_CHUNKS
    assert share.chunk / rounds * nanoseconds >= grain.CHUNK * 0.99


def plan_of(f, *shapes) -> Plan:
    arguments = [fnx.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return plan_program(fnx.jit(f).trace(*arguments).jaxpr)


def softmax(x):
    e = fnp.exp(x - fnp.max(x, axis=-1, keepdims=True))
    return e / fnp.sum(e, axis=-1, keepdims=True)


def gradients_of_layer_norm(x):
    def loss(x, scale):
        centred = x - fnp.mean(x, axis=-1, keepdims=True)
        variance = fnp.mean(centred * centred, axis=-1, keepdims=True)
        return fnp.sum((centred / fnp.sqrt(variance + 1e-5) * scale) ** 2)

    return fnx.grad(loss, (0, 1))(x, x[0])


PROGRAMS = {
    "elementwise": (lambda x: fnp.tanh(x) * fnp.exp(-x * x), (300_001,)),
    "softmax": (softmax, (301, 517)),
    "layer norm": (gradients_of_layer_norm, (3001, 96)),
    "columns": (lambda x: fnp.sum(x, axis=0), (2000, 517)),
    "narrow columns": (lambda x: fnp.sum(x * x, axis=0), (40_003, 24)),
    "transpose": (lambda x: x.T * 2, (517, 1000)),
    "sum": (lambda x: fnp.sum(x * x) / 3, (1_000_003,)),
    "ragged sum": (lambda x: fnp.sum(x[:, :-1]), (1000, 1000)),
    "max": (fnp.max, (1_000_003,)),
    "any": (lambda x: fnp.any(x > 5), (2_000_000,)),
    "argmax": (fnp.argmax, (1_000_000,)),
    "norm": (lambda x: x / fnp.sqrt(fnp.sum(x * x)), (1_000_000,)),
    "variance": (fnp.var, (1_000_000,)),
    "one row": (softmax, (1, 1_000_000)),
    "half": (lambda x: fnp.sum(x.astype(np.float16)), (1_000_000,)),
    "integers": (lambda x: fnp.sum(x.astype(np.int32)), (1_000_000,)),
    "sliced": (
        lambda x: fnp.sum(lax.dynamic_slice(x, (x[0].astype(int),), (900_000,))),
        (1_000_000,),
    ),
}
each_program = pytest.mark.parametrize(
    ("f", "shape"), PROGRAMS.values(), ids=PROGRAMS.keys()
)


def shared_loops(plan: Plan) -> int:
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    return sum(len(grain.shares(step.kernel)) for step in steps)


@each_program
def test_large_programs_are_shared(f, shape):
    assert shared_loops(plan_of(f, shape))


@pytest.mark.parametrize("shape", [(), (10,), (1000,), (30, 40)])
def test_small_programs_are_not_shared(shape):
    plan = plan_of(lambda x: (x + 1, fnp.sum(x)), shape)
    assert not shared_loops(plan)
    assert "_part" not in BACKEND.as_text(plan, "llvm")


def test_every_phase_of_a_kernel_is_shared():
    assert shared_loops(plan_of(*PROGRAMS["one row"])) == 3


# ---------------------------------------------------------------- results


@posix
@each_program
def test_results_do_not_depend_on_threads(f, shape, rng, monkeypatch):
    plan = plan_of(f, shape)
    x = (rng.standard_normal(shape) * 2).astype(np.float32)
    shared = BACKEND.load(BACKEND.compile(plan))
    assert "_part" in BACKEND.as_text(plan, "llvm")
    results = []
    for n in (1, 2, 3, 16):
        fnx.set_num_threads(n)
        results += [[bits(out) for out in shared([x])] for _ in range(3)]
    monkeypatch.setattr(driver, "shares", lambda kernel: {})
    alone = BACKEND.load(BACKEND.compile(plan))
    assert "_part" not in BACKEND.as_text(plan, "llvm")
    expected = [bits(out) for out in alone([x])]
    assert all(result == expected for result in results)


def test_without_a_pool_kernels_run_as_a_whole(monkeypatch, rng):
    f, shape = PROGRAMS["norm"]
    x = rng.standard_normal(shape).astype(np.float32)
    plan = plan_of(f, shape)
    expected = [bits(out) for out in BACKEND.load(BACKEND.compile(plan))([x])]
    monkeypatch.setattr(driver, "has_pool", lambda: False)
    alone = BACKEND.load(BACKEND.compile(plan))
    assert "_part" not in BACKEND.as_text(plan, "llvm")
    assert [bits(out) for out in alone([x])] == expected


# ---------------------------------------------------------------- the pool itself

# Adds 1 to the number of each of its rounds, after some waiting.
COUNTING = """
define void @part(ptr %numbers, i64 %begin, i64 %end) {
entry:
  br label %round
round:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %add ]
  br label %wait
wait:
  %n = phi i64 [ 0, %round ], [ %n.next, %wait ]
  %n.next = add i64 %n, 1
  fence seq_cst
  %more = icmp ult i64 %n.next, 100
  br i1 %more, label %wait, label %add
add:
  %address = getelementptr i32, ptr %numbers, i64 %i
  %old = load i32, ptr %address
  %new = add i32 %old, 1
  store i32 %new, ptr %address
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, %end
  br i1 %again, label %round, label %after
after:
  ret void
}
"""
_Run = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


class Pool:
    """Runs the counting part."""

    def __init__(self) -> None:
        self.code = jit.load(jit.assemble(COUNTING), ["part"])
        self.part = self.code.address("part")
        self.run, self.run_short = [_Run(workers.run_address(name)) for name in RUNS]

    def count(self, numbers: np.ndarray, chunk: int, short: bool = False) -> None:
        run = self.run_short if short else self.run
        run(self.part, numbers.ctypes.data, numbers.size, chunk)


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool()


@posix
@pytest.mark.parametrize("n", [1, 2, 3, 20])
@pytest.mark.parametrize(("rounds", "chunk"), [(1, 1), (5, 2), (64, 1), (100, 99)])
@pytest.mark.parametrize("short", [False, True])
def test_every_round_runs_once(pool, n, rounds, chunk, short):
    fnx.set_num_threads(n)
    numbers = np.zeros(rounds, np.int32)
    for _ in range(20):
        pool.count(numbers, chunk, short)
    assert (numbers == 20).all()


@posix
def test_several_callers_at_once(pool):
    fnx.set_num_threads(3)
    arrays = [np.zeros(40, np.int32) for _ in range(5)]

    def call(numbers: np.ndarray) -> None:
        for _ in range(300):
            pool.count(numbers, 3)

    callers = [threading.Thread(target=call, args=(a,)) for a in arrays]
    for caller in callers:
        caller.start()
    for n in (1, 4, 2) * 20:
        fnx.set_num_threads(n)
    for caller in callers:
        caller.join()
    assert all((numbers == 300).all() for numbers in arrays)


@posix
def test_others_help(pool):
    """A part that waits for a second thread ends only if there is one."""
    meeting = """
    define void @part(ptr %arrived, i64 %begin, i64 %end) {
      %n = atomicrmw add ptr %arrived, i32 1 seq_cst
      br label %wait
    wait:
      %now = load atomic i32, ptr %arrived seq_cst, align 4
      %both = icmp ult i32 %now, 2
      br i1 %both, label %wait, label %after
    after:
      ret void
    }
    """
    code = jit.load(jit.assemble(meeting), ["part"])
    fnx.set_num_threads(2)
    for _ in range(50):
        arrived = np.zeros(1, np.int32)
        pool.run(code.address("part"), arrived.ctypes.data, 2, 1)
        assert arrived[0] == 2


@posix
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists threads there")
def test_short_work_has_workers_from_the_second_call_in_a_row():
    code = """
import os, time
import numpy as np
import fnx
fnx.set_num_threads(3)
f = fnx.jit(lambda x: x.sum())
x = fnx.numpy.zeros(200_000)
f(x)
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
time.sleep(0.01)
f(x)
alone = threads() - before
deadline = time.monotonic() + 30
while threads() == before and time.monotonic() < deadline:
    f(x)
print(alone, threads() - before)
"""
    assert printed(code, FNX_DISK_CACHE="0") in ("0 1", "0 2")


@posix
def test_the_caller_begins_with_the_first_chunk_and_workers_with_the_last(pool):
    """Parts that wait for each other: two threads have two chunks at a time."""
    meeting = """
    define void @part(ptr %state, i64 %begin, i64 %end) {
      %order = atomicrmw add ptr %state, i32 1 seq_cst
      %place = getelementptr i32, ptr %state, i64 %begin
      %there = getelementptr i32, ptr %place, i64 1
      store i32 %order, ptr %there
      %pair = and i32 %order, -2
      %both = add i32 %pair, 2
      br label %wait
    wait:
      %now = load atomic i32, ptr %state seq_cst, align 4
      %alone = icmp ult i32 %now, %both
      br i1 %alone, label %wait, label %after
    after:
      ret void
    }
    """
    code = jit.load(jit.assemble(meeting), ["part"])
    fnx.set_num_threads(2)
    state = np.zeros(9, np.int32)
    pool.run(code.address("part"), state.ctypes.data, 8, 1)
    turns = state[1:] // 2
    assert turns.tolist() == [0, 1, 2, 3, 3, 2, 1, 0]


# ---------------------------------------------------------------- fork and exit

# The call is native before other threads make it: the Python way of a call goes through
# optree, and the end of the interpreter aborts if a daemon thread is in there.
USE = """
import os, sys, threading, time
import numpy as np
import fnx, fnx.numpy as fnp
fnx.set_num_threads(3)
f = fnx.jit(lambda x: fnp.sum(fnp.tanh(x)))
x = fnp.array(np.random.default_rng(0).standard_normal(500_000).astype("f4"))
expected = [float(f(x)) for _ in range(4)][0]
assert f._paths
"""


@posix
def test_forked_processes_exit_cleanly():
    code = (
        USE
        + """
child = os.fork()
if child == 0:
    sys.exit(0 if float(f(x)) == expected else 1)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""
    )
    assert printed(code, PYTHONWARNINGS="ignore") == "done"


@posix
def test_pool_is_new_after_fork():
    code = (
        USE
        + """
def work():
    while True:
        f(x)
threading.Thread(target=work, daemon=True).start()  # the pool is busy when it forks
for _ in range(20):
    child = os.fork()
    if child == 0:
        same = all(float(f(x)) == expected for _ in range(20))
        threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 3
        os._exit(0 if same and threads == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert float(f(x)) == expected
print("done")
"""
    )
    assert printed(code, PYTHONWARNINGS="ignore") == "done"


@posix
@pytest.mark.parametrize("busy", [False, True])
def test_exit_is_clean(busy):
    code = (
        USE
        + f"""
def work():
    while True:
        f(x)
for _ in range(2 * {busy}):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
print("done")
"""
    )
    for _ in range(2):
        assert printed(code) == "done"
