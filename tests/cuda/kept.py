"""Keeps the CUDA C that tests run, so that NVRTC can compile all of it afterwards.

The environment variable FNX_KEEP_CUDA names a folder: each text that the emulator has
compiled is written there, once, whatever number of processes runs the tests. Next:
`nvrtc_job.py`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

FOLDER = "FNX_KEEP_CUDA"


def keeping(compile_text: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """A compiler that keeps the texts that another one compiles."""

    def compile(text: str) -> bytes:
        code = compile_text(text)
        folder = os.environ.get(FOLDER)
        # The emulator's own tests may run behind those of fnx, in the same process.
        own = "fnx_emulated" in text and "#if" not in text
        if folder and not own:
            keep(text, Path(folder))
        return code

    return compile


def keep(text: str, folder: Path) -> None:
    """Writes a text into a folder, unless it is there."""
    file = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.cu"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, file)
