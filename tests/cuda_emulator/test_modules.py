"""Texts become modules: what is rewritten, kept and refused."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.cuda_emulator import modules, native

pytestmark = pytest.mark.cuda


def test_kernels_are_found_in_a_text(cupy):
    text = """
    // __global__ void commented(int) {}
    /* __global__ void
       this_too(int) {} */
    template <int n> struct Size { static constexpr int value = n; };
    extern "C" __global__ void declared(int x);
    extern "C" __global__ void plain(int* out) { out[0] = 1; }
    extern "C" __global__ void __launch_bounds__(Size<64>::value * 2, 3)
    bounded(int* out) { out[0] = 2; }
    extern "C" __launch_bounds__(32) __global__ void before(int* out) { out[0] = 3; }
    __global__ void not_c(int* out) { out[0] = 4; }
    """
    kernels = modules.load(cupy.compile_text(text)).kernels
    bounds = {name: kernel.bounds for name, kernel in kernels.items()}
    assert bounds == {
        "plain": (0, 0),
        "bounded": (128, 3),
        "before": (32, 0),
        "not_c": (0, 0),
    }


def test_sizes_of_parameters_and_shared_arrays(cupy):
    text = """
    struct P { float* x; short n; };
    __device__ float helper(float x) {
      __shared__ float inside[3];
      inside[0] = x;
      __syncthreads();
      return inside[0];
    }
    extern "C" __global__ void f(const P p, char c, double d) {
      __shared__ double big[100];
      big[threadIdx.x] = d;
      __syncthreads();
      p.x[threadIdx.x] = helper(big[0]);
    }
    extern "C" __global__ void g(float* x) { x[0] = helper(1); }
    """
    kernels = modules.load(cupy.compile_text(text)).kernels
    assert kernels["f"].sizes == (16, 1, 8)
    assert {(name, size) for name, _, size in kernels["f"].shared} == {
        ("big", 800),
        ("inside", 12),
    }
    assert kernels["f"].static_shared == 812
    assert kernels["g"].static_shared == 12


def test_errors_have_the_line_of_the_text(cupy):
    text = 'extern "C" __global__ void f(int* out) {\n  out[0] = unknown;\n}\n'
    with pytest.raises(cupy.cuda.compiler.CompileException) as error:
        cupy.compile_text(text)
    assert "kernel:2:12: error: ‘unknown’ was not declared" in str(error.value)
    assert error.value.source == text


def test_texts_do_not_meet(cupy, launch):
    """Two modules with the same names, and names of the C library."""
    text = """
    __device__ int scale = %d;
    __device__ int square(int x) { return x * x * scale; }
    extern "C" __global__ void malloc(int* out) { out[0] = square(3); }
    """
    out = launch.empty(8)
    for n, value in enumerate((1, 2)):
        function = launch.function(text % value, "malloc")
        launch.start(function, 1, 1, np.uint64(out.ptr + 4 * n))
    np.testing.assert_array_equal(launch.get(out, np.int32, 2), [9, 18])


def test_a_second_compilation_is_read_from_the_folder(cupy, monkeypatch):
    text = 'extern "C" __global__ void kept(int* out) { out[0] = 1; }'
    first = cupy.compile_text(text)
    monkeypatch.setattr(native, "COMPILER", "no-such-compiler")
    assert cupy.compile_text(text) == first
    assert cupy.compile_texts([text, text]) == [first, first]
    with pytest.raises(FileNotFoundError):
        cupy.compile_text(text + "// another")


def test_only_what_was_compiled_here_is_loaded(cupy):
    module = cupy.cuda.function.Module()
    for cubin in (b"\x7fELF", modules.MAGIC + b"/nowhere.so"):
        with pytest.raises(cupy.cuda.driver.CUDADriverError, match="INVALID_IMAGE"):
            module.load(cubin)


def test_a_machine_without_a_compiler_says_so(monkeypatch):
    reason = native.reason_missing.__wrapped__
    monkeypatch.setattr(native, "OLDEST", 99)
    assert "needs g++ 99, this one is" in reason()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "compiles kernels with g++, which is missing" in reason()


def test_importing_starts_nothing():
    code = "import sys, tests.cuda_emulator; print('cupy' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_names_of_cupy(cupy):
    """Where CuPy itself is installed, the emulator's names are CuPy's."""
    real = pytest.importorskip("cupy", reason="compares with CuPy's own names")
    own = {"EMULATES", "compile_text", "compile_texts"}
    assert [n for n in vars(cupy) if n not in own and not hasattr(real, n)] == []
    cuda = [n for n in vars(cupy.cuda) if not n.startswith("__")]
    assert [n for n in cuda if not hasattr(real.cuda, n)] == []
