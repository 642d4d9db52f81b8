"""Files read within bounds; atomic writes, after which a file is the complete new one or the old one; folders."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, NamedTuple

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

MAX_PIXELS = 1 << 26
"""Images with more pixels than this (8,192 × 8,192) are refused; as RGB it takes 200 MB."""

MAX_BYTES = 1 << 28
"""Settings, vocabularies and other files that are read whole are refused above this size (268 MB)."""


class _Expanded:
    """Tells pydantic to expand ``~`` and ``$VARIABLES`` of a path; "none" is no path, so that it means None."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(expanded, handler(source))


def expanded(path: str) -> str:
    """Return a path of the settings as an absolute one."""
    if path.lower() == "none":
        raise ValueError("expected a path")
    return os.path.abspath(os.path.expandvars(os.path.expanduser(path)))


FilePath = Annotated[str, _Expanded()]
"""A path in the settings; it is made absolute, so that a run works from any folder."""


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file to read its bytes.

    A pipe, a socket or a device is refused at once: opening it may wait for ever, and reading it may never end.

    Raises:
        OSError: it is no regular file, or cannot be opened.
    """
    return open(path, "rb", opener=regular_descriptor)


def regular_descriptor(path: str, flags: int) -> int:
    """Open a regular file or a folder: an ``opener`` for Python's ``open``, which itself refuses folders."""
    # O_NONBLOCK opens a pipe without its other end.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is a pipe or a device, expected a regular file; copy it into one", path)


def read_bytes(path: str | os.PathLike[str], most: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    Raises:
        OSError: it is larger, or `open_regular` refuses it.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"has {size:,} bytes, expected at most {most:,}", os.fspath(path))
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a UTF-8 file as `read_bytes` does; a UnicodeDecodeError where it is not UTF-8."""
    return read_bytes(path).decode("utf-8")


def cache_folder(*names: str) -> Path:
    """Return a folder for files that can be made again, in $XDG_CACHE_HOME/foci or ~/.cache/foci.

    Raises:
        RuntimeError: there is no home folder.
    """
    # By the specification of XDG_CACHE_HOME a relative path is to be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache").joinpath("foci", *names)


class Listed(NamedTuple):
    """The names of the folders and of the files in a folder, sorted, without hidden ones."""

    folders: list[str]
    files: list[str]


def listed(folder: str | os.PathLike[str]) -> Listed:
    """List a folder; names that begin with a dot, and what macOS adds to archives, are hidden."""
    found = Listed([], [])
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.name != "__MACOSX":
                (found.folders if entry.is_dir() else found.files).append(entry.name)
    return Listed(sorted(found.folders), sorted(found.files))


def walk(folder: str | os.PathLike[str], _above: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield all files of a folder and its folders, in order; links are followed, but not in circles."""
    here = _above | {os.path.realpath(folder)}
    folders, files = listed(folder)
    yield from (os.path.join(folder, name) for name in files)
    for name in folders:
        inner = os.path.join(folder, name)
        if os.path.realpath(inner) not in here:
            yield from walk(inner, here)


def count_endings(paths: Iterable[str]) -> str:
    """Return how many files have each ending, the five most frequent first.

    Example:
        >>> count_endings(["a.TXT", "b/c.txt", "d"])
        '2 × .txt, 1 × no ending'
    """
    counts = Counter(os.path.splitext(path)[1].lower() or "no ending" for path in paths)
    return ", ".join(f"{count:,} × {ending}" for ending, count in counts.most_common(5)) + ", …" * (len(counts) > 5)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process writes into the folder; the lock ends with the process."""
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a name beside ``path`` to write to; it replaces ``path`` when the block succeeds, and is removed otherwise.

    Missing folders are created.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and flush it to the disk; the file is always either the old or the new one."""
    with whole(path) as unfinished, unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Write JSON as `write_bytes` does.

    A name of a file that is not UTF-8, which Python spells with halves of surrogate pairs, is written with escapes.
    """
    write_bytes(path, json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace"))
