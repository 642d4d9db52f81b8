"""Documents with a class, from folders and tables, in any script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from foci.data.lines import Fault, Log, each, empty_field, ending_of, read_examples, read_lines
from foci.data.tables import (
    JSON,
    LONGEST_TEXT,
    Column,
    JsonObject,
    check_table,
    field_of,
    json_objects,
    missing_field,
    name_of,
    read_rows,
    text_of,
)
from foci.files import walk
from foci.tasks.frame.class_folders import class_files

_EXPECTED = (
    "a folder with a folder of files per class, .csv, .tsv or .jsonl, or fastText's lines of __label__class and text "
    "(also .gz, .xz)"
)
_PREFIX = "__label__"
_LABEL = re.compile(rf"(?<!\S){_PREFIX}\S*\s?")


class Document(NamedTuple):
    """A text and its class; a tuple has several classes, or none."""

    text: str
    label: str | tuple[str, ...]


def read_documents(
    path: str | Path, *, columns: Sequence[Column] = Document._fields, log: Log | None = None
) -> list[Document]:
    """Return the documents of a folder of classes, a .csv, .tsv or .jsonl file, or lines of fastText (+ .gz, .xz).

    Args:
        path: a folder ``class/document.txt``, or a file.
        columns: those of text and class in a table, by the names in its first line or by two zero-based numbers (then
            there is no line of names); the fields of a JSONL file, in which the class may be a list of classes.
        log: called with a message every few seconds.

    Everything is read before a DataError reports the first fault, with its file and line, and their number.
    """
    path = Path(path)
    if path.is_dir():
        entries = _in_folders(path, log)
    elif ending_of(path) in JSON:
        check_table(path, columns, (), _EXPECTED)
        # Hugging Face and doccano call the field of several classes either way.
        names = ("text", ("label", "labels")) if tuple(columns) == Document._fields else columns
        entries = each(json_objects(path), lambda entry: _in_object(path, entry, names))
    elif ending_of(path) not in (".csv", ".tsv") and path.exists() and _is_fasttext(path):
        entries = _in_fasttext(path)
    else:
        rows = read_rows(path, columns, texts=1, expected=_EXPECTED)
        entries = each(rows, lambda row: _document(row.values[0], [row.values[1]], path, row.line))
    return read_examples(path, entries, "documents", "file or folder")


def _in_object(path: Path, entry: JsonObject, columns: Sequence[Column]) -> Document | Fault:
    record, line = entry
    for column in columns:
        if missing := missing_field(path, line, record, column):
            return missing
    text, label = (field_of(record, column) for column in columns)
    where = [f"field {name_of(column, record)!r}" for column in columns]
    found = [text_of(path, line, text, where[0], True)]
    if isinstance(label, list):
        found += [text_of(path, line, one, f"an entry of {where[1]}", False) for one in label]
    else:
        found.append(text_of(path, line, label, where[1], False))
    fault = next((one for one in found if isinstance(one, Fault)), None)
    return fault or _document(str(found[0]), list(map(str, found[1:])), path, line)


def _is_fasttext(path: Path) -> bool:
    first = next((line for line in read_lines(path, LONGEST_TEXT) if isinstance(line, Fault) or line.strip()), "")
    return isinstance(first, str) and first.lstrip().startswith(_PREFIX)


def _in_fasttext(path: Path) -> Iterator[Document | Fault]:
    for number, line in enumerate(read_lines(path, LONGEST_TEXT), start=1):
        if isinstance(line, Fault):
            yield line
        elif line.strip():
            labels = [word.removeprefix(_PREFIX) for word in line.split() if word.startswith(_PREFIX)]
            text = _LABEL.sub("", line)
            nothing = Fault(path, number, "no label", f"no {_PREFIX} in the line, expected one at its beginning.")
            yield _document(text, labels, path, number) if labels else nothing


def _in_folders(path: Path, log: Log | None) -> Iterator[Document | Fault]:
    for file, label in class_files(str(path), lambda folder: ([*walk(folder)], []), "text files", log):
        lines = list(read_lines(Path(file), LONGEST_TEXT))
        fault = next((line for line in lines if isinstance(line, Fault)), None)
        yield fault or _document("\n".join(map(str, lines)), [label], Path(file), 1)


def _document(text: str, labels: Sequence[str], path: Path, line: int) -> Document | Fault:
    different = sorted({label.strip() for label in labels})
    label = different[0] if len(different) == 1 else tuple(different)
    fault = empty_field(path, line, text=text, **dict.fromkeys(("label",) if "" in different else (), ""))
    return fault or Document(text.strip(), label)


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
