"""`fnx.doctor()`: what fnx has found on this machine, what is missing, how to get it.

Receives nothing; asks the CPU, the caches and every backend with devices, and gives a
`Report`, which prints itself. Nothing here raises because something is missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress

from fnx import cache
from fnx.config import config
from fnx.cpu.threads import cpus, num_threads
from fnx.records import record
from fnx.runtime.backend import Finding, backend, device_backend, device_platforms
from fnx.runtime.device import default_device, devices_of, found

# The features of CPUs that people know; LLVM uses all that there are.
_FEATURES = ("sse4.2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bf16", "neon")
_PACKAGES = ("numpy", "scipy", "llvmlite", "optree", "ml_dtypes")


@record
class Report:
    """What was found, a `Finding` a line: what was looked at, what is there, the fix.

    `ok` says that nothing is to be fixed.
    """

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is nothing to be fixed."""
        return not any(finding.fix for finding in self.findings)

    def __str__(self) -> str:
        """A line for each finding, and one more where there is something to do."""
        width = max(len(finding.what) for finding in self.findings)
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.what:{width}}  {finding.found}")
            if finding.fix:
                lines.append(f"{'':{width}}  -> {finding.fix}")
        return "\n".join(lines)

    __repr__ = __str__


def doctor() -> Report:
    """Prints what fnx has found on this machine, and gives it as a `Report`.

    Versions, the CPU and its threads, the caches, and for each kind of GPU whether
    there is one that can be used; where something is missing, how to get it.

    >>> import fnx
    >>> report = fnx.doctor()  # doctest: +ELLIPSIS
    fnx ...
    >>> report.findings[0].what
    'fnx'
    """
    found = report()
    print(found)
    return found


def report() -> Report:
    """What `doctor` prints."""
    return Report((*_versions(), *_cpu(), *_caches(), *_devices(), _default_device()))


def _versions() -> list[Finding]:
    findings = [
        Finding("fnx", _version("fnx") or "not installed: run from its sources"),
        Finding("Python", f"{platform.python_version()} on {platform.platform()}"),
    ]
    for name in _PACKAGES:
        version = _version(name)
        fix = "" if version else f"pip install {name}"
        findings.append(Finding(name, version or "missing", fix))
    return findings


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _cpu() -> list[Finding]:
    try:
        name, features, *_ = backend("cpu").machine().split(" ")
        shown = [name for name in _FEATURES if f"+{name}" in features.split(",")]
        compiler = Finding("CPU", f"{name}, {', '.join(shown) or 'no vector units'}")
    except ImportError as error:
        text = f"programs run by NumPy, since there is no compiler ({error})"
        compiler = Finding("CPU", text, "pip install llvmlite")
    threads = f"{num_threads()} of {cpus()} processors"
    return [compiler, Finding("threads", threads)]


def _caches() -> list[Finding]:
    if not config.disk_cache:
        return [Finding("disk cache", "off (FNX_DISK_CACHE)")]
    info = cache.info()
    size = f"{info.entries} programs, {info.nbytes / 2**20:.1f} MiB"
    folder = info.directory
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    usable = os.access(folder, os.W_OK)
    fix = "" if usable else "name a folder that can be written to: FNX_CACHE_DIR"
    where = f"{size} in {info.directory}"
    return [Finding("disk cache", where if usable else f"cannot write: {where}", fix)]


def _devices() -> list[Finding]:
    findings: list[Finding] = []
    for name in device_platforms():
        there = found(name)
        if there.kinds:
            kinds = zip(devices_of(name), there.kinds, strict=True)
            findings += [Finding(f"{device}", kind) for device, kind in kinds]
        else:
            fix = there.fix if there.unusable else ""
            text = f"{there.reason}{f' ({there.fix})' * bool(there.fix and not fix)}"
            findings.append(Finding(name, f"none: {text}", fix))
        with suppress(ImportError):  # `found` has said so
            findings += device_backend(name).findings()
    return findings


def _default_device() -> Finding:
    chosen = config.default_device
    why = "" if chosen is None else f", as fnx.config.default_device={chosen!r} says"
    return Finding("programs run on", f"{default_device()}{why}")


__all__ = ["Report", "doctor"]
