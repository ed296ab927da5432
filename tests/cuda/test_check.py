"""The check of a GPU, on the emulator: it runs to the end, and finds nothing wrong."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import types

import pytest

import fnx
from fnx_cuda.check import command, report, worker
from fnx_cuda.check.attentions import attentions
from fnx_cuda.check.bandwidth import CASES, copied
from fnx_cuda.check.convolutions import LAYERS, cases, convolutions
from fnx_cuda.check.graphs import graphs
from fnx_cuda.check.report import Row, Setting, as_line, asked, from_line, line
from fnx_cuda.check.routines import decompositions, stacks
from tests import cuda_emulator as emulator


@pytest.mark.cuda
def test_questions_are_answered(tmp_path, capsys):
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(reason)
    file = tmp_path / "answers.json"
    names = ["replays", "several_devices", "launch_cost", "fourier"]
    assert command.main(["--emulator", "--json", str(file), "--only", *names]) == 0
    said = capsys.readouterr().out
    assert "| replays | 20 runs of one program | 0 of the largest ✓ |" in said
    assert "0 are not" in said and str(file) in said
    found = json.loads(file.read_text())
    assert "emulator" in found["machine"]["device"]
    assert {row["question"] for row in found["rows"]} == {
        name.replace("_", " ") for name in names
    }
    assert all(row["good"] is not False for row in found["rows"])


@pytest.mark.cuda
@pytest.mark.parametrize("question", [graphs, decompositions, stacks])
def test_values_of_routines_are_right(gpus, question):
    setting = Setting(gpus[0], fnx.devices("cpu")[0], small=True)
    rows = list(question(setting))
    assert len(rows) > 8 and all(row.good for row in rows), rows


DIES = """
import os
print('{"row": {"question": "values", "case": "x", "peers": {"torch": 2.0}}}')
print("what somebody prints")
print('{"done": "values"}', flush=True)
os.abort()
"""
HANGS = "import time; time.sleep(100)"
ENDS = """
print('{"done": "bandwidth"}')
"""


def test_a_process_that_dies_or_hangs_costs_one_question(tmp_path, monkeypatch, capsys):
    scripts, asked_of = [DIES, HANGS, ENDS], []
    real = subprocess.Popen

    def started(given, **options):
        asked_of.append([name for name in given if name in command.QUESTIONS])
        return real([sys.executable, "-c", scripts.pop(0)], **options)

    monkeypatch.setattr(command.subprocess, "Popen", started)
    monkeypatch.setattr(command, "PATIENCE", 3)
    file = tmp_path / "answers.json"
    names = ["values", "replays", "launch_cost", "bandwidth"]
    assert command.main(["--emulator", "--json", str(file), "--only", *names]) == 1
    assert asked_of == [names, names[2:], names[3:]]
    rows = json.loads(file.read_text())["rows"]
    assert [(row["question"], row["case"]) for row in rows] == [
        ("values", "x"),
        ("replays", "stopped"),
        ("launch_cost", "stopped"),
    ]
    assert rows[0]["peers"] == {"torch": 2.0}
    assert "status -6" in rows[1]["note"] and "no answer for 3 s" in rows[2]["note"]
    assert "2 are not" in capsys.readouterr().out


@pytest.mark.cuda
def test_a_lost_device_ends_the_process(gpus):
    said = []

    def loses(setting):
        yield Row("loses", "first")
        raise ValueError("an illegal address")

    def never(setting):
        raise AssertionError("asked with a device that is lost")
        yield

    questions = {"loses": loses, "never": never}
    for works, status, count in [(False, worker.LOST, 1), (True, 0, 2)]:
        said.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker, "_works", lambda device, works=works: works)
            found = worker.work(["loses", "never"], questions, 60, False, said.append)
        assert found == status
        assert sum("done" in from_line(text) for text in said) == count
    assert worker._works(gpus[0])


def test_what_takes_too_long_is_cut_short(monkeypatch):
    now = [0.0]

    def slow(setting):
        for number in itertools.count():
            now[0] += 20
            yield Row("slow", str(number))

    clock = types.SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(report, "time", clock)
    rows = list(asked(slow, Setting(None, None, True), 30))
    assert [row.case for row in rows] == ["0", "1", "cut short", "seconds in all"]


@pytest.mark.cuda
def test_convolutions_and_layers_are_right(gpus):
    setting = Setting(gpus[0], fnx.devices("cpu")[0], small=True)
    rows = list(convolutions(setting))
    # Forward and two gradients each, and the layers.
    assert len(rows) == 3 * len(cases(small=True)) + len(LAYERS)
    assert all(row.good and row.value > 0 for row in rows)


@pytest.mark.cuda
def test_attentions_are_right(gpus):
    setting = Setting(gpus[0], fnx.devices("cpu")[0], small=True)
    rows = list(attentions(setting))
    assert len(rows) == 2
    assert all(row.good and row.value > 0 for row in rows)


def test_a_question_that_fails_is_a_row():
    def broken(setting):
        yield Row("broken", "first", 1.0, "s")
        raise ValueError("no such thing\nat all")

    rows = list(asked(broken, Setting(None, None, True)))
    assert [row.case for row in rows] == ["first", "stopped", "seconds in all"]
    assert rows[1].note == "ValueError: no such thing"
    assert rows[1].good is False


def test_lines_of_the_table():
    row = Row("speed", "x", 0.5, "of y", "≥ 0.4", True, peers=(("torch", 0.25),))
    assert line(row) == "| speed | x | 0.5 of y ✓ | ≥ 0.4 | torch 0.25 |"
    assert from_line(as_line({"row": row})) == {"row": row}


def test_what_is_measured_is_not_optimised_away():
    x = fnx.ShapeDtypeStruct((64, 64), "float32")
    for function in (copied, *(function for _, function, *_ in CASES)):
        assert " 0 steps" not in fnx.jit(function).lower(x).as_text("plan")


def test_no_gpu_is_told(capsys, monkeypatch):
    monkeypatch.setattr(fnx.cuda, "is_available", lambda: False)
    assert command.main([]) == 2
    assert "cuda" in capsys.readouterr().out.lower()
