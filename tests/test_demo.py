"""`python -m fnx.demo digits`: it learns, it shows its stages, its errors are clear."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from fnx.demo.__main__ import main

pytest.importorskip("sklearn", reason="the demo needs scikit-learn")
pytest.importorskip("tqdm", reason="the demo needs tqdm")


def test_the_command_learns_digits():
    command = [sys.executable, "-m", "fnx.demo", "digits", "--epochs", "20"]
    # one BLAS thread: tests run in parallel, and the products are small
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "440/440" in run.stderr  # the progress bar
    accuracy = re.search(r"test accuracy +(\d\.\d+) on 360 images", run.stdout)
    assert accuracy and float(accuracy[1]) >= 0.97
    for line in (
        r"last training loss +0\.\d+",
        r"steps +440 in \d+\.\d+ s, \d+ a second",
        r"trace the step +\d+\.\d+ s",
        r"compile the step +\d+\.\d+ s",
        r"kernels +\d+ different ones in a plan of \d+ steps",
        r"python -m fnx\.demo digits --show kernel",
    ):
        assert re.search(line, run.stdout), f"{line}\n{run.stdout}"


@pytest.mark.parametrize(
    ("stage", "start"),
    [
        ("program", "{ lambda a:f32[128] b:f32[64,128]"),
        ("plan", "plan: "),
        ("kernel", "kernel kernel1\n  in "),
        ("llvm", "define "),
    ],
)
def test_show_prints_the_training_step(stage, start, capsys):
    assert main(["digits", "--show", stage]) == 0
    assert start in capsys.readouterr().out


def test_quiet_shows_no_bar(capsys):
    assert main(["digits", "--quiet", "--epochs", "1", "--batch", "700"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert re.search(r"steps +2 in", shown.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["faces"], "invalid choice: 'faces'"),
        (["digits", "--epochs", "0"], "--epochs: must be 1 or more, got 0"),
        (["digits", "--seed", "-1"], "--seed: must be 0 or more, got -1"),
        (["digits", "--batch", "ten"], "--batch: 'ten' is no integer"),
        (["digits", "--show", "graph"], "--show: invalid choice: 'graph'"),
    ],
)
def test_wrong_options(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_batch_of_more_images_than_there_are(capsys):
    assert main(["digits", "--batch", "2000"]) == 1
    assert "--batch 2000 is more than the 1437 images" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["sklearn.datasets", "tqdm"])
def test_a_missing_package_is_named_with_its_command(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["digits"]) == 1
    assert "python -m pip install scikit-learn tqdm" in capsys.readouterr().err
