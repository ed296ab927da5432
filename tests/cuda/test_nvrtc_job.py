"""The job that compiles what tests have kept: what it keeps, finds and reports."""

from __future__ import annotations

import pytest

from fnx.errors import CompileError
from fnx_cuda import nvrtc
from fnx_cuda.resources import resources
from tests.cuda import kept, nvrtc_job

PLAIN = """
struct P { float* x; };
extern "C" __global__ void k0(const __grid_constant__ P p) { p.x[0] += 1.0f; }
extern "C" __global__ void k10(const __grid_constant__ P p) {
  __shared__ float s[256];
  s[threadIdx.x] = p.x[threadIdx.x];
  __syncthreads();
  p.x[threadIdx.x] = s[255 - threadIdx.x];
}
"""
LOADS = " ".join(f"float a{n} = p.x[i + {n}];" for n in range(200))
STORES = " ".join(f"p.x[i + {n}] = a{n} * a{199 - n};" for n in range(200))
CROWDED = f"""
struct P {{ float* x; }};
extern "C" __global__ void __launch_bounds__(1024, 2)
k0(const __grid_constant__ P p) {{
  unsigned i = threadIdx.x * 200;
  {LOADS} __syncthreads(); {STORES}
}}
"""
BROKEN = PLAIN.replace("1.0f", "nothing")


@pytest.fixture(scope="module", autouse=True)
def _nvrtc():
    try:
        nvrtc.compiler()
    except CompileError as error:
        pytest.skip(str(error))


def kept_texts(folder, *texts):
    for text in texts:
        kept.keep(text, folder)
    return sorted(folder.glob("*.cu"))


def test_texts_that_compile_are_kept_once(tmp_path, monkeypatch):
    def compile_text(text):
        if text is BROKEN:
            raise CompileError("refused")
        return b"code"

    keeping = kept.keeping(compile_text)
    assert keeping(PLAIN) == b"code"  # nowhere to keep it
    monkeypatch.setenv(kept.FOLDER, str(tmp_path / "kernels"))
    for text in (PLAIN, CROWDED, PLAIN):
        assert keeping(text) == b"code"
    with pytest.raises(CompileError):
        keeping(BROKEN)
    files = sorted((tmp_path / "kernels").iterdir())
    assert sorted(file.read_text() for file in files) == sorted([PLAIN, CROWDED])
    assert {file.suffix for file in files} == {".cu"}


def test_what_kernels_take_is_the_same_together_and_alone(tmp_path):
    others = [PLAIN.replace("1.0f", f"{n}.0f") for n in range(20)]
    files = kept_texts(tmp_path, *others)
    assert len(files) > 2 * nvrtc_job.TOGETHER
    done = nvrtc_job.compiled(files)
    assert not done.refused
    wanted = [
        nvrtc_job.Row(file.stem, target, name, takes)
        for file in files
        for target in nvrtc_job.TARGETS
        for name, takes in resources(
            nvrtc.compiler().compile(file.read_text(), target).log
        ).items()
    ]
    assert done.rows == sorted(wanted, key=nvrtc_job.Row.cells)
    assert {row.function: row.takes.shared for row in done.rows} == {
        "k0": 0,
        "k10": 1024,
    }


def test_one_bad_text_is_named_and_the_others_are_compiled(tmp_path, capsys):
    files = kept_texts(tmp_path, PLAIN, BROKEN, CROWDED)
    assert nvrtc_job.main(tmp_path) == 1
    said = capsys.readouterr().out
    (bad,) = [file for file in files if file.read_text() == BROKEN]
    assert f"{bad.name}: line 3" in said and '"nothing" is undefined' in said
    assert "2 kernels spill registers" in said  # on both targets
    assert "2 do not compile" in said
    rows = (tmp_path / "resources.tsv").read_text().splitlines()
    assert rows[0].split("\t")[:4] == ["text", "target", "function", "registers"]
    assert len(rows) == 1 + 2 * 3


def test_success_and_nothing_to_do(tmp_path, capsys, monkeypatch):
    assert nvrtc_job.main(tmp_path) == 1
    assert "no test ran on the emulator" in capsys.readouterr().out
    kept_texts(tmp_path, PLAIN)
    assert nvrtc_job.main(tmp_path) == 0
    assert "1 texts for sm_80 and sm_90" in capsys.readouterr().out

    def missing():
        raise CompileError("there is no NVRTC")

    monkeypatch.setattr(nvrtc, "compiler", missing)
    assert nvrtc_job.main(tmp_path) == 0
    assert capsys.readouterr().out == "skipped: there is no NVRTC\n"
