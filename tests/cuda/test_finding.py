"""Whether a GPU is found, and what is said of one that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from fnx.runtime.backend import Found
from fnx_cuda import finding


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """A machine without GPUs; gives a function that builds in what it is told."""
    nodes, cards = tmp_path / "dev", tmp_path / "pci"
    nodes.mkdir()
    cards.mkdir()
    monkeypatch.setattr(finding, "_DEVICES", str(nodes))
    monkeypatch.setattr(finding, "_CARDS", str(cards))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def build(*, node: str = "", vendor: str = "", kind: str = "") -> None:
        if node:
            (nodes / node).touch()
        if vendor:
            card = cards / f"0000:{len(os.listdir(cards)):02}:00.0"
            card.mkdir()
            (card / "vendor").write_text(f"{vendor}\n")
            (card / "class").write_text(f"{kind}\n")

    return build


def test_without_a_gpu(machine):
    machine(vendor="0x8086", kind="0x030000", node="nvidiactl")
    machine(vendor="0x10de", kind="0x040300")  # the sound of a graphics card
    found = finding.hardware()
    assert (found.there, found.unusable) == (False, False)
    assert finding.glance() == Found((), "this machine shows no NVIDIA GPU")


@pytest.mark.parametrize("node", ["nvidia0", "nvidia12", "dxg", "nvgpu"])
def test_a_gpu_with_its_driver(machine, node):
    machine(node=node)
    assert finding.hardware().there
    assert finding.glance() is None


@pytest.mark.parametrize(("kind", "aloud"), [("0x030200", True), ("0x030000", False)])
def test_a_gpu_without_a_driver(machine, kind, aloud):
    machine(vendor="0x10de", kind=kind)
    found = finding.glance()
    assert found is not None
    assert found.unusable is aloud
    assert "no driver" in found.reason
    assert "nvidia-smi" in found.fix


@pytest.mark.parametrize("value", ["", "-1"])
def test_hidden_gpus_are_nothing_to_shout_about(machine, monkeypatch, value):
    machine(node="nvidia0", vendor="0x10de", kind="0x030200")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    found = finding.glance()
    assert found is not None
    assert not found.unusable
    assert "CUDA_VISIBLE_DEVICES" in found.reason


def fails(error: Exception) -> Any:
    def names() -> list[str]:
        raise error

    return names


@pytest.mark.parametrize(
    ("names", "reason", "fix"),
    [
        (fails(ImportError("No module named 'cupy'")), "CuPy cannot be", "fnx[cuda13"),
        (
            fails(RuntimeError("cudaErrorInsufficientDriver: CUDA driver version")),
            "older than what CuPy",
            "nvidia-smi",
        ),
        (fails(OSError("libnvrtc.so.12")), "does not start: libnvrtc", "nvidia-smi"),
        (list, "sees no GPU", "nvidia-smi"),
    ],
)
def test_a_gpu_that_cannot_be_used(machine, names, reason, fix):
    machine(node="nvidia0")
    found = finding.found(names)
    assert found.unusable
    assert found.kinds == ()
    assert reason in found.reason
    assert fix in found.fix


def test_devices_are_asked_for_only_where_there_is_hardware(machine):
    assert finding.found(fails(AssertionError("asked"))).kinds == ()
    assert finding.found(lambda: ["one", "two"], certain=True).kinds == ("one", "two")
    machine(node="nvidia0")
    assert finding.found(lambda: ["one"]) == Found(("one",))


# ---------------------------------------------------------------- packages


def packages(monkeypatch: pytest.MonkeyPatch, **versions: str) -> dict[str, Any]:
    there = {name.replace("_", "-"): version for name, version in versions.items()}
    monkeypatch.setattr(finding, "_version", there.get)
    rows: dict[str, Any] = {}
    for found in finding.packages():
        rows.setdefault(found.what, []).append(found)
    return rows


def test_packages_that_fit(monkeypatch):
    rows = packages(
        monkeypatch,
        cupy_cuda12x="14.2.0",
        nvidia_cuda_nvrtc_cu12="12.9.86",
        nvidia_cuda_runtime_cu12="12.9.79",
    )
    assert not [found for row in rows.values() for found in row if found.fix]
    assert rows["CuPy"][0].found == "cupy-cuda12x 14.2.0"
    assert "system's" in rows["cuDNN"][0].found


def test_packages_that_do_not_fit(monkeypatch):
    both = packages(
        monkeypatch,
        cupy_cuda12x="14.2.0",
        nvidia_cuda_nvrtc_cu12="12.9.86",
        nvidia_cuda_nvrtc="13.0.1",
    )
    assert both["NVRTC"][0].fix == "pip uninstall nvidia-cuda-nvrtc"
    other = packages(monkeypatch, cupy_cuda13x="14.2.0", nvidia_cublas_cu12="12.9.1")
    assert other["cuBLAS"][0].fix == "pip uninstall nvidia-cublas-cu12"
    assert "CuPy is for CUDA 13" in other["cuBLAS"][0].found
    versions = packages(
        monkeypatch,
        cupy_cuda13x="14.2.0",
        nvidia_cuda_nvrtc="13.1.0",
        nvidia_cuda_runtime="13.0.2",
    )
    assert versions["CUDA headers"][1].fix == (
        'pip install "nvidia-cuda-runtime==13.1.*"'
    )
    assert 'pip install "fnx[cuda13]"' in packages(monkeypatch)["CuPy"][0].fix


def test_a_glance_loads_next_to_nothing():
    code = """
import sys
import fnx
before = {*sys.modules}
fnx.numpy.ones(3)
new = {name for name in {*sys.modules} - before if not name.startswith("fnx.")}
assert new <= {"fnx_cuda", "fnx_cuda.finding"}, new
"""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    environment.pop("FNX_DEFAULT_DEVICE", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
