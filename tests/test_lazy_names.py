"""fnx/__init__.py: what is loaded when it is first used, and that nobody sees it."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import fnx

ROOT = Path(__file__).parent.parent


def imported_for_types() -> dict[str, str]:
    """Each name that type checkers see as imported late, and the module it is from."""
    tree = ast.parse(Path(fnx.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


LATE = imported_for_types()


def output(code: str) -> str:
    """What a new process prints."""
    run = [sys.executable, "-W", "error", "-c", code]
    return subprocess.check_output(run, cwd=ROOT, text=True).strip()


def test_type_checkers_see_what_is_loaded_late():
    modules = dict.fromkeys(fnx._LAZY_MODULES, "fnx")
    assert modules | fnx._MODULE_OF == LATE
    assert LATE.keys() <= {*fnx.__all__}


@pytest.mark.parametrize("name", LATE)
def test_a_late_name_is_what_its_module_calls_so(name):
    if LATE[name] == "fnx":
        assert getattr(fnx, name) is importlib.import_module(f"fnx.{name}")
    else:
        assert getattr(fnx, name) is getattr(importlib.import_module(LATE[name]), name)
        assert vars(fnx)[name] is getattr(fnx, name)
        assert pickle.loads(pickle.dumps(getattr(fnx, name))) is getattr(fnx, name)


def test_arrays_do_without_what_is_late():
    late = {f"fnx.{name}" for name in fnx._LAZY_MODULES} | {*fnx._LAZY_NAMES}
    code = f"""if True:
        import sys
        import fnx
        for n in range(100):  # calls in machine code included
            x = fnx.numpy.arange(5.0) + n
            y = fnx.numpy.sort(x[::-1] * (x @ x) + x.sum())
        fnx.jit(fnx.vmap(lambda x: 2 * x))(y)
        print(sorted({late!r} & set(sys.modules)))
    """
    assert output(code) == "[]"


@pytest.mark.parametrize(
    "code",
    [
        "import fnx; print(set(fnx.__all__) - set(dir(fnx)))",
        "from fnx import *; print({'grad', 'nn', 'Device'} - set(dir()))",
        "from fnx import grad, nn, vjp; print({grad.__name__} - {'grad'})",
        "import fnx.nn, fnx; print({fnx.nn.relu(-1.0).item()} - {0.0})",
        "import fnx; print({fnx.grad(lambda x: x * x)(3.0).item()} - {6.0})",
    ],
)
def test_a_late_name_is_there_in_every_way_of_importing(code):
    assert output(code) == "set()"


def test_what_is_not_there_raises():
    with pytest.raises(AttributeError, match="module 'fnx' has no attribute 'pi'"):
        fnx.pi  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'pi' from 'fnx'"):
        from fnx import pi  # noqa: F401
