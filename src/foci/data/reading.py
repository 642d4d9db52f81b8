"""How far the files of the data have been read, logged while that takes long.

It is a state and no argument, like the encoding: every reader of every task opens its files by one function
(`foci.data.lines.open_bytes`), and a stream is read several times before the training starts.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

SECONDS, SHARE = 5.0, 0.1
"""From one message to the next: this many seconds, or this share of the time so far if that is more."""


class _Reading:
    """What is read, and how far.

    Args:
        what: what is being done, for the messages.
        log: called with each message.
    """

    def __init__(self, what: str, log: Callable[[str], None]) -> None:
        self.what, self.log = what, log
        self.begun = self.last = time.monotonic()
        self.passes: Counter[Path] = Counter()
        self.bytes = 0

    def advance(self, path: Path, count: int, share: float) -> None:
        """Note that ``count`` more bytes of a file were read, up to a share of it."""
        self.bytes += count
        now = time.monotonic()
        if now - self.last >= max(SECONDS, SHARE * (now - self.begun)):
            self.last = now
            number = f"pass {self.passes[path] + 1} over " if self.passes[path] else ""
            self.log(f"{self.what}: {self.bytes / 1e6:,.0f} MB read, {number}{path.name} {share:.0%}")

    def finish(self, path: Path) -> None:
        """Note that a file was read to its end."""
        self.passes[path] += 1


_READING: ContextVar[_Reading | None] = ContextVar("reading", default=None)


@contextmanager
def logged_reading(what: str, log: Callable[[str], None]) -> Iterator[None]:
    """Log how far files are read inside of the block, if that takes more than some seconds."""
    token = _READING.set(_Reading(what, log))
    try:
        yield
    finally:
        _READING.reset(token)


def followed(file: BufferedReader, path: Path) -> BufferedReader:
    """Return a file whose reading is logged, inside of `logged_reading`; otherwise the file itself."""
    reading = _READING.get()
    return file if reading is None else BufferedReader(_Followed(file, path, reading), 1 << 16)


class _Followed(RawIOBase):
    def __init__(self, file: BufferedReader, path: Path, reading: _Reading) -> None:
        self.file, self.path, self.reading = file, path, reading
        self.size = max(os.fstat(file.fileno()).st_size, 1)
        self.ended = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(buffer)
        if count:
            self.reading.advance(self.path, count, self.file.tell() / self.size)
        self.ended = self.ended or not count
        return count

    def close(self) -> None:
        if self.ended and not self.closed:
            self.reading.finish(self.path)
        super().close()
        self.file.close()
