"""Compiles all CUDA C that tests have kept, for two generations of GPUs, without a GPU.

    FNX_KEEP_CUDA=kernels python -m pytest -m cuda
    python -m tests.cuda.nvrtc_job kernels

Prints what does not compile, kernels that spill registers, and the largest users of
registers and of shared memory; writes what every kernel takes to `resources.tsv` in the
folder. The exit status is 1 if a text does not compile, or if there is none. Without
NVRTC nothing is done, and the reason is printed.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

from fnx.errors import CompileError
from fnx_cuda import nvrtc
from fnx_cuda.resources import Resources, resources

TARGETS = ("sm_80", "sm_90")
SHOWN = 10


@dataclass(frozen=True)
class Row:
    """What one function of a text takes on one target."""

    file: str
    target: str
    function: str
    takes: Resources

    def cells(self) -> list[str]:
        numbers = [getattr(self.takes, name) for name in COLUMNS]
        return [self.file, self.target, self.function, *map(str, numbers)]


COLUMNS = [field.name for field in fields(Resources)]
HEAD = ["text", "target", "function", *COLUMNS]


@dataclass(frozen=True)
class Done:
    """Everything that was compiled, and what was refused: files and errors."""

    rows: list[Row]
    refused: list[tuple[str, CompileError]]


def compiled(files: Sequence[Path], targets: Sequence[str] = TARGETS) -> Done:
    """Compiles each file for each target, on as many threads as there are cores."""
    compiler = nvrtc.compiler()
    rows, refused = list[Row](), list[tuple[str, CompileError]]()

    def alone(file: Path, target: str) -> None:
        try:
            log = compiler.compile(file.read_text(encoding="utf-8"), target).log
        except CompileError as error:
            refused.append((file.name, error))
        else:
            found = resources(log).items()
            rows.extend(Row(file.stem, target, *pair) for pair in found)

    def several(files: Sequence[Path], target: str) -> None:
        try:
            log = compiler.compile(joined(files), target).log
        except CompileError:  # of which of them is it?
            for file in files:
                alone(file, target)
        else:
            found = [
                (*known, takes)
                for label, takes in resources(log).items()
                if (known := parts(label)) is not None
            ]
            # Together, kernels have other names: no room is made for their registers.
            spilling = {number for number, _, takes in found if takes.spills}
            for number in spilling:
                alone(files[number], target)
            for number, name, takes in found:
                if number not in spilling:
                    rows.append(Row(files[number].stem, target, name, takes))

    groups = [files[n : n + TOGETHER] for n in range(0, len(files), TOGETHER)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [(group, target) for target in targets for group in groups]
        list(pool.map(lambda pair: several(*pair), work))
    return Done(sorted(rows, key=Row.cells), sorted(refused, key=lambda pair: pair[0]))


# Most of the time of a small text is NVRTC's own beginning: together they take half.
TOGETHER = 8


def joined(files: Sequence[Path]) -> str:
    """Texts as one, each in a namespace, where kernels have C++ names."""
    texts = [file.read_text(encoding="utf-8") for file in files]
    return "\n".join(
        f"namespace text{number} {{\n{text.replace(C_NAME, '')}\n}}"
        for number, text in enumerate(texts)
    )


C_NAME = 'extern "C" '


def parts(label: str) -> tuple[int, str] | None:
    """The number of the text and the name of the function in an assembler's name.

    Functions of CUDA's own library that were not inlined belong to no text.
    """
    found = re.match(r"_ZN5text(\d)(\d+)(\w+)", label)
    return None if found is None else (int(found[1]), found[3][: int(found[2])])


def table(rows: Iterable[Row]) -> str:
    """Rows under their heads, in columns."""
    cells = [HEAD, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def report(done: Done) -> str:
    """What is worth a look."""
    parts = [f"{file}: {error}" for file, error in done.refused]
    spilling = [row for row in done.rows if row.takes.spills]
    if spilling:
        parts.append(f"{len(spilling)} kernels spill registers\n{table(spilling)}")
    for what in ("registers", "shared"):
        most = sorted(done.rows, key=lambda row: -getattr(row.takes, what))[:SHOWN]
        parts.append(f"most {what}\n{table(most)}")
    return "\n\n".join(parts)


def main(folder: Path) -> int:
    """Compiles what is in a folder; gives the exit status."""
    try:
        compiler = nvrtc.compiler()
    except CompileError as error:
        print(f"skipped: {error}")
        return 0
    files = sorted(folder.glob("*.cu"))
    if not files:
        print(f"{folder} has no texts: no test ran on the emulator")
        return 1
    start = time.perf_counter()
    done = compiled(files)
    seconds = time.perf_counter() - start
    (folder / "resources.tsv").write_text(
        "\n".join("\t".join(cells) for cells in [HEAD, *map(Row.cells, done.rows)])
    )
    print(report(done))
    print(
        f"\n{compiler.name}: {len(files)} texts for {' and '.join(TARGETS)} in "
        f"{seconds:.0f} s; {len(done.refused)} do not compile"
    )
    return int(bool(done.refused))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
