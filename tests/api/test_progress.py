"""scan(..., progress=): what is shown, and that nothing else changes."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import fnx
from fnx import errors, lax
from fnx.api.progress import Progress

ROWS = np.linspace(0, 1, 40, dtype=np.float32)
TENTHS = [f"{10 * n}% ({4 * n}/40)" for n in range(1, 11)]
BOTH = pytest.mark.parametrize("transform", [lambda f: f, fnx.jit])


@pytest.fixture
def without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def running(c, r):
    return c * 0.5 + r, c


def loop(x, **options):
    return lax.scan(running, x, ROWS, **options)


def lines(capsys):
    captured = capsys.readouterr()
    assert not captured.out
    return captured.err.splitlines()


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"unroll": 3}])
@BOTH
def test_lines_of_text(transform, options, without_tqdm, capsys):
    found = transform(lambda x: loop(x, progress="fit", **options))(1.0)
    assert lines(capsys) == [f"fit: {tenth}" for tenth in TENTHS]
    for one, two in zip(found, loop(1.0, **options), strict=True):
        np.testing.assert_array_equal(one, two)


def test_every_run_has_lines(without_tqdm, capsys):
    f = fnx.jit(lambda x: loop(x, progress=True)[0])
    f(1.0), f(2.0)
    assert lines(capsys) == [f"running: {tenth}" for tenth in TENTHS] * 2


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: fnx.grad(f),
        lambda f: fnx.jit(fnx.value_and_grad(f)),
        lambda f: lambda x: fnx.vmap(f)(np.array([x, 2 * x], np.float32)),
        lambda f: fnx.hessian(f),
    ],
)
def test_a_transformed_loop_shows_its_rounds_once(transform, without_tqdm, capsys):
    transform(lambda x: loop(x, progress="x")[0])(1.0)
    assert lines(capsys) == [f"x: {tenth}" for tenth in TENTHS]


def test_without_jit(without_tqdm, capsys):
    with fnx.disable_jit():
        loop(np.float32(1), progress="plain")
    assert lines(capsys) == [f"plain: {tenth}" for tenth in TENTHS]


def test_few_rounds_and_none(without_tqdm, capsys):
    lax.scan(running, 1.0, ROWS[:3], progress="few")
    assert lines(capsys) == ["few: 33% (1/3)", "few: 66% (2/3)", "few: 100% (3/3)"]
    lax.scan(running, 1.0, ROWS[:0], progress="none")
    assert lines(capsys) == []


def test_many_rounds_are_shown_a_hundred_times():
    bar = Progress("x", 100_000)
    shown = [n for n in range(1, 100_001) if bar.is_due(n)]
    assert shown == [1, *range(1000, 100_001, 1000)]


def test_a_run_that_was_interrupted_is_forgotten(without_tqdm, capsys):
    def body(c, r):
        fnx.debug.callback(stop, c)
        return c + 1, None

    def stop(c):
        if c == limit[0]:
            raise StopIteration

    limit = [20]
    f = fnx.jit(lambda x: lax.scan(body, x, ROWS, progress="x")[0])
    with pytest.raises(StopIteration):
        f(np.float32(0))
    assert lines(capsys) == [f"x: {tenth}" for tenth in TENTHS[:5]]
    limit[0] = -1
    f(np.float32(0))
    assert lines(capsys) == [f"x: {tenth}" for tenth in TENTHS]


def test_tqdm_where_it_is_installed(capsys):
    pytest.importorskip("tqdm")
    fnx.jit(lambda x: loop(x, progress="training"))(1.0)
    text = capsys.readouterr().err
    assert re.search(r"training: +0%.*\| 0/40", text)
    assert re.search(r"training: 100%.*\| 40/40", text)


def test_invalid():
    with pytest.raises(errors.ArgumentError, match="a bool or a string, got 3"):
        loop(1.0, progress=3)
