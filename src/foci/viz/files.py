"""Files that appear whole or not at all, and the streams that text is written to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class Stream(Protocol):
    """What text can be written to: the standard output, a file, `io.StringIO`."""

    def write(self, text: str, /) -> object:
        """Write the text."""
        ...

    def isatty(self) -> bool:
        """Whether a person is looking."""
        ...


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside ``path`` to write to: it takes the place of ``path`` if the block ends well, else it is removed.

    Missing folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
