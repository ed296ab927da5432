"""CUDA C text to functions that can be launched.

Receives a kernel's text; `compile_text` rewrites the few constructs that C++ lacks,
adds a table of the text's kernels, and has g++ compile it; `load` opens the result and
gives its kernels. What the emulator calls a cubin is the shared object's path. Next:
native.py.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import native

MAGIC = b"fnx emulator module "

_DYNAMIC = re.compile(
    r"\bextern\s+__shared__\s+((?:__align__\s*\([^)]*\)\s*)?)"
    r"([A-Za-z_][\w\s]*?)\s*\b(\w+)\s*\[\s*\]\s*;"
)
# A text may declare the functions of shim.h that it calls.
_DECLARED = re.compile(r"\bvoid\s+fnx_emulated_\w+\s*\([^;{}]*?\)\s*;")
_BOUNDS = re.compile(r"\b__launch_bounds__\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a loaded module."""

    name: str
    run: int
    sizes: tuple[int, ...]  # of the parameters, in bytes
    bounds: tuple[int, int]  # of __launch_bounds__; 0 where not given
    shared: tuple[tuple[str, int, int], ...]  # static arrays: name, offset, size

    @property
    def static_shared(self) -> int:
        """Bytes of its static shared memory."""
        return sum(size for _, _, size in self.shared)


@dataclass(frozen=True)
class Image:
    """A loaded module: its kernels, and where its own variables lie."""

    library: ctypes.CDLL
    kernels: dict[str, Kernel]
    own: tuple[int, ...]  # start and size of .data, .bss and .rodata
    shared_start: int
    shared_size: int


# ---------------------------------------------------------------- compiling


def translation_unit(text: str) -> str:
    """A kernel's text as g++ takes it, with line numbers kept."""
    body = _DYNAMIC.sub(r"\2* const \3 = (\2*)fnx_dynamic_shared;", text)
    # In this text's namespace a declaration would be one of another function.
    body = _DECLARED.sub(lambda found: "\n" * found[0].count("\n"), body)
    table = "".join(
        f"FNX_KERNEL({name}, {threads}, {blocks})\n"
        for name, threads, blocks in _kernels(text)
    )
    # Nothing of a text is seen outside of it: g++ drops what no kernel uses, and the
    # statics of inline functions are plain ones, which may lie in their own section.
    return f'namespace {{\n#line 1 "kernel"\n{body}\n#line 1 "table"\n{table}}}\n'


def _kernels(text: str) -> list[tuple[str, str, str]]:
    """Name and launch bounds of each kernel that a text defines."""
    text = _COMMENT.sub(" ", text)
    found = {}
    for match in re.finditer(r"\b__global__\b", text):
        # attributes stand between the end of what is before and the parameters
        start = max(text.rfind(c, 0, match.start()) for c in ";}") + 1
        bounds = "0", "0"
        given = _BOUNDS.search(text, start)
        opening = text.find("(", match.end())
        if given and given.end() - 1 <= opening:
            closing = _closing(text, given.end() - 1)
            threads, *rest = _split(text[given.end() : closing])
            bounds = threads, rest[0] if rest else "0"
            opening = text.find("(", max(closing, match.end()))
        name = text[:opening].split()[-1]
        if text[_closing(text, opening) + 1 :].lstrip().startswith("{"):
            found[name] = bounds
    return [(name, *bounds) for name, bounds in found.items()]


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis that opens at `opening` closes."""
    depth = 0
    for n in range(opening, len(text)):
        depth += (text[n] == "(") - (text[n] == ")")
        if depth == 0:
            return n
    return len(text) - 1


def _split(text: str) -> list[str]:
    """Text at its commas that stand in no parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def compile_text(text: str) -> bytes:
    """Compile a text; the bytes stand for what NVRTC calls a cubin.

    Raises `native.CompileError` with g++'s messages.
    """
    return MAGIC + str(native.shared_object(translation_unit(text))).encode()


def compile_all(texts: Sequence[str]) -> list[bytes]:
    """Compile several texts, as many at a time as there are processors."""
    if len(texts) == 1:
        return [compile_text(texts[0])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_text, texts))


# ---------------------------------------------------------------- loading


class _Entry(ctypes.Structure):
    """`fnx_kernel` of shim.h."""

    _fields_ = [
        ("run", ctypes.c_uint64),
        ("sizes", ctypes.POINTER(ctypes.c_int)),
        ("count", ctypes.c_int),
        ("threads", ctypes.c_int),
        ("blocks", ctypes.c_int),
    ]


