"""README.md is true: its code runs, its output is real, its names and paths exist.

The Python blocks run in order, as one program; a `text` block right after one holds
what it prints, where a line `...` stands for any lines. To write the output anew into
the text blocks (a block with `...` that still matches stays), run
`python tests/test_readme.py`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import linecache
import re
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A Python block, and what it must print: None if no text block follows."""

    code: str
    line: int
    expected: str | None


def snippets():
    blocks = list(FENCE.finditer(TEXT))
    for place, block in enumerate(blocks):
        if block[1] != "python":
            continue
        following = blocks[place + 1] if place + 1 < len(blocks) else None
        paired = following is not None and following[1] == "text"
        paired = paired and not TEXT[block.end() : following.start()].strip()
        line = TEXT.count("\n", 0, block.start()) + 1
        yield Snippet(block[2], line, following[2] if paired else None)


def printed(snippet, names, folder):
    """Run a snippet as the file example.py in a folder and return what it printed."""
    file, lines = "example.py", snippet.code.splitlines(keepends=True)
    linecache.cache[file] = (len(snippet.code), None, lines, file)  # for error texts
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.chdir(folder):
        exec(compile(snippet.code, file, "exec"), names)
    return output.getvalue().rstrip() + "\n"


def matches(expected, found):
    parts = re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)
    return re.fullmatch(".*".join(map(re.escape, parts)), found, re.DOTALL) is not None


def test_snippets(tmp_path):
    names = {"__name__": "example"}
    for snippet in snippets():
        found = printed(snippet, names, tmp_path)
        if not matches(snippet.expected or "\n", found):
            pytest.fail(
                f"README.md:{snippet.line} prints\n{found}\n"
                f"and not\n{snippet.expected}\n"
                "If the new output is right, run: python tests/test_readme.py"
            )


# ---------------------------------------------------------------- names and paths

FUTURE = TEXT[TEXT.index("## What is not there yet") : TEXT.index("## Benchmarks")]
PRESENT = TEXT.replace(FUTURE, "")


def dotted(text):
    return sorted(set(re.findall(r"`(fnx(?:\.\w+)+)", text)))


def exists(name):
    module, _, rest = name.partition(".")
    value = importlib.import_module(module)
    for part in rest.split("."):
        if not hasattr(value, part):
            try:
                importlib.import_module(f"{value.__name__}.{part}")
            except (ImportError, AttributeError):
                return False
        value = getattr(value, part)
    return True


@pytest.mark.parametrize("name", dotted(PRESENT))
def test_names_exist(name):
    assert exists(name)


@pytest.mark.parametrize("name", dotted(FUTURE))
def test_what_is_not_there_yet_is_not_there(name):
    assert not exists(name), f"{name} exists: take it off the list in README.md"


def test_paths_exist():
    paths = re.findall(r"`((?:fnx|tests|benchmarks)/[\w./]*)`", TEXT)
    paths += re.findall(r"\]\((?!#)([^)]+)\)", TEXT)
    assert len(paths) > 5
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def test_links_into_the_file():
    headings = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def test_commands_use_extras_and_modules_that_exist():
    shell = "\n".join(block[2] for block in FENCE.finditer(TEXT) if block[1] == "sh")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert set(re.findall(r'"\.\[(\w+)\]"', shell)) <= set(extras)
    for module in re.findall(r"python -m (fnx[\w.]*|benchmarks)", shell):
        folder = ROOT.joinpath(*module.split("."))
        assert (folder / "__main__.py").exists()


def test_the_layers_are_those_of_the_architecture_test():
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", TEXT, re.MULTILINE)
    written = [set(re.findall(r"`([\w.]+)`", modules)) for _, modules in rows]
    source = (ROOT / "tests/test_architecture.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LAYERS":
            assert written[-len(ast.literal_eval(node.value)) :] == ast.literal_eval(
                node.value
            )
            return
    pytest.fail("tests/test_architecture.py has no LAYERS")


# ---------------------------------------------------------------- writing it anew


def rewrite():
    """Put what the snippets print now into the text blocks of README.md."""
    text, names, end = TEXT, {"__name__": "example"}, 0
    folder = tempfile.mkdtemp()
    for snippet in snippets():
        found = printed(snippet, names, folder)
        if snippet.expected is None:
            continue
        code = f"```python\n{snippet.code}```\n\n"
        start = text.index(code, end) + len(code)
        old = f"```text\n{snippet.expected}```"
        keep = "\n...\n" in snippet.expected and matches(snippet.expected, found)
        new = old if keep else f"```text\n{found}```"
        text = text[:start] + new + text[start + len(old) :]
        end = start
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    rewrite()
