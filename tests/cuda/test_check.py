"""The check of a GPU, on the emulator: it runs to the end, and finds nothing wrong."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

import fnx
from fnx_cuda.check import command
from fnx_cuda.check.bandwidth import CASES, copied
from fnx_cuda.check.convolutions import LAYERS, cases, convolutions
from fnx_cuda.check.report import Row, Setting, asked, table


@pytest.mark.cuda
def test_questions_are_answered(gpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "_emulated", nullcontext)  # it is there already
    file = tmp_path / "answers.json"
    names = ["replays", "several_devices", "launch_cost", "fourier"]
    assert command.main(["--emulator", "--json", str(file), "--only", *names]) == 0
    assert "| replays | 20 runs of one program | 0 of the largest ✓ |" in (
        capsys.readouterr().out
    )
    rows = json.loads(file.read_text())
    assert {row["question"] for row in rows} == {
        name.replace("_", " ") for name in names
    }
    assert all(row["good"] is not False for row in rows)


@pytest.mark.cuda
def test_convolutions_and_layers_are_right(gpus):
    setting = Setting(gpus[0], fnx.devices("cpu")[0], small=True)
    rows = list(convolutions(setting))
    # Forward and two gradients each, and the layers.
    assert len(rows) == 3 * len(cases(small=True)) + len(LAYERS)
    assert all(row.good and row.value > 0 for row in rows)


def test_a_question_that_fails_is_a_row():
    def broken(setting):
        yield Row("broken", "first", 1.0, "s")
        raise ValueError("no such thing\nat all")

    rows = asked(broken, Setting(None, None, True))
    assert [row.case for row in rows] == ["first", "stopped", "seconds in all"]
    assert rows[1].note == "ValueError: no such thing"
    assert rows[1].good is False


def test_the_table():
    row = Row("speed", "x", 0.5, "of y", "≥ 0.4", True, peers=(("torch", 0.25),))
    assert table([row]).splitlines()[-1] == (
        "| speed | x | 0.5 of y ✓ | ≥ 0.4 | torch 0.25 |"
    )


def test_what_is_measured_is_not_optimised_away():
    x = fnx.ShapeDtypeStruct((64, 64), "float32")
    for function in (copied, *(function for _, function, *_ in CASES)):
        assert " 0 steps" not in fnx.jit(function).lower(x).as_text("plan")


def test_no_gpu_is_told(capsys, monkeypatch):
    monkeypatch.setattr(fnx.cuda, "is_available", lambda: False)
    assert command.main([]) == 2
    assert "cuda" in capsys.readouterr().out.lower()