def load(cubin: bytes) -> Image:
    """Open what `compile_text` gave. ValueError where the bytes are something else."""
    if not cubin.startswith(MAGIC):
        raise ValueError("not a module that the emulator has compiled")
    return _load(cubin.removeprefix(MAGIC).decode())


@functools.lru_cache(maxsize=4096)
def _load(path: str) -> Image:
    native.library()
    library = ctypes.CDLL(path)
    elf = _Elf(Path(path).read_bytes())
    entries = elf.symbols("fnx_kernel_")
    if not entries:
        return Image(library, {}, (), 0, 0)
    name, (value, _) = next(iter(entries.items()))
    base = ctypes.addressof(ctypes.c_char.in_dll(library, name)) - value
    ranges = elf.sections(lambda name: name.startswith("fnx_shared_"))
    if len(ranges) > native.GUARDS + 1:
        raise ValueError(f"the emulator takes {native.GUARDS} shared arrays a text")
    shared = elf.symbols("", within=ranges)
    first = min((offset for offset, _ in shared.values()), default=0) - native.GUARD
    end = max((offset + size for offset, size in shared.values()), default=0)
    kernels = {}
    for symbol in entries:
        entry = _Entry.in_dll(library, symbol)
        name = symbol.removeprefix("fnx_kernel_")
        arrays = [
            (_local_name(s), offset - first, size)
            for s, (offset, size) in shared.items()
            if _belongs(s, name, entries)
        ]
        sizes = tuple(entry.sizes[: entry.count])
        bounds = entry.threads, entry.blocks
        kernels[name] = Kernel(name, entry.run, sizes, bounds, tuple(arrays))
    own = [
        number
        for name in (".data", ".bss", ".rodata")
        for low, high in elf.sections(lambda found, name=name: found == name)
        for number in (base + low, high - low)
    ]
    size = end + native.GUARD - first if shared else 0
    return Image(library, kernels, tuple(own), base + first, size)


def _belongs(symbol: str, kernel: str, entries: dict[str, tuple[int, int]]) -> bool:
    """Whether a static array is the kernel's, or that of a function it may call."""
    owners = [n.removeprefix("fnx_kernel_") for n in entries]
    match = re.match(r"_ZZ(?:N12_GLOBAL__N_1)?(\d+)(\w+)", symbol)
    owner = match[2][: int(match[1])] if match else ""
    return owner == kernel or owner not in owners


def _local_name(symbol: str) -> str:
    """The name of a variable in its function: the last part of its mangled name."""
    for match in re.finditer(r"E(\d+)", symbol):
        end = match.end() + int(match[1])
        if end <= len(symbol) and re.fullmatch(r"(_\d+)?(\.\d+)?", symbol[end:]):
            return symbol[match.end() : end]
    return symbol


class _Elf:
    """Symbols and sections of a 64-bit shared object."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        (offset,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        self._sections = [
            struct.unpack_from("<IIQQQQIIQQ", data, offset + n * size)
            for n in range(count)
        ]
        self._names = self._sections[names][4]

    def _text(self, start: int) -> str:
        return self._data[start : self._data.index(b"\0", start)].decode()

    def sections(self, wanted: Callable[[str], bool]) -> list[tuple[int, int]]:
        """The addresses, from and to, of the sections with such names."""
        return [
            (entry[3], entry[3] + entry[5])
            for entry in self._sections
            if wanted(self._text(self._names + entry[0]))
        ]

    def symbols(
        self, prefix: str, within: list[tuple[int, int]] | None = None
    ) -> dict[str, tuple[int, int]]:
        """Address and size of the named symbols, or of those in some ranges."""
        found = {}
        for kind, at, size, link in ((s[1], s[4], s[5], s[6]) for s in self._sections):
            if kind != 2:  # SHT_SYMTAB
                continue
            names = self._sections[link][4]
            for name, info, _, where, value, length in struct.iter_unpack(
                "<IBBHQQ", self._data[at : at + size]
            ):
                if info & 15 != 1 or not where:  # STT_OBJECT, defined
                    continue
                if within is not None and not any(a <= value < b for a, b in within):
                    continue
                text = self._text(names + name)
                if text.startswith(prefix):
                    found[text] = value, length
        return found
