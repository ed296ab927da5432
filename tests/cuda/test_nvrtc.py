"""NVRTC: what it is found by, what it makes of texts, and what its errors say.

No device is needed. Skipped where there is no NVRTC (the wheel nvidia-cuda-nvrtc-cu12).
"""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fnx_cuda import libraries, nvrtc
from fnx_cuda.preamble import PREAMBLE
from fnx_cuda.resources import Resources, resources

ADD = """
struct P { const float* x; float* out; };
extern "C" __global__ void __launch_bounds__(256) add(const __grid_constant__ P p) {
  unsigned i = blockIdx.x * 256u + threadIdx.x;
  p.out[i] = p.x[i] * 3.0f + 1.0f;
}
"""


@pytest.fixture(scope="module")
def compiler():
    try:
        return nvrtc.compiler()
    except nvrtc.CompileError as error:
        pytest.skip(str(error))


def ptx(compiler: nvrtc.Compiler, text: str) -> str:
    return compiler.compile(text, "compute_80").code.decode()


# ---------------------------------------------------------------- what it makes


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_text_becomes_a_cubin(compiler, target):
    made = compiler.compile(ADD, target)
    assert made.code.startswith(b"\x7fELF") and b"add" in made.code
    assert f"'add' for '{target}'" in made.log


def test_a_text_becomes_ptx(compiler):
    code = compiler.compile(ADD, "compute_90").code
    assert code.endswith(b"\0")  # the driver reads up to there
    assert b".target sm_90" in code and b".entry add" in code


def test_arithmetic_is_as_written(compiler):
    text = ptx(compiler, ADD)
    assert "mul.rn.f32" in text and "add.rn.f32" in text  # not contracted, not flushed
    for contracted in ("fma", ".ftz"):
        assert contracted not in text
    divided = ADD.replace("* 3.0f + 1.0f", "/ sqrtf(p.x[i])")
    text = ptx(compiler, divided)
    assert "div.rn.f32" in text and "sqrt.rn.f32" in text and ".approx" not in text


def test_conversions_are_single_instructions(compiler):
    use = """
extern "C" __global__ void f(unsigned short* h, float* x, double* y) {
  x[0] = half_to_float(h[0]);
  x[1] = bfloat16_to_float(h[1]);
  h[2] = float_to_half(x[2]);
  h[3] = double_to_half(y[0]);
  h[4] = float_to_bfloat16(x[3]);
}
"""
    source = "".join(PREAMBLE.values()) + use
    text = ptx(compiler, source)
    for name in ("f32.f16", "rn.f16.f32", "rn.f16.f64", "rn.bf16.f32"):
        assert text.count(f"cvt.{name}") == 1
    for target in ("sm_75", "sm_80", "sm_90"):
        report = resources(compiler.compile(source, target).log)
        assert report["f"].spills == report["f"].stack == 0


def test_headers_are_found_where_a_text_includes_them(compiler):
    if not libraries.header_folders(compiler.version[0]):
        pytest.skip("there are no CUDA headers (the wheel nvidia-cuda-runtime-cu12)")
    text = """
#include <cuda_fp16.h>
extern "C" __global__ void f(__half* x) { x[0] = __float2half(1.5f); }
"""
    assert compiler.compile(text, "sm_80").code.startswith(b"\x7fELF")
    assert not any("include" in option for option in compiler.options(ADD, "sm_80"))


def test_several_threads_compile_at_once(compiler):
    texts = [ADD.replace("3.0f", f"{n}.5f") for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda text: compiler.compile(text, "sm_80").code, texts))
    assert len(set(codes)) == len(texts)
    assert codes == [compiler.compile(text, "sm_80").code for text in texts]


