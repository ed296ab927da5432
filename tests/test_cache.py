"""The disk cache: what another process finds there, and what it must not trust.

Each test has a cache folder of its own; "another process" is one, or a cleared memory.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import cache, errors
from fnx.config import config
from fnx.core.digest import program_digest
from fnx.cpu import jit
from fnx.runtime import compiling
from fnx.runtime.backend import backend
from fnx.runtime.executable import executable_for


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """The parts of the backend that each process compiles once are there."""
    compute()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache folder, and a memory without compiled programs."""
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_known_size", None)
    fnx.clear_caches()
    with config.override(disk_cache=True):
        yield tmp_path / "cache"
    fnx.clear_caches()


def function(x, y):
    return fnp.sort(fnp.tanh(x) @ y + 1.0), fnp.sum(x * x, axis=0), x, 2.0


def arguments(n=33):
    rng = np.random.default_rng(3)
    return tuple(rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))


def compute(n=33):
    """The results of the function, compiled as if in a new process."""
    fnx.clear_caches()
    return [np.asarray(out) for out in fnx.jit(function)(*arguments(n))]


def same(found, wanted):
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, wanted, strict=True))


def test_the_second_time_nothing_is_compiled(monkeypatch):
    before = cache.info()
    wanted = compute()
    assert cache.info().entries == 1
    monkeypatch.setattr(compiling, "plan_program", lambda program: pytest.fail())
    assert same(compute(), wanted)
    after = cache.info()
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 1)
    np.testing.assert_allclose(wanted[1], np.sum(arguments()[0] ** 2, 0), rtol=1e-5)


def test_what_was_found_shows_its_stages():
    compute()
    fnx.clear_caches()
    lowered = fnx.jit(function).lower(*arguments())
    assert "@run" in lowered.as_text("llvm")
    assert "host sort" in lowered.as_text("plan")


def test_another_process_finds_it(folder):
    code = (
        "import numpy as np, fnx, fnx.numpy as fnp\n"
        "f = fnx.jit(lambda x: fnp.exp(x) @ x)\n"
        "print(np.asarray(f(np.ones((5, 5), 'f4'))).tobytes().hex())\n"
        "print(fnx.cache.info().hits, fnx.cache.info().entries)"
    )
    environment = os.environ | {"FNX_DISK_CACHE": "1"}
    run = [sys.executable, "-c", code]
    texts = [
        subprocess.check_output(run, env=environment, text=True).split()
        for _ in range(2)
    ]
    assert texts[0][0] == texts[1][0]
    assert [text[1:] for text in texts] == [["0", "1"], ["1", "1"]]


def test_processes_at_once(folder):
    code = (
        "import numpy as np, fnx, fnx.numpy as fnp\n"
        "for n in range(1, 6):\n"
        "    y = fnx.jit(lambda x: fnp.sum(x) * n)(np.ones(n, 'f4'))\n"
        "    assert float(y) == n * n, y"
    )
    environment = os.environ | {"FNX_DISK_CACHE": "1"}
    run = [sys.executable, "-c", code]
    started = [subprocess.Popen(run, env=environment) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert cache.info().entries == 5
    assert all(path.suffix == ".fnx" for path in folder.iterdir())


@pytest.mark.parametrize("kept", [0, 10, 40, -1])
def test_torn_entries_are_replaced(folder, kept):
    wanted = compute()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    assert same(compute(), wanted)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"no pickle", b"cos\nsystem\n(S'true'\ntR."])
def test_foreign_content_is_replaced(folder, content):
    wanted = compute()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    cache.store(path.stem, content)
    assert same(compute(), wanted)
    assert path.read_bytes() == whole


def test_entries_of_another_name_are_replaced(folder):
    wanted = compute()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    np.asarray(fnx.jit(lambda x, y: (y, x, x, 3.0))(*arguments())[0])
    (other,) = set(folder.iterdir()) - {path}
    path.write_bytes(other.read_bytes())
    assert same(compute(), wanted)
    assert path.read_bytes() == whole


def test_a_folder_for_reading_only_serves(folder, monkeypatch):
    wanted = compute()

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("utime", "replace", "unlink"):
        monkeypatch.setattr(cache.os, name, refuse)
    before = cache.info().hits
    assert same(compute(), wanted)
    assert cache.info().hits == before + 1


