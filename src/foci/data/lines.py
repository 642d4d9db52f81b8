"""Lines of text files, plain or compressed, and the faults that readers report with file and line.

Text is UTF-8, UTF-16 or UTF-32, or what `text_encoding` says (the setting data.encoding). Only a line feed ends a line:
Unicode's other separators occur inside sentences, and splitting there would misalign two files. In a file without any
line feed a carriage return does, as on old systems.
"""

from __future__ import annotations

import gzip
import lzma
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from foci.data.reading import followed
from foci.encodings import AUTO, SAMPLE, TextForm, recognize, shown_as
from foci.errors import DataError
from foci.files import open_regular

Entry = TypeVar("Entry")
Read = TypeVar("Read")

Log = Callable[[str], None]

LONGEST_LINE = 10_000
"""Maximum number of characters per line; a longer one usually means a file with other line ends."""

LONGEST_RUN = 1 << 27
"""Maximum number of bytes without the end of a line; a file with more is not read further."""
UNPACKED, RATIO = 1 << 25, 200
"""A compressed file may unpack to this many bytes, or to this many times its size if that is more."""

_DAMAGED = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError)
"""What damaged compressed files raise."""


class TextEncoding(NamedTuple):
    """The encoding that the user says, or "auto", and the setting that says so, for messages."""

    name: str = AUTO
    setting: str = "data.encoding"


_AUTO = TextEncoding()
_ENCODING: ContextVar[TextEncoding] = ContextVar("encoding", default=_AUTO)


@contextmanager
def text_encoding(name: str, setting: str = "data.encoding") -> Iterator[None]:
    """Read text in this encoding inside of the block; ``setting`` is what messages name.

    It is a state and no argument, since every reader of every task ends in `read_lines`. What is read later, such as a
    stream, keeps `current_encoding` and reads by `in_encoding`.
    """
    token = _ENCODING.set(TextEncoding(name, setting))
    try:
        yield
    finally:
        _ENCODING.reset(token)


def current_encoding() -> TextEncoding:
    """Return the encoding of the block that this is called in."""
    return _ENCODING.get()


