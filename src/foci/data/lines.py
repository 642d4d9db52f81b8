"""Lines of text files, plain or compressed, and the faults that readers report with file and line.

Text is UTF-8. Only a line feed ends a line: Unicode's other separators occur inside sentences, and splitting there
would misalign two files.
"""

from __future__ import annotations

import gzip
import lzma
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple, TypeVar

from foci.errors import DataError

Entry = TypeVar("Entry")
Read = TypeVar("Read")

Log = Callable[[str], None]

LONGEST_LINE = 10_000
"""Maximum number of characters per line; a longer one usually means a file with other line ends."""


class Fault(NamedTuple):
    """An invalid line: its location, the kind of fault in two or three words, and the reason in full."""

    path: Path
    line: int
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}"


def ending_of(path: str | Path) -> str:
    """Return the ending of a file's name in lower case, without that of a compression.

    Example:
        >>> ending_of("a.b/News.TSV.gz")
        '.tsv'
    """
    endings = [ending.lower() for ending in Path(path).suffixes if ending.lower() not in (".gz", ".xz")]
    return endings[-1] if endings else ""


def usable(entries: Iterable[Entry | Fault], what: str) -> Iterator[Entry]:
    """Yield the valid entries; raise a DataError at the end with the first fault and the number of each kind."""
    first: Fault | None = None
    kinds: Counter[str] = Counter()
    good = 0
    for entry in entries:
        if isinstance(entry, Fault):
            first = first or entry
            kinds[entry.kind] += 1
        else:
            good += 1
            yield entry
    if first is not None:
        kinds_text = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common())
        faults = f"{kinds.total()} faults" if kinds.total() > 1 else "1 fault"
        raise DataError(f"{first}\n{faults} beside {good} good {what}: {kinds_text}. Correct or remove these lines.")


def strict(entries: Iterable[Entry | Fault]) -> Iterator[Entry]:
    """Yield the entries; the first fault is a DataError."""
    for entry in entries:
        if isinstance(entry, Fault):
            raise DataError(str(entry))
        yield entry


def read_examples(
    path: Path, entries: Iterable[Entry | Fault], what: str, log: Log | None = None, where: str = "file"
) -> list[Entry]:
    """Return all entries of a file.

    Args:
        path: the file, for messages.
        entries: what a reader yields.
        what: their name, in the plural.
        log: called with a message every few seconds.
        where: what is empty if there are no entries.

    Raises:
        DataError: with the first fault and the number of each kind, or that there are no entries.
    """
    found = list(usable(counted(entries, what, log), what))
    if not found:
        raise DataError(f"{path}, line 1: no {what}, the {where} is empty.")
    return found


def each(entries: Iterable[Read | Fault], make: Callable[[Read], Entry | Fault]) -> Iterator[Entry | Fault]:
    """Yield what ``make`` returns for each valid entry, and the faults in their places."""
    return (entry if isinstance(entry, Fault) else make(entry) for entry in entries)


def empty_field(path: Path, line: int, **texts: str) -> Fault | None:
    """Return the fault of the first of these named texts that is empty; None if all have content."""
    name = next((name for name, text in texts.items() if not text.strip()), None)
    return None if name is None else Fault(path, line, f"empty {name}", f"the {name} is empty.")


def counted(items: Iterable[Entry], what: str, log: Log | None, seconds: float = 5.0) -> Iterator[Entry]:
    """Yield the items, and log every ``seconds`` how many were read."""
    last = time.monotonic()
    for number, item in enumerate(items, start=1):
        if log is not None and number % 1000 == 0 and time.monotonic() - last >= seconds:
            last = time.monotonic()
            log(f"read {number:,} {what}")
        yield item


def read_lines(path: Path, max_characters: int = LONGEST_LINE) -> Iterator[str | Fault]:
    """Yield the lines of a UTF-8 file, plain, .gz or .xz, without their ends, one at a time.

    An invalid line is a Fault in its place; a file that cannot be read further ends with one.
    """
    limit = 4 * max_characters + 2  # no character needs more than four bytes, and two end the line
    number = 0
    try:
        with open_bytes(path) as file:
            while raw := file.readline(limit):
                number += 1
                if len(raw) < limit or raw.endswith(b"\n"):
                    yield _line(path, number, raw, max_characters)
                    continue
                while (rest := file.readline(limit)) and not rest.endswith(b"\n"):
                    pass
                yield _too_long(path, number, max_characters)
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        yield Fault(path, number + 1, "damaged file", f"the compressed file is damaged from here on ({error}).")


def _line(path: Path, number: int, raw: bytes, max_characters: int) -> str | Fault:
    raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} of the line is not UTF-8. Convert the file: iconv -f OLD -t UTF-8."
        return Fault(path, number, "undecodable bytes", reason)
    line = line.removesuffix("\n").removesuffix("\r")
    return line if len(line) <= max_characters else _too_long(path, number, max_characters)


def _too_long(path: Path, number: int, max_characters: int) -> Fault:
    reason = f"longer than {max_characters} characters. Split the line; files with other line ends look like this too."
    return Fault(path, number, "over-long line", reason)


def open_bytes(path: Path) -> BufferedIOBase:
    """Return the bytes of a file; its first bytes, not its name, determine its compression."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}).") from error
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        file.close()
        return gzip.open(path, "rb")
    if magic == b"\xfd7zXZ\x00":
        file.close()
        return lzma.open(path, "rb")
    return file
