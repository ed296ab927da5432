"""Every mistake of a kernel is found, and its right neighbour is silent.

Each case is a kernel with a hole; `wrong` in it must be reported with these words,
`right` must run.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np
import pytest

from tests import cuda_emulator as emulator
from tests.cuda_emulator.conftest import on_seeds

pytestmark = pytest.mark.cuda


@dataclass(frozen=True)
class Case:
    """A kernel `f(float* x, float* y, int n)`: x has n numbers, y is not written."""

    name: str
    body: str
    wrong: str
    right: str
    words: tuple[str, ...]
    grid: int = 2
    block: int = 64
    shared: int = 0
    before: str = ""


N = 128
CASES = [
    Case(
        "a read past the end",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[HOLE];",
        "i + 1",
        "i",
        (
            *("kernel f, thread (63, 0, 0) of block (1, 0, 0)", "a read of 4 bytes"),
            *("out of bounds", "0 bytes past the end of the allocation of 512 bytes"),
        ),
    ),
    Case(
        "a write below the start",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; y[i - HOLE] = x[i];",
        "1",
        "0",
        ("thread (0, 0, 0) of block (0, 0, 0)", "a write of 4 bytes", "out of bounds"),
    ),
    Case(
        "a null pointer",
        "const float* p = HOLE; y[threadIdx.x + 64 * blockIdx.x] = *p;",
        "nullptr",
        "x",
        ("out of bounds", "a null pointer"),
    ),
    Case(
        "past the end of a shared array",
        """
        __shared__ float s[64];
        s[threadIdx.x + HOLE] = 1;
        __syncthreads();
        y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x + HOLE];
        """,
        "1",
        "0",
        ("index out of bounds at line 3", "index 64 of an array 'float [64]'"),
    ),
    Case(
        "past the end of a thread's own array",
        """
        float mine[4];
        for (int k = 0; k < 4; ++k) mine[k] = x[k];
        y[blockIdx.x * 64 + threadIdx.x] = mine[(int)threadIdx.x % 4 HOLE];
        """,
        "- 1",
        "",
        ("index out of bounds", "index -1 of an array 'float [4]'"),
    ),
    Case(
        "from one shared array into the next",
        """
        __shared__ float s[64], t[64];
        __shared__ float u[64];
        float* all[] = {s, t, u};
        for (int k = 0; k < 3; ++k) all[k][threadIdx.x] = 1;
        __syncthreads();
        for (int k = 0; k < 3; k += 2) y[blockIdx.x * 64 + threadIdx.x] = all[k][HOLE];
        """,
        "(int)threadIdx.x - 1",
        "threadIdx.x",
        ("a read of 4 bytes", "out of bounds", "shared memory"),
    ),
    Case(
        "past the end of dynamic shared memory",
        "extern __shared__ float s[]; s[threadIdx.x + HOLE] = 1;",
        "1",
        "0",
        ("out of bounds", "byte 256 of the dynamic shared memory"),
        shared=256,
    ),
    Case(
        "memory that nobody has written",
        "int i = blockIdx.x * 64 + threadIdx.x; HOLE; y[i] += x[i];",
        "",
        "y[i] = 0",
        ("a read of 4 bytes", "memory that nobody has written"),
    ),
    Case(
        "shared memory keeps nothing from block to block",
        """
        __shared__ float s[64];
        if (HOLE) s[threadIdx.x] = 1;
        y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];
        """,
        "blockIdx.x == 0",
        "true",
        ("nobody has written", "of the shared array s (256 bytes)"),
    ),
    Case(
        "a missing barrier after a write",
        """
        __shared__ float s[64];
        s[threadIdx.x] = x[threadIdx.x];
        HOLE;
        y[blockIdx.x * 64 + threadIdx.x] = s[(threadIdx.x + 32) % 64];
        """,
        "__syncwarp()",
        "__syncthreads()",
        (),
    ),
    Case(
        "a missing barrier before the next write",
        """
        __shared__ float s[64];
        int i = threadIdx.x;
        float sum = 0;
        for (int k = 0; k < 3; ++k) {
          s[i] = x[i] * k;
          __syncthreads();
          sum += s[63 - i];
          HOLE;
        }
        y[blockIdx.x * 64 + i] = sum;
        """,
        "",
        "__syncthreads()",
        ("is a race", "of the shared array s"),
    ),
    Case(
        "many readers and then a writer",
        """
        __shared__ float s;
        if (threadIdx.x == 0) s = x[0];
        __syncthreads();
        float v = s;
        HOLE;
        if (threadIdx.x == 0) s = v + 1;
        __syncthreads();
        y[blockIdx.x * 64 + threadIdx.x] = s + v;
        """,
        "__syncwarp()",
        "__syncthreads()",
        ("a write of 4 bytes", "is a race", "has read it"),
    ),
    Case(
        "a missing __syncwarp between the threads of a warp",
        """
        __shared__ float s[64];
        s[threadIdx.x] = x[threadIdx.x];
        HOLE;
        y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x ^ 1];
        """,
        "",
        "__syncwarp()",
        (),
    ),
    Case(
        "a shuffle is no fence",
        """
        __shared__ float s[64];
        s[threadIdx.x] = x[threadIdx.x];
        float v = __shfl_xor_sync(~0u, x[threadIdx.x], 1);
        HOLE;
        y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x ^ 1] + v;
        """,
        "",
        "__syncwarp()",
        ("is a race",),
    ),
    Case(
        "two threads write one element",
        "y[blockIdx.x * 64 + threadIdx.x / HOLE] = x[threadIdx.x];",
        "2",
        "1",
        ("a write of 4 bytes", "is a race", "has written it"),
    ),
    Case(
        "two blocks write one element",
        "y[threadIdx.x + HOLE * blockIdx.x] = x[threadIdx.x];",
        "0",
        "64",
        ("is a race", "of block (0, 0, 0)", "of block (1, 0, 0)", "has written it"),
    ),
    Case(
        "one block reads what another one writes",
        """
        float v = x[HOLE * 64 + threadIdx.x];
        x[blockIdx.x * 64 + threadIdx.x] = v + 1;
        """,
        "(1 - blockIdx.x)",
        "blockIdx.x",
        ("a read of 4 bytes", "is a race", "has written it"),
    ),
    Case(
        "an atomic and a plain write",
        "if (threadIdx.x < 63) atomicAdd(x, 1.0f); else HOLE;",
        "x[0] = 5",
        "atomicExch(x, 5.0f)",
        ("is a race",),
        grid=1,
    ),
    Case(
        "bytes of one word are not each other's",
        """
        char* bytes = (char*)x;
        bytes[threadIdx.x HOLE] = 1;
        """,
        "/ 2",
        "",
        ("a write of 1 bytes", "is a race"),
        grid=1,
    ),
    Case(
        "the last block reads what the others have written",
        """
        int* count = (int*)x;
        __shared__ int last;
        y[blockIdx.x * 64 + threadIdx.x] = 1;
        HOLE;
        __syncthreads();
        if (threadIdx.x == 0) last = atomicAdd(count, 1) == gridDim.x - 1;
        __syncthreads();
        if (last) {
          __threadfence();
          float sum = 0;
          for (int k = threadIdx.x; k < n; k += 64) sum += y[k];
          x[1 + threadIdx.x] = sum;
        }
        """,
        "",
        "__threadfence()",
        ("a read of 4 bytes", "is a race", "of block"),
        before="zero",
    ),
    Case(
        "a vector that is not aligned",
        """
        struct __align__(16) Four { float x, y, z, w; };
        int i = blockIdx.x * 64 + threadIdx.x;
        if (i < 31) ((Four*)(y + HOLE))[i] = ((Four*)x)[i];
        """,
        "1",
        "0",
        ("not aligned", "of 16 bytes"),
    ),
    Case(
        "a number that is not aligned",
        "if (threadIdx.x == 3) *(double*)((char*)x + HOLE) = 1;",
        "4",
        "8",
        ("not aligned",),
        grid=1,
    ),
    Case(
        "a barrier that some threads do not reach",
        "if (HOLE) __syncthreads(); y[blockIdx.x * 64 + threadIdx.x] = 1;",
        "threadIdx.x < 32",
        "blockIdx.x == 0",
        ("divergent barrier", "left the kernel without arriving at the barrier"),
    ),
    Case(
        "a thread that leaves before a barrier",
        "if (HOLE) return; __syncthreads(); y[blockIdx.x * 64 + threadIdx.x] = 1;",
        "threadIdx.x == 7",
        "blockIdx.x == 1",
        ("divergent barrier", "thread 7 left the kernel"),
    ),
    Case(
        "two barriers at once",
        """
        if (HOLE) {
          __syncthreads();
        } else {
          __syncthreads();
        }
        """,
        "threadIdx.x % 2",
        "blockIdx.x",
        ("divergent barrier", "another thread of the block waits at another barrier"),
    ),
    Case(
        "a shuffle that some threads do not reach",
        """
        int v = 0;
        if (HOLE) v = __shfl_xor_sync(~0u, 1, 1);
        __syncthreads();
        y[blockIdx.x * 64 + threadIdx.x] = v;
        """,
        "threadIdx.x % 32 < 16",
        "threadIdx.x < 32",
        ("divergent warp", "__shfl_xor_sync", "waits in __syncthreads", "ffffffff"),
    ),
    Case(
        "two masks",
        "__syncwarp(HOLE);",
        "threadIdx.x % 2 ? ~0u : 0x7fffffffu",
        "threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u",
        ("divergent warp", "mask"),
    ),
    Case(
        "a mask without the thread itself",
        "__syncwarp(1u << (threadIdx.x + HOLE) % 32);",
        "1",
        "0",
        ("divergent warp", "not in its mask"),
    ),
    Case(
        "a shuffle from a lane that takes no part",
        """
        if (threadIdx.x % 32 < 16)
          y[blockIdx.x * 64 + threadIdx.x] = __shfl_sync(0xffffu, 1.0f, HOLE);
        """,
        "20",
        "12",
        ("bad lane", "reads lane 20", "takes no part"),
    ),
    Case(
        "the active mask is not to be relied on",
        """
        unsigned mask = HOLE;
        float v = __shfl_sync(mask, (float)threadIdx.x, 0);
        y[blockIdx.x * 64 + threadIdx.x] = v;
        """,
        "__activemask()",
        "~0u",
        ("bad lane", "takes no part"),
    ),
    Case(
        "an integer division by zero",
        "y[blockIdx.x * 64 + threadIdx.x] = 5 / ((int)x[threadIdx.x] HOLE);",
        "",
        "+ 1",
        ("divided by zero",),
    ),
    Case(
        "a stack that overflows",
        """
        struct Deep {
          static __device__ __noinline__ int go(int n) {
            volatile int room[1000];
            room[n % 1000] = n;
            return n ? go(n - 1) + room[n % 1000] : 0;
          }
        };
        y[blockIdx.x * 64 + threadIdx.x] = Deep::go(HOLE);
        """,
        "1000",
        "10",
        ("uses more than 256 KB of local memory",),
    ),
    Case(
        "a number that was never set is not zero",
        """
        float sum HOLE;
        for (int k = 0; k < 3; ++k) sum += x[k];
        if (sum != 3) x[N_PAST] = 1;
        """.replace("N_PAST", "100000"),
        "",
        "= 0",
        ("out of bounds",),
    ),
    Case(
        "a wait that nobody ends",
        "if (threadIdx.x == 0) HOLE (atomicAdd((int*)x, 0) == 0);",
        "while",
        "if",
        ("waits for ever",),
        before="zero",
        grid=1,
        block=32,
    ),
]


def run(launch, case, hole):
    text = (
        'extern "C" __global__ void f(float* x, float* y, int n) {'
        + case.body.replace("HOLE", hole)
        + "}"
    )
    x = np.zeros(N, np.float32) if case.before else np.arange(N, dtype=np.float32)
    a, b = launch.put(x), launch.empty(4 * N)
    launch(text, case.grid, case.block, a, b, np.int32(N), shared=case.shared)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_kernels_run(launch, case):
    run(launch, case, case.right)
    assert emulator.machine().findings == []


TRAPS = platform.machine() == "x86_64"  # elsewhere x / 0 is a number
WRONG = [case for case in CASES if TRAPS or case.name != "an integer division by zero"]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_wrong_kernels_are_found(cupy, launch, case):
    with pytest.raises((emulator.Finding, cupy.cuda.runtime.CUDARuntimeError)) as error:
        run(launch, case, case.wrong)
    for word in case.words:
        assert word in str(error.value)
    (text,) = emulator.machine().findings
    assert "kernel f" in text


def test_results_of_races_depend_on_the_seed():
    """Where accesses cannot be seen as a race, the order of threads still varies."""
    text = (
        'extern "C" __global__ void f(float* x) { atomicExch(x, (float)threadIdx.x); }'
    )

    def check(launch):
        out = launch.put(np.zeros(1, np.float32))
        launch(text, 1, 64, out)
        return float(launch.get(out, np.float32, 1)[0])

    assert len(set(on_seeds(check))) > 1
