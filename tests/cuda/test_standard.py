"""The standard kernels: their text is as it was, and no register is spilled.

A text that changes on purpose is written anew by `python -m tests.cuda.standard`.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fnx_cuda import nvrtc
from fnx_cuda.resources import resources
from tests.cuda.standard import GOLDEN, KEPT, STANDARD, source, texts


@pytest.mark.parametrize("name", KEPT)
def test_the_text_is_the_golden_one(name):
    file = GOLDEN / f"{name}.cu"
    before = file.read_text(encoding="utf-8").splitlines()
    now = source(KEPT[name]).splitlines()
    changes = list(difflib.unified_diff(before, now, str(file), "now", lineterm=""))
    assert not changes, "\n".join(changes[:60])


def test_no_golden_text_is_left_over():
    assert {file.stem for file in GOLDEN.iterdir()} == set(KEPT)


ROOT = Path(__file__).parent.parent.parent
DIGEST = """
from tests.cuda.test_standard import digest
print(digest())
"""


def digest() -> str:
    """Of all standard texts: what later processes look for on disk."""
    every = "".join(map(source, STANDARD.values()))
    return hashlib.sha256(every.encode()).hexdigest()


def test_another_process_prints_the_same_texts():
    for seed in ("1", "2", "3"):
        other = os.environ | {"PYTHONHASHSEED": seed}
        run = [sys.executable, "-c", DIGEST]
        said = subprocess.check_output(run, env=other, cwd=ROOT, text=True)
        assert said.strip() == digest()


@pytest.fixture(scope="module")
def compiler():
    try:
        return nvrtc.compiler()
    except nvrtc.CompileError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", STANDARD)
def test_nothing_is_spilled(compiler, name, target):
    for text in texts(STANDARD[name]):
        for kernel, takes in resources(compiler.compile(text, target).log).items():
            assert takes.spills == 0, f"{kernel}: {takes}\n{text}"