def in_encoding(encoding: TextEncoding, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield entries of a lazy reader, which reads in this encoding wherever it is iterated."""
    context = copy_context()
    context.run(_ENCODING.set, encoding)
    ended = object()
    while (entry := context.run(next, entries, ended)) is not ended:
        yield cast("Entry", entry)


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


def read_examples(path: Path, entries: Iterable[Entry | Fault], what: str, where: str = "file") -> list[Entry]:
    """Return all entries of a file.

    Args:
        path: the file, for messages.
        entries: what a reader yields.
        what: their name, in the plural.
        where: what is empty if there are no entries.

    Raises:
        DataError: with the first fault and the number of each kind, or that there are no entries.
    """
    found = list(usable(entries, what))
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
    """Yield the lines of a text file, plain, .gz or .xz, without their ends, one at a time.

    An invalid line is a Fault in its place; a file that cannot be read further ends with one.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            try:
                sample = file.read(SAMPLE)
            except _DAMAGED:
                sample = b""  # what can be read of it is still read
            file.seek(0)
            for line in _lines(file, sample, path, max_characters):
                number += 1
                yield line
    except _DAMAGED as error:
        yield Fault(path, number + 1, "damaged file", f"the compressed file is damaged from here on ({error}).")


def _lines(file: BufferedIOBase, sample: bytes, path: Path, max_characters: int) -> Iterator[str | Fault]:
    form = _form(sample, path)
    if isinstance(form, Fault):
        yield form
        return
    end = "\n".encode(form.encoding)
    beginning = sample.decode(form.encoding, "ignore")
    limit = 4 * max_characters + 2 * len(end)  # no character needs more than four bytes, and two end the line
    raws: Iterable[bytes | int] = _raw_lines(file, end, limit)
    if "\r" in beginning and "\n" not in beginning:
        content = file.read(LONGEST_RUN)  # such files are old and small
        whole = _at_returns(content, form) if end not in content and len(content) < LONGEST_RUN else None
        file.seek(0)
        raws = _raw_lines(file, end, limit) if whole is None else whole
    for number, raw in enumerate(raws, start=1):
        if not isinstance(raw, int):
            yield _line(path, number, raw, form, max_characters)
        elif raw < LONGEST_RUN:
            yield _too_long(path, number, max_characters)
        else:
            reason = f"has no end within {LONGEST_RUN:,} bytes, and nothing more was read. Is it a file of text?"
            yield Fault(path, number, "endless line", reason)


class ArrivingLines:
    """Lines of bytes that arrive in pieces, as from standard input; their encoding is shown by the first piece.

    Args:
        path: the name of what is read, for messages.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.number, self.rest = path, 0, b""
        self.form: TextForm | Fault | None = None

    def add(self, piece: bytes) -> list[str | Fault]:
        """Return the lines that are complete with this piece."""
        self.rest += piece
        # With a first line, whole if it is of two bytes a character, there is enough to see the encoding.
        if self.form is None and b"\n" in self.rest and (b"\0" not in self.rest or len(self.rest) % 2 == 0):
            self.form = _form(self.rest[:SAMPLE], self.path)
            if isinstance(self.form, Fault):
                return [self.form]
        if not isinstance(self.form, TextForm):
            return []
        *raws, self.rest = _split(self.rest, "\n".encode(self.form.encoding))
        return self._decoded(raws, self.form)

    def finish(self) -> list[str | Fault]:
        """Return the lines that are left at the end of the input."""
        if not self.rest or isinstance(self.form, Fault):  # which `add` has returned
            return []
        form = self.form or _form(self.rest[:SAMPLE], self.path)
        if isinstance(form, Fault):
            return [form]
        return self._decoded([self.rest] if self.number else _at_returns(self.rest, form), form)

    def _decoded(self, raws: Sequence[bytes], form: TextForm) -> list[str | Fault]:
        lines = [_line(self.path, self.number + place, raw, form) for place, raw in enumerate(raws, start=1)]
        self.number += len(lines)
        return lines


def _form(sample: bytes, path: Path) -> TextForm | Fault:
    chosen = current_encoding()
    try:
        return recognize(sample, chosen.name)
    except ValueError as error:
        reason = f"{chosen.setting} does not fit the file: {error}. Correct {chosen.setting}, or leave it out."
        return Fault(path, 1, "another encoding", reason)


def _raw_lines(file: BufferedIOBase, end: bytes, limit: int) -> Iterator[bytes | int]:
    """Yield lines with their ends; of one of ``limit`` bytes or more its size, which is the last at `LONGEST_RUN`."""
    read = file.readline if len(end) == 1 else partial(_wide_line, file, end)
    while raw := read(limit):
        if len(raw) < limit or raw.endswith(end):
            yield raw
            continue
        size = len(raw)
        while size < LONGEST_RUN and (rest := read(limit)):
            size += len(rest)
            if rest.endswith(end):
                break
        yield size
        if size >= LONGEST_RUN:
            return


def _split(content: bytes, end: bytes) -> list[bytes]:
    """Return the parts before, between and after the ends, which begin where a character does."""
    parts, start, place = [], 0, -1
    while (place := content.find(end, place + 1)) >= 0:
        if place % len(end) == 0:
            parts.append(content[start:place])
            start = place + len(end)
    return [*parts, content[start:]]


def _at_returns(content: bytes, form: TextForm) -> list[bytes]:
    """Return the lines of a text in which a carriage return ends a line."""
    *parts, rest = _split(content, "\r".encode(form.encoding))
    return [*parts, rest] if rest else parts


def _wide_line(file: BufferedIOBase, end: bytes, limit: int) -> bytes:
    """Return a line of characters of several bytes: byte 10 ends it only where it is a whole character."""
    raw = file.readline(limit)
    while raw:
        raw += file.read(-len(raw) % len(end))
        if raw.endswith(end) or len(raw) >= limit or not (more := file.readline(limit - len(raw))):
            break
        raw += more
    return raw


def _line(path: Path, number: int, raw: bytes, form: TextForm, max_characters: int = sys.maxsize) -> str | Fault:
    encoding = form.encoding
    raw = raw[form.mark :] if number == 1 else raw
    if b"\0" in raw and not encoding.startswith(("utf-16", "utf-32")):
        return Fault(path, number, "zero byte", "the line holds a zero byte, so the file is no text, or damaged.")
    try:
        line = raw.decode(encoding)
    except UnicodeDecodeError as error:
        name, setting = current_encoding()
        shown = "UTF-8" if encoding == "utf-8" else encoding
        cure = f"{shown_as(raw)}Set {setting} to the encoding of the file." if name == AUTO else f"Correct {setting}."
        reason = f"byte {error.start + 1} of the line is not {shown}. {cure}"
        return Fault(path, number, "undecodable bytes", reason)
    line = line.removesuffix("\n").removesuffix("\r")
    return line if len(line) <= max_characters else _too_long(path, number, max_characters)


def _too_long(path: Path, number: int, max_characters: int) -> Fault:
    reason = f"longer than {max_characters} characters. Split the line; files with other line ends look like this too."
    return Fault(path, number, "over-long line", reason)


def open_bytes(path: Path) -> BufferedIOBase:
    """Return the bytes of a file; its first bytes, not its name, determine its compression."""
    try:
        file = followed(open_regular(path), path)
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}).") from error
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return BufferedReader(_Unpacked(path, file, gzip.GzipFile(fileobj=file)), SAMPLE)
    if magic == b"\xfd7zXZ\x00":
        return BufferedReader(_Unpacked(path, file, lzma.LZMAFile(file)), SAMPLE)
    return file


def check_unpacked(path: Path, size: int, packed: int) -> None:
    """Raise a DataError if a file unpacks to more bytes than `UNPACKED` and `RATIO` allow for those that are packed."""
    if size > max(UNPACKED, RATIO * packed):
        raise DataError(
            f"{path}: unpacks to more than {RATIO} times its size ({size:,} bytes), as a file made to fill the memory "
            "does. If it holds what you expect, unpack it and name the unpacked file."
        )


class _Unpacked(RawIOBase):
    """The bytes of a compressed file; one that unpacks to absurdly many is an error before they are read.

    Args:
        path: the file, for messages.
        packed: its compressed bytes.
        unpacked: what decompresses them.
    """

    def __init__(self, path: Path, packed: BufferedIOBase, unpacked: gzip.GzipFile | lzma.LZMAFile) -> None:
        self.path, self.packed, self.unpacked = path, packed, unpacked

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.unpacked.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        content = self.unpacked.read1(len(buffer))  # no more, so that what precedes a damaged part is still read
        buffer[: len(content)] = content
        check_unpacked(self.path, self.unpacked.tell(), self.packed.tell())
        return len(content)

    def close(self) -> None:
        super().close()
        self.unpacked.close()
        self.packed.close()
