"""Lines of text files, plain or compressed, and the faults that readers report with file and line.

Text is UTF-8. Only a line feed ends a line: Unicode's other separators occur inside sentences, and splitting there
would misalign two files.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple, TypeVar

from foci.errors import DataError

Entry = TypeVar("Entry")


Log = Callable[[str], None]


_HEADERS = frozenset(
    [
        "answer",
        "audio",
        "body",
        "category",
        "class",
        "comment",
        "content",
        "document",
        "en",
        "file",
        "fr",
        "de",
        "zh",
        "es",
        "id",
        "image",
        "input",
        "label",
        "labels",
        "output",
        "path",
        "question",
        "review",
        "sentence",
        "source",
        "src",
        "tag",
        "target",
        "text",
        "tgt",
        "title",
        "topic",
        "transcript",
        "translation",
        "wav",
    ]
)
"""Common names of columns, in lower case."""


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


def looks_like_header(cells: Sequence[str]) -> bool:
    """Return whether these cells of a first line are names of columns rather than data."""
    names = [cell.strip().lower() for cell in cells]
    return len(set(names)) == len(names) and all(name in _HEADERS for name in names)


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


def ragged(cells: int, width: int) -> str:
    """Return what is wrong with a row of a table that has another number of cells than the first one."""
    return f"the row has {cells} cells, but the first line has {width}. Quote or remove separators inside a cell."


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
