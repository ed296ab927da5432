"""fnx/optim/__init__.py: names that are loaded when they are first used."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from fnx import optim

ROOT = Path(__file__).parent.parent.parent


def imported_for_types():
    """Each name that type checkers see as imported late, and the module it is from."""
    tree = ast.parse(Path(optim.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def output(code):
    """What a new process prints."""
    run = [sys.executable, "-W", "error", "-c", code]
    return subprocess.check_output(run, cwd=ROOT, text=True).strip()


def test_type_checkers_see_what_is_loaded_late():
    modules = dict.fromkeys(optim._LATE_MODULES, "fnx.optim")
    assert modules | optim._MODULE_OF == imported_for_types()
    assert imported_for_types().keys() <= {*optim.__all__}
    assert {*optim.__all__} <= {*dir(optim)}


@pytest.mark.parametrize("name", optim._MODULE_OF)
def test_a_late_name_is_what_its_module_calls_so(name):
    module = importlib.import_module(optim._MODULE_OF[name])
    assert getattr(optim, name) is getattr(module, name)


def test_no_file_has_the_name_of_a_function():
    # the file would take the function's place as soon as it is imported
    files = {module.name for module in pkgutil.iter_modules(optim.__path__)}
    assert files & {*optim.__all__} == {*optim._LATE_MODULES}


def test_sgd_and_adam_do_without_the_others():
    late = sorted({*optim._MODULE_OF.values()})
    code = f"""if True:
        import sys
        import fnx.numpy as fnp
        from fnx import optim
        for optimizer in (optim.sgd(0.1, 0.9), optim.adamw(0.1)):
            optimizer.update(fnp.ones(2), optimizer.init(fnp.ones(2)), fnp.ones(2))
        print([module for module in {late!r} if module in sys.modules])
    """
    assert output(code) == "[]"


def test_what_is_not_there_raises():
    with pytest.raises(
        AttributeError, match=r"module 'fnx.optim' has no attribute 'a'"
    ):
        optim.a  # noqa: B018
