"""Documents with a class, from folders and tables, in any script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from foci.data.lines import Fault, Log, each, empty_field, read_examples, read_lines
from foci.data.tables import LONGEST_TEXT, Column, read_rows
from foci.files import walk
from foci.tasks.frame.class_folders import class_files


class Document(NamedTuple):
    """A text and its class."""

    text: str
    label: str


def read_documents(
    path: str | Path, *, columns: Sequence[Column] = Document._fields, log: Log | None = None
) -> list[Document]:
    """Return the documents of a folder of classes, or of a .csv, .tsv or .jsonl file (+ .gz, .xz).

    Args:
        path: a folder ``class/document.txt``, or a file.
        columns: those of text and class in a table, by the names in its first line or by two zero-based numbers (then
            there is no line of names); the fields of a JSONL file.
        log: called with a message every few seconds.

    Everything is read before a DataError reports the first fault, with its file and line, and their number.
    """
    path = Path(path)
    if path.is_dir():
        entries = _in_folders(path, log)
    else:
        expected = "a folder with a folder of files per class, or .csv, .tsv or .jsonl (also .gz, .xz)"
        rows = read_rows(path, columns, texts=1, expected=expected)
        entries = each(rows, lambda row: _document(row.values[0], row.values[1], path, row.line))
    return read_examples(path, entries, "documents", log, "file or folder")


def _in_folders(path: Path, log: Log | None) -> Iterator[Document | Fault]:
    for file, label in class_files(str(path), lambda folder: ([*walk(folder)], []), "text files", log):
        lines = list(read_lines(Path(file), LONGEST_TEXT))
        fault = next((line for line in lines if isinstance(line, Fault)), None)
        yield fault or _document("\n".join(map(str, lines)), label, Path(file), 1)


def _document(text: str, label: str, path: Path, line: int) -> Document | Fault:
    return empty_field(path, line, text=text, label=label) or Document(text.strip(), label.strip())


def cut(document: Sequence[Sequence[str]], max_words: int) -> list[Sequence[str]]:
    """Return the first ``max_words`` words of a document, in their sentences."""
    kept: list[Sequence[str]] = []
    left = max_words
    for sentence in document:
        if left == 0:
            break
        kept.append(sentence[:left])
        left -= len(kept[-1])
    return kept
