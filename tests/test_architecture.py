"""The shape of the source: layers, import cycles, late imports, docstrings, light
import.

Reads every file of fnx and fnx_cuda with `ast` (nothing is imported, so a file that
does not exist yet is simply not checked) and compares with the table of layers below,
which is the one that the README describes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("fnx", "fnx_cuda")

# A module may import its own layer and those below. The package __init__ of fnx and
# `python -m fnx…` entry files stand above all.
LAYERS: list[set[str]] = [
    {
        "records",
        "errors",
        "config",
        "cache",
        "dtypes",
        "locks",
        "sizes",
        "tree",
        "tree_nodes",
        "tree_util",
    },
    {"core", "kernel"},
    {"ops"},
    {"transforms"},
    {"control"},
    {"compiler"},
    {"runtime"},
    {"cpu", "fnx_cuda"},
    {"api"},
    {
        "numpy",
        "lax",
        "scipy",
        "random",
        "nn",
        "debug",
        "cuda",
        "image",
        "flatten_util",
        "dlpack",
        "checkify",
        "typing",
    },
    {
        "optim",
        "implicit",
        "data",
        "io",
        "testing",
        "demo",
        "distributed",
        "experimental",
        "fnx_cuda.check",
    },
]

# Parts that see less than all layers below: what each may import besides itself.
BASE = LAYERS[0] - {"tree_util"}
NARROW: dict[str, set[str]] = {
    "kernel": {"records", "dtypes", "errors", "sizes"},
    "core": BASE,
    "compiler": BASE | {"core", "kernel"},
    "cpu": BASE | {"kernel", "runtime.backend", "runtime.plan"},
    "fnx_cuda": BASE | {"kernel", "runtime.backend", "runtime.plan"},
}
# Written as users write, with `import fnx`: nothing of fnx may import it.
USERS = {"demo", "fnx_cuda.check"}
HEAVY = ("scipy", "llvmlite", "cupy", "jax", "torch", "matplotlib", "mpi4py")


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module
    lines: tuple[str, ...]

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        is_package = self.path.name == "__init__.py"
        return self.name if is_package else self.name.rpartition(".")[0]


def _load(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    return Module(name, path, ast.parse(text), tuple(text.splitlines()))


MODULES = {
    module.name: module
    for package in PACKAGES
    for module in map(_load, sorted((ROOT / package).rglob("*.py")))
}
EACH = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)


def _imports(module: Module, top_level_only: bool = False) -> Iterator[tuple[str, int]]:
    """The modules of fnx that a module imports, each with its line."""
    late = _inside_functions(module.tree) if top_level_only else set()
    for node in ast.walk(module.tree):
        if node in late or _only_for_types(node, module):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = list(_from_names(node, module))
        else:
            continue
        yield from ((n, node.lineno) for n in names if n.split(".")[0] in PACKAGES)


def _from_names(node: ast.ImportFrom, module: Module) -> Iterator[str]:
    """`from a import b` imports a.b where that is a module, else a."""
    base = node.module or ""
    if node.level:
        parent = module.package.split(".")
        parent = parent[: len(parent) - node.level + 1]
        base = ".".join([*parent, base] if base else parent)
    for alias in node.names:
        deeper = f"{base}.{alias.name}"
        yield deeper if deeper in MODULES else base


def _only_for_types(node: ast.AST, module: Module) -> bool:
    """Whether an import stands under `if TYPE_CHECKING`: it is never executed."""
    return any(
        node is inner
        for block in module.tree.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for inner in ast.walk(block)
    )


def _inside_functions(tree: ast.AST) -> set[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for inner in ast.walk(node)
        if inner is not node
    }


# ---------------------------------------------------------------- layers


def _part(name: str) -> str:
    """The part of fnx that a module belongs to: its first folder or file."""
    package, _, rest = name.partition(".")
    if package == "fnx_cuda":
        return "fnx_cuda.check" if rest.split(".")[0] == "check" else package
    return rest.split(".")[0]


def _layer(part: str) -> int | None:
    return next((n for n, layer in enumerate(LAYERS) if part in layer), None)


def test_every_part_has_a_layer():
    parts = {_part(name) for name in MODULES}
    facades = {part for part in parts if part and _layer(part) is None}
    # what is in no layer re-exports: it must hold no function and no class of its own
    for part in facades:
        for name, module in MODULES.items():
            if _part(name) == part and not name.endswith("__main__"):
                kinds = (ast.FunctionDef, ast.ClassDef)
                own = [n.name for n in module.tree.body if isinstance(n, kinds)]
                assert not own, f"{name} is in no layer of LAYERS and defines {own}"


@EACH
def test_imports_point_down(module):
    part = _part(module.name)
    layer = _layer(part)
    if layer is None:  # fnx/__init__.py and other re-exporting modules
        return
    wrong = []
    for name, line in _imports(module):
        target = _part(name)
        if target == part or (target == "" and part in USERS):
            continue
        if part in NARROW:
            allowed = NARROW[part]
            inner = name.removeprefix("fnx.")
            fine = target in allowed or inner in allowed
        else:
            other = _layer(target)
            fine = other is not None and other <= layer and target not in USERS
        if not fine:
            wrong.append(f"{module.path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_import_cycles():
    graph = {
        name: {target for target, _ in _imports(module, top_level_only=True)} - {name}
        for name, module in MODULES.items()
    }
    # importing a submodule of a package from the package's own __init__ is no cycle
    for name, targets in graph.items():
        targets -= {t for t in targets if name.startswith(f"{t}.")}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@EACH
def test_late_imports_state_their_reason(module):
    late = _inside_functions(module.tree)
    wrong = [
        f"{module.path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node in late
        if not _reason(module, node)
    ]
    assert not wrong, "import at the top, or add '# lazy: reason':\n" + "\n".join(wrong)


def _reason(module: Module, node: ast.stmt) -> bool:
    """Whether the statement, or the comment above it, says `# lazy: why`."""
    first = node.lineno - 1
    while first > 0 and module.lines[first - 1].strip().startswith("#"):
        first -= 1
    lines = module.lines[first : node.end_lineno]
    comments = (line.partition("# lazy:")[2].strip() for line in lines)
    return any(comments)


# ---------------------------------------------------------------- docstrings


@EACH
def test_docstrings(module):
    assert ast.get_docstring(module.tree), f"{module.name} has no docstring"
    bare = list(_undocumented(module.tree, module.name))
    assert not bare, "public names without a docstring:\n" + "\n".join(bare)


def _undocumented(node: ast.AST, where: str) -> Iterator[str]:
    """Public functions, classes and methods without a docstring, in module order.

    Methods of a class with bases mostly override documented ones, whose docstrings they
    inherit; which of them do is not to be seen in one file, so they are left out.
    """
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if child.name.startswith("_") or _is_overload(child):
            continue
        name = f"{where}.{child.name}"
        if not ast.get_docstring(child):
            yield name
        if isinstance(child, ast.ClassDef) and not child.bases:
            yield from _undocumented(child, name)


def _is_overload(node: ast.stmt) -> bool:
    """Overloads and property setters share the docstring of their first definition."""
    decorators = map(ast.unparse, getattr(node, "decorator_list", []))
    return any(d.endswith(("overload", ".setter")) for d in decorators)


# ---------------------------------------------------------------- import


def test_import_fnx_is_light():
    code = f"import sys, fnx; print([m for m in {HEAVY!r} if m in sys.modules])"
    run = [sys.executable, "-W", "error", "-c", code]
    loaded = subprocess.check_output(run, cwd=ROOT, text=True).strip()
    assert loaded == "[]", f"`import fnx` loads {loaded}"


def test_import_fnx_works_with_every_heavy_package_absent():
    code = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r})); import fnx"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
