"""Plain text for language models: files, folders, JSONL, plain or compressed; and a text that needs no file.

    TextFiles("book.txt")               one document, however long
    TextFiles("folder", pattern="*.md") one document per file, in the order of their paths
    TextFiles("news.jsonl")             one document per line, in the field ``text``
    python_reference()                  the language reference that comes with Python

A reader holds one piece of a document at a time, so that files may be larger than memory. Text is not changed but for
its normal form; its encoding is that of `foci.data.lines`. What of it is held out: `foci.tasks.generate.passages`.
"""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from foci.data.lines import Fault, current_encoding, ending_of, in_encoding, open_bytes, usable
from foci.data.tables import JSON, TableRow, read_rows
from foci.encodings import recognize, shown_as
from foci.errors import ConfigError, DataError
from foci.scripts import NormalForm, normalized

_BLOCK = 1 << 16
"""Bytes that are read at a time."""


class TextDocument(NamedTuple):
    """A document, or a piece of one."""

    text: str


class TextPiece(NamedTuple):
    """A piece of a document: which document, counted from 0, its text, and whether another document follows it."""

    document: int
    text: str
    ends: bool = False


class TextFiles:
    """The documents of a file or folder; can be iterated again and again.

    Args:
        path: a text file, a .jsonl file, or a folder of either, plain, .gz or .xz.
        field: the field of a JSONL file that holds the text.
        pattern: which files of a folder are read, by their names.
        max_characters: how many characters are read of each document. Default: all.
        normalize: the normal form of the text.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        field: str = "text",
        pattern: str = "*",
        max_characters: int | None = None,
        normalize: NormalForm = "none",
    ) -> None:
        self.path, self.field, self.pattern, self.max_characters = Path(path), field, pattern, max_characters
        self.encoding, self.normalize = current_encoding(), normalize
        if max_characters is not None and max_characters < 1:
            raise ConfigError(f"TextFiles: max_characters is {max_characters}, expected at least 1.")

    def files(self) -> list[Path]:
        """Return the files that are read, in order."""
        if not self.path.is_dir():
            return [self.path]
        inside = sorted(
            entry
            for entry in self.path.rglob("*")
            if entry.is_file() and not any(part.startswith(".") for part in entry.relative_to(self.path).parts)
        )
        chosen = [entry for entry in inside if fnmatch(entry.name, self.pattern)]
        if not chosen:
            what = f"{len(inside)} files, none of which matches {self.pattern!r}" if inside else "no files"
            raise DataError(f"{self.path}: the folder has {what}, expected text files.")
        return chosen

    def __iter__(self) -> Iterator[TextPiece]:
        """Yield the pieces of all documents; a file that cannot be used raises a DataError with its line."""
        return in_encoding(self.encoding, self._pieces())

    def _pieces(self) -> Iterator[TextPiece]:
        number = -1
        for file in self.files():
            if ending_of(file) in JSON:
                for text in usable(_objects(file, self.field), "documents"):
                    number += 1
                    yield from self._cut(number, iter([text]))
            else:
                number += 1
                yield from self._cut(number, _blocks(file))

    def documents(self) -> list[TextDocument]:
        """Return all documents, each in one piece."""
        parts: dict[int, list[str]] = {}
        for piece in self:
            parts.setdefault(piece.document, []).append(piece.text)
        found = [TextDocument("".join(texts)) for texts in parts.values()]
        if not any(one.text for one in found):
            raise self.no_text()
        return found

    def no_text(self) -> DataError:
        """Return the error for files without text."""
        return DataError(f"{self.path}, line 1: there is no text, the file or folder is empty.")

    def _cut(self, number: int, texts: Iterator[str]) -> Iterator[TextPiece]:
        left = self.max_characters
        for text in texts:
            text = normalized(text, self.normalize)
            kept = text if left is None else text[:left]
            if kept:
                yield TextPiece(number, kept)
            if left is not None:
                left -= len(kept)
                if left == 0:
                    return


def _objects(path: Path, field: str) -> Iterator[str | Fault]:
    for row in read_rows(path, (field,), texts=1):
        if isinstance(row, TableRow):
            nothing = Fault(path, row.line, "field without text", f"field {field!r} holds no text.")
            yield row.values[0] or nothing
        elif row.kind != "empty line":
            yield row


def _blocks(path: Path) -> Iterator[str]:
    """The text of a file, piece by piece; pieces end where a line does, so that no word is cut."""
    held, lines = "", 1
    chosen = current_encoding()
    hint = "of a folder choose text files with data.pattern='*.txt'."
    try:
        with open_bytes(path) as file:
            block = file.read(_BLOCK)
            try:
                form = recognize(block, chosen.name)
            except ValueError as error:
                raise DataError(f"{path}, line 1: {chosen.setting} does not fit the file: {error}.") from error
            decoder = codecs.getincrementaldecoder(form.encoding)()
            block = block[form.mark :]
            while True:
                try:
                    text = decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    line = lines + error.object[: error.start].count(b"\n")
                    name = "UTF-8" if form.encoding == "utf-8" else form.encoding
                    start = error.object.rfind(b"\n", 0, error.start) + 1
                    shown = shown_as(error.object[start : error.start + 32].split(b"\n")[0])
                    raise DataError(
                        f"{path}, line {line}: is not {name} ({error.reason}). {shown}Set {chosen.setting} to the "
                        f"encoding of the file; {hint}"
                    ) from error
                if "\0" in text:
                    line = lines + text[: text.index("\0")].count("\n")
                    raise DataError(
                        f"{path}, line {line}: holds a zero byte, so it is a binary file, expected text. Name text "
                        f"files; {hint}"
                    )
                lines += text.count("\n")
                held += text
                if not block:
                    break
                end = held.rfind("\n") + 1 or (len(held) if len(held) > 4 * _BLOCK else 0)
                if end:
                    yield held[:end]
                    held = held[end:]
                block = file.read(_BLOCK)
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise DataError(f"{path}, line {lines}: the compressed file is damaged from here on ({error}).") from error
    if held:
        yield held


def python_reference(max_characters: int | None = None) -> list[TextDocument]:
    """Return the chapters of the Python language reference that its help system has, from the standard library.

    Args:
        max_characters: how many characters are taken of each chapter. Default: all.
    """
    from pydoc_data.topics import topics

    return [TextDocument(topics[name][:max_characters]) for name in sorted(topics)]