def test_code_that_does_not_link_is_replaced(folder):
    wanted = compute()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    program = fnx.make_jaxpr(function)(*arguments())
    compiled = backend("cpu").compile(executable_for(program).plan)
    code = dataclasses.replace(compiled.code, objects=(b"\x7fELF, but no more",))
    broken = dataclasses.replace(compiled, code=code)
    cache.store(path.stem, pickle.dumps(broken))
    assert same(compute(), wanted)
    assert path.read_bytes() == whole


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_folder_that_others_can_write_to_is_not_used(folder):
    folder.mkdir()
    folder.chmod(0o777)
    wanted = compute()
    assert not list(folder.iterdir())
    folder.chmod(0o700)
    compute()
    folder.chmod(0o777)
    before = cache.info().hits
    assert same(compute(), wanted)
    assert cache.info().hits == before


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert compute()[0].shape == (33, 33)
    assert cache.info().entries == 0


def test_the_oldest_entries_go_first(folder):
    with config.override(cache_megabytes=1):
        for number in range(10):
            cache.store(f"key{number}", bytes(200_000))
            os.utime(folder / f"key{number}.fnx", (number, number))
            cache.load("key0")  # is used again and again
    assert cache.info().nbytes <= 2**20
    left = {path.stem for path in folder.iterdir()}
    assert {"key0", "key9"} <= left
    assert "key1" not in left


def test_clear(folder):
    compute()
    assert cache.info().nbytes > 0
    cache.clear()
    assert cache.info()[1:3] == (0, 0)
    assert not list(folder.iterdir())


def test_off(folder):
    with config.override(disk_cache=False):
        compute()
    assert not folder.exists()


def test_directory(monkeypatch):
    monkeypatch.delenv("FNX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    if sys.platform == "linux":
        assert cache.directory() == "/somewhere/fnx"
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        assert cache.directory() == str(Path.home() / ".cache" / "fnx")
    monkeypatch.setenv("FNX_CACHE_DIR", "~/mine")
    assert Path(cache.directory()) == Path.home() / "mine"


def test_bad_limits():
    with pytest.raises(errors.OptionError, match="cache_megabytes takes 1 to"):
        config.cache_megabytes = 0


# ---------------------------------------------------------------- digests


def digest(f, *args):
    return program_digest(fnx.make_jaxpr(f)(*args))


X = np.ones((3, 4), np.float32)


def test_equal_programs_have_one_digest():
    wanted = digest(lambda x: fnp.sin(x) + 2.0, X)
    assert wanted is not None
    assert digest(lambda y: fnp.add(fnp.sin(y), 2.0), X) == wanted


@pytest.mark.parametrize(
    "other",
    [
        lambda x: fnp.sin(x) + 2.5,
        lambda x: fnp.cos(x) + 2.0,
        lambda x: fnp.sin(x.T) + 2.0,
        lambda x: fnp.sin(x) + fnp.float32(2.0),
        lambda x: (fnp.sin(x) + 2.0, x),
        lambda x: fnx.jit(lambda y: fnp.sin(y) + 2.0)(x),
    ],
)
def test_other_programs_have_other_digests(other):
    assert digest(other, X) != digest(lambda x: fnp.sin(x) + 2.0, X)


@pytest.mark.parametrize(
    ("a", "b"), [(0.0, -0.0), (1.0, np.nextafter(np.float32(1), 2))]
)
def test_constants_are_told_apart(a, b):
    assert digest(lambda x: fnp.where(x > 0, x, a), X) != digest(
        lambda x: fnp.where(x > 0, x, b), X
    )


def test_types_are_told_apart():
    wide = X.astype(np.float64)
    assert digest(fnp.sin, X) != digest(fnp.sin, wide)
    assert digest(fnp.sin, X) != digest(fnp.sin, X.T)


def test_programs_that_only_this_process_knows_have_none():
    @fnx.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 3))
    assert digest(f, X) is None


# ---------------------------------------------------------------- parts of the backend


def test_modules_of_fixed_text_are_kept():
    text = "define i32 @seven() {\n  ret i32 7\n}\n"
    before = cache.info()
    assert seven(jit.load_fixed(text, ["seven"], opt=0)) == 7
    assert seven(jit.load_fixed(text, ["seven"], opt=0)) == 7
    assert seven(jit.load_fixed(text, ["seven"], opt=1)) == 7  # another entry
    after = cache.info()
    assert after.entries - before.entries == 2
    assert after.hits - before.hits == 1


def seven(library):
    return ctypes.CFUNCTYPE(ctypes.c_int)(library.address("seven"))()


@pytest.mark.parametrize("content", [b"", b"no object code", b"\x7fELF" + bytes(200)])
def test_modules_that_do_not_link_are_replaced(folder, content):
    text = "define i32 @seven() {\n  ret i32 7\n}\n"
    jit.load_fixed(text, ["seven"], opt=0)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    cache.store(path.stem, content)
    assert seven(jit.load_fixed(text, ["seven"], opt=0)) == 7
    assert path.read_bytes() == whole
