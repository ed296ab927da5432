"""The disk cache: compiled programs that later processes find instead of compiling.

Entries are files named by what they hold the result of, in `directory()`. They are
written beside their place and moved there, so that any number of processes can share
them; each carries a checksum, and what is torn, foreign or made by another version is
compiled anew and replaced. The oldest entries go when all together are larger than
`fnx.config.cache_megabytes`. `fnx.config.disk_cache` turns it off.
Receives and gives bytes. Next on the walk: `fnx/tree.py`.
"""

from __future__ import annotations

import itertools
import os
import stat
import sys
import threading
import zlib
from contextlib import suppress
from typing import NamedTuple

from fnx.config import config

_MAGIC = b"fnx cache 2\n"
_SUFFIX, _DRAFT = ".fnx", ".draft"


class Info(NamedTuple):
    """What the disk cache holds, and what this process found there and did not."""

    directory: str
    entries: int
    nbytes: int
    hits: int
    misses: int


_hits = _misses = 0
# Bytes in the directory when it was last looked through, and what was added since.
_known_size: int | None = None


def directory() -> str:
    """The path of the folder of the entries; it may not be there yet.

    The environment variable `FNX_CACHE_DIR` names it; otherwise it is `fnx` in the
    user's cache folder.

    >>> import os
    >>> import fnx
    >>> os.path.isabs(fnx.cache.directory())
    True
    """
    named = os.environ.get("FNX_CACHE_DIR")
    folder = named or os.path.join(_user_folder(), "fnx")
    return os.path.abspath(os.path.expanduser(folder))


def _user_folder() -> str:
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or r"~\AppData\Local"
    if sys.platform == "darwin":
        return "~/Library/Caches"
    return os.environ.get("XDG_CACHE_HOME") or "~/.cache"


def info() -> Info:
    """How many entries there are, how large they are, and how often they served.

    >>> import fnx
    >>> fnx.cache.info().entries >= 0
    True
    """
    sizes = [size for _, size, _ in _entries()]
    return Info(directory(), len(sizes), sum(sizes), _hits, _misses)


def clear() -> None:
    """Deletes every entry; running programs are not touched."""
    global _known_size
    for _, _, path in _entries():
        _delete(path)
    _known_size = None


def key(*parts: str) -> str:
    """The name of the entry for what these texts say together."""
    # lazy: `import fnx` needs no hash, and OpenSSL takes five milliseconds to load
    import hashlib

    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def load(key: str) -> bytes | None:
    """What was stored under a key, if it is there and whole."""
    global _hits, _misses
    folder = directory()
    path = os.path.join(folder, key + _SUFFIX)
    with suppress(OSError):
        if _is_ours(folder):
            with open(path, "rb") as file:
                head, content = file.read(len(_MAGIC) + 4), file.read()
            if head == _head(key, content):
                with suppress(OSError):  # the folder may be for reading only
                    os.utime(path)  # its turn to be deleted comes later
                _hits += 1
                return content
    _misses += 1
    return None


def store(key: str, content: bytes) -> None:
    """Stores bytes under a key; where that is not possible, nothing happens."""
    folder = directory()
    path = os.path.join(folder, key + _SUFFIX)
    mine = f"{os.getpid()}-{threading.get_ident()}-{next(_numbers)}"
    draft = os.path.join(folder, f"{key}-{mine}{_DRAFT}")
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _is_ours(folder):
            return
        try:
            with open(draft, "xb") as file:
                file.write(_head(key, content) + content)
            os.replace(draft, path)
        except OSError:
            _delete(draft)
            raise
        _grown(len(content))


_numbers = itertools.count()


def _head(key: str, content: bytes) -> bytes:
    """What stands before the content: whether that is whole, and of this key."""
    checksum = zlib.crc32(content, zlib.crc32(key.encode()))
    return _MAGIC + checksum.to_bytes(4, "little")


def _is_ours(folder: str) -> bool:
    """Whether nobody else can write there: what is loaded is run."""
    if sys.platform == "win32":  # the user's folders are the user's
        return True
    status = os.stat(folder)
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.getuid() and not status.st_mode & others


def _entries() -> list[tuple[float, int, str]]:
    """Time of last use, size and path of each entry."""
    found = []
    with suppress(OSError), os.scandir(directory()) as files:
        for file in files:
            if file.name.endswith((_SUFFIX, _DRAFT)):
                with suppress(OSError):  # another process deleted it
                    status = file.stat()
                    found.append((status.st_mtime, status.st_size, file.path))
    return found


def _grown(nbytes: int) -> None:
    """Deletes what was not used for longest when the cache has grown too large."""
    global _known_size
    limit = config.cache_megabytes * 2**20
    if _known_size is not None:
        _known_size += nbytes
    if _known_size is None or _known_size > limit:
        entries = sorted(_entries())
        _known_size = sum(size for _, size, _ in entries)
        # A little more than necessary, so that not every store has to look.
        goal = limit - limit // 8 if _known_size > limit else limit
        for _, size, path in entries:
            if _known_size <= goal:
                break
            _delete(path)
            _known_size -= size


def _delete(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


__all__ = ["Info", "clear", "directory", "info"]