def test_a_compile_leaves_other_threads_the_interpreter(compiler):
    started, ticks = threading.Event(), []

    def count():
        while not started.is_set():
            ticks.append(None)
            started.wait(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = len(ticks)
    compiler.compile(ADD, "sm_80")
    counted = len(ticks) - before
    started.set()
    thread.join()
    assert counted > 3


# ---------------------------------------------------------------- targets


def test_the_target_of_a_device(compiler):
    few = nvrtc.Compiler(None, (12, 1), ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90"))
    wanted = {"80": "sm_80", "86": "sm_86", "87": "sm_86", "89": "sm_86", "75": "sm_75"}
    # of a later generation than NVRTC: the driver goes on from PTX
    wanted |= {"90": "sm_90", "100": "compute_90", "120": "compute_90"}
    assert {own: few.target(own) for own in wanted} == wanted
    with pytest.raises(nvrtc.CompileError, match=r"capability 6\.1: .* 7\.0 and later"):
        few.target("61")
    assert "--minimal" not in few.options(ADD, "sm_80")  # which it does not know
    assert {"sm_80", "sm_90"} <= set(compiler.targets)


def test_the_newest_that_the_driver_can_load_is_taken(tmp_path, monkeypatch):
    paths = {}
    for wheel, major in (("cuda_nvrtc", 12), ("cu13", 13), ("cu14", 14)):
        file = tmp_path / wheel / "lib" / f"libnvrtc.so.{major}"
        file.parent.mkdir(parents=True)
        file.touch()
        paths[major] = str(file)
    monkeypatch.setattr(libraries, "_wheels", lambda: [str(tmp_path)])
    monkeypatch.setattr(libraries, "_of_pathfinder", lambda name: iter(()))
    monkeypatch.setattr(libraries, "_opened", lambda path: path)
    loaded = {newest: libraries.load("nvrtc", newest) for newest in (12, 13, 14, None)}
    assert loaded == {**paths, None: paths[14]}
    assert libraries.load("nvrtc", 9) is None


def test_libraries_whose_numbers_are_behind_those_of_cuda(tmp_path, monkeypatch):
    """cuSOLVER 12 is that of CUDA 13, which a driver of CUDA 12 does not load."""
    wheels = (("cusolver", 11), ("cu13", 12))
    for wheel, major in wheels:
        file = tmp_path / wheel / "lib" / f"libcusolver.so.{major}"
        file.parent.mkdir(parents=True)
        file.touch()
    asked = []

    def opened(path):
        asked.append(path)
        if "/" in path:
            return path
        raise OSError

    monkeypatch.setattr(libraries, "_wheels", lambda: [str(tmp_path)])
    monkeypatch.setattr(libraries, "_of_pathfinder", lambda name: iter(()))
    monkeypatch.setattr(libraries, "_opened", opened)
    assert libraries.load("cusolver", 12).endswith("so.11")
    assert libraries.load("cusolver", 13).endswith("so.12")
    monkeypatch.setattr(libraries, "_wheels", lambda: [])
    asked.clear()
    assert libraries.load("cusolver", 12) is None
    assert asked == ["libcusolver.so.11"]


def test_what_cannot_be_opened_is_passed_over(tmp_path, monkeypatch):
    file = tmp_path / "cu13" / "lib" / "libfnx_nothing.so.13"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no library")
    monkeypatch.setattr(libraries, "_wheels", lambda: [str(tmp_path)])
    assert libraries.load("fnx_nothing") is None


def test_without_nvrtc_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(libraries, "load", lambda name, newest: None)
    nvrtc.compiler.cache_clear()
    try:
        with pytest.raises(nvrtc.CompileError, match="nvidia-cuda-nvrtc-cu12"):
            nvrtc.compiler()
        with pytest.raises(nvrtc.CompileError, match="no NVRTC of CUDA 12 or before"):
            nvrtc.compiler(12)
    finally:
        nvrtc.compiler.cache_clear()


# ---------------------------------------------------------------- errors

BROKEN = {
    "a name": (
        ADD.replace("* 3.0f", "* three"),
        "line 5: p.out[i] = p.x[i] * three + 1.0f;\n"
        'CUDA C for sm_80: identifier "three" is undefined.',
    ),
    "a header": (f"#include <nowhere.h>\n{ADD}", "cannot open source file"),
    "shared memory": (
        ADD.replace(
            "unsigned i",
            "__shared__ float s[20000]; s[threadIdx.x] = p.x[0]; "
            "__syncthreads(); p.out[0] = s[7]; unsigned i",
        ),
        "uses too much shared data",
    ),
    "an instruction": (
        ADD.replace("unsigned i", 'asm("nothing.f32;"); unsigned i'),
        "Not a name of any known instruction: 'nothing'",
    ),
    "an end": (ADD.rstrip().rstrip("}"), 'At end of source: error: expected a "}"'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_errors_name_the_line_and_keep_the_log(compiler, name):
    text, wanted = BROKEN[name]
    with pytest.raises(nvrtc.CompileError) as error:
        compiler.compile(text, "sm_80")
    assert wanted in str(error.value)
    assert "Fix: correct the text" in str(error.value)
    assert error.value.text == text and "error" in error.value.log
    assert compiler.compile(ADD, "sm_80").code  # the next call works


def test_an_unknown_target_is_an_error(compiler):
    with pytest.raises(nvrtc.CompileError, match="invalid value for --gpu-architec"):
        compiler.compile(ADD, "sm_1")


# ---------------------------------------------------------------- resources


def test_resources_of_a_kernel_and_of_what_it_calls(compiler):
    text = """
__device__ __noinline__ float g(float x) { return x * x - sqrtf(x); }
extern "C" __global__ void f(float* x) {
  __shared__ float s[40];
  s[threadIdx.x] = g(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = s[39 - threadIdx.x];
}
extern "C" __global__ void h(float* x) { x[0] = 1.0f; }
"""
    found = resources(compiler.compile(text, "sm_90").log)
    assert set(found) == {"f", "h", "_Z1gf"}
    assert found["f"].shared == 160 and found["h"].shared == 0
    assert found["_Z1gf"].registers == 0 < found["h"].registers
    assert all(each.spills == 0 for each in found.values())


def test_spills_are_seen(compiler):
    sums = " ".join(f"float a{n} = p.x[i + {n}];" for n in range(200))
    uses = " ".join(f"p.out[i + {n}] = a{n} * a{199 - n};" for n in range(200))
    crowded = ADD.replace("(256)", "(1024, 2)").replace(
        "p.out[i] =", f"{sums} __syncthreads(); {uses} p.out[i] ="
    )
    (found,) = resources(compiler.compile(crowded, "sm_80").log).values()
    assert found.registers == 32 and found.spill_stores > 0 and found.spill_loads > 0
    assert found.stack > 0


class Spilling(nvrtc.Compiler):
    """A compiler that spills unless there is room; it compiles nothing."""

    def _compiled(self, text: str, target: str) -> nvrtc.Compiled:
        stores = 0 if "(256, 1)" in text else 8
        log = (
            "ptxas info    : Function properties for add\n"
            f"    0 bytes stack frame, {stores} bytes spill stores, "
            "0 bytes spill loads\n"
            "ptxas info    : Used 40 registers\n"
        )
        return nvrtc.Compiled(text.encode(), log)


def test_what_spills_gets_room():
    made = Spilling(None, (12, 9), ()).compile(ADD, "sm_80")
    assert made.code.decode() == ADD.replace("(256)", "(256, 1)")
    crowded = ADD.replace("(256)", "(256, 2)")  # a bound that somebody has chosen
    assert (
        Spilling(None, (12, 9), ()).compile(crowded, "sm_80").code.decode() == crowded
    )


def test_only_what_spills_gets_room():
    text = ADD + ADD.replace("add", "other") + ADD.replace("(256)", "(256, 2)")
    roomier = nvrtc.with_room(text, ["other"])
    assert roomier == ADD + ADD.replace("add", "other").replace(
        "(256)", "(256, 1)"
    ) + ADD.replace("(256)", "(256, 2)")


def test_resources_of_a_report():
    report = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_80'
ptxas info    : Function properties for f
ptxas         .     40 bytes stack frame, 36 bytes spill stores, 52 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 4096 bytes smem, 368 bytes cmem[0]
"""
    assert resources(report) == {"f": Resources(255, 4096, 40, 36, 52)}
    assert resources("") == {}


# ---------------------------------------------------------------- assembly


def test_assembly_is_what_the_disassembler_prints(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvrtc.assembly(b"\x7fELF") is None
    for tool in ("cuobjdump", "nvdisasm"):  # the second is asked first
        program = tmp_path / tool
        program.write_text(f'#!/bin/sh\necho "{tool} $1"\n/bin/cat "$2"\n')
        os.chmod(program, stat.S_IRWXU)
        said = nvrtc.assembly(b"the cubin")
        assert said is not None and said.startswith(tool) and "the cubin" in said
