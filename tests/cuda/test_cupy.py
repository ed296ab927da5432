"""Every name that `fnx_cuda/_cupy.py` uses exists in the CuPy that is installed.

Skipped where there is none; it needs neither a driver nor a GPU. The names are read
from the file, the methods of what its functions give are listed here.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from fnx_cuda import _cupy

# Streams and events have a `ptr` besides, which their constructors set.
METHODS = {
    "cuda.Stream": ("synchronize", "wait_event", "begin_capture", "end_capture"),
    "cuda.Event": ("record", "synchronize", "done"),
    "cuda.Graph": ("launch",),
    "cuda.MemoryPool": ("malloc", "free_all_blocks", "used_bytes", "total_bytes"),
    "cuda.MemoryPointer": ("ptr", "mem"),
    "cuda.function.Module": ("load", "get_function"),
    "cuda.function.Function": ("ptr",),
    "cuda.PinnedMemoryPointer": ("ptr",),
}


def used_names() -> list[str]:
    """The dotted names behind `cupy()` in the file."""
    tree = ast.parse(Path(_cupy.__file__).read_text(encoding="utf-8"))
    names = set()
    for function in [n for n in tree.body if isinstance(n, ast.FunctionDef)]:
        aliases: dict[str, str] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found = dotted(node.value, aliases)
                if found is not None:
                    aliases[node.targets[0].id] = found
        chains = [dotted(node, aliases) for node in ast.walk(function)]
        names.update(chain for chain in chains if chain)
    return sorted(names)


def dotted(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """`cupy().cuda.runtime` as "cuda.runtime", and `""` for `cupy()`."""
    if isinstance(node, ast.Call) and ast.unparse(node) == "cupy()":
        return ""
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        start = dotted(node.value, aliases)
        return None if start is None else f"{start}.{node.attr}".lstrip(".")
    return None


def test_names_are_found():
    names = used_names()
    assert {"cuda.driver.launchKernel", "cuda.runtime.memcpyAsync"} <= set(names)
    assert {"cuda.UnownedMemory", "from_dlpack"} <= set(names)


def attribute(module: object, name: str) -> object:
    for part in name.split("."):
        module = getattr(module, part)
    return module


@pytest.fixture(scope="module")
def real():
    return pytest.importorskip("cupy", reason="looks at the CuPy that is installed")


@pytest.mark.parametrize("name", used_names())
def test_cupy_has(real, name):
    attribute(real, name)


@pytest.mark.parametrize("name", METHODS)
def test_cupy_has_methods(real, name):
    missing = [m for m in METHODS[name] if not hasattr(attribute(real, name), m)]
    assert not missing


def test_use_puts_a_module_in_its_place():
    module = importlib.import_module("types").SimpleNamespace(__version__="fake")
    before = _cupy._module
    try:
        _cupy.use(module)
        assert _cupy.version() == "fake"
        _cupy.use(None)
        assert _cupy._module is None
    finally:
        _cupy.use(before)
