"""Sentence pairs from the user's files: two aligned files, TSV or JSONL, plain or compressed, read line by line.

    AlignedFiles(source, target)        line n of one file translates line n of the other
    TsvFile(path, source=0, target=1)   two columns, by number or by the names in the first line
    JsonlFile(path, source=…, target=…) two fields of one object per line; a dot leads into an inner object

Each can be iterated several times, and holds one line at a time. Iterating stops with a DataError at the first invalid
line; `read_pairs` and `check` read everything and then report the first such line and their number.
Text is UTF-8. Only a line feed ends a line: Unicode's other separators occur inside sentences, and
splitting there would misalign two files. White space around a sentence is dropped.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.lines import (
    LONGEST_LINE,
    Fault,
    Log,
    ending_of,
    looks_like_header,
    ragged,
    read_lines,
    usable,
)
from foci.data.progress import counted
from foci.errors import ConfigError, DataError, check_positive


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class AlignedFiles:
    """Two files with one sentence per line; line n of one is the translation of line n of the other.

    Args:
        source, target: the files, plain, .gz or .xz.
        max_characters: a longer line is a fault.
    """

    def __init__(self, source: str | Path, target: str | Path, *, max_characters: int = LONGEST_LINE) -> None:
        check_positive("AlignedFiles", max_characters=max_characters)
        self.source, self.target, self.max_characters = Path(source), Path(target), max_characters

    def __iter__(self) -> Iterator[Pair]:
        return _pairs(self.entries())

    def entries(self) -> Iterator[Pair | Fault]:
        """Yield every line, as a pair or as a Fault."""
        source, target = read_lines(self.source, self.max_characters), read_lines(self.target, self.max_characters)
        for number, (left, right) in enumerate(zip_longest(source, target), start=1):
            if left is None or right is None:
                yield self._misaligned(number, 1 + sum(1 for _ in (source if right is None else target)), right is None)
                return
            yield _pair(left, right, self.source, self.target, number, ("the source", "the target"))

    def _misaligned(self, number: int, extra: int, source_longer: bool) -> Fault:
        longer, shorter = (self.source, self.target) if source_longer else (self.target, self.source)
        reason = (
            f"no such line in {shorter}: it has {number - 1} lines, {longer.name} has {number - 1 + extra}. "
            "Line n of one file must translate line n of the other."
        )
        return Fault(longer, number, "line without a partner", reason)


class TsvFile:
    """One file with tab-separated columns.

    Args:
        path: the file, plain, .gz or .xz.
        source, target: the columns: two numbers from 0, or two names of the first line.
        max_characters: a longer line is a fault.
    """

    def __init__(
        self,
        path: str | Path,
        source: int | str = 0,
        target: int | str = 1,
        *,
        max_characters: int = LONGEST_LINE,
    ) -> None:
        check_positive("TsvFile", max_characters=max_characters)
        if isinstance(source, str) != isinstance(target, str):
            raise ConfigError(f"TsvFile: columns {source!r} and {target!r}: give two numbers or two names.")
        if source == target or (isinstance(source, int) and isinstance(target, int) and min(source, target) < 0):
            raise ConfigError(
                f"TsvFile: columns {source!r} and {target!r}, expected two different ones, counted from 0."
            )
        self.path, self.source, self.target, self.max_characters = Path(path), source, target, max_characters

    def __iter__(self) -> Iterator[Pair]:
        return _pairs(self.entries())

    def entries(self) -> Iterator[Pair | Fault]:
        """Yield every line, as a pair or as a Fault."""
        lines = enumerate(read_lines(self.path, self.max_characters), start=1)
        columns = self.source, self.target
        sides = [f"column {column!r}" if isinstance(column, str) else f"column {column} (from 0)" for column in columns]
        width: int | None = None
        if isinstance(self.source, str):
            _, header = next(lines, (1, ""))
            if isinstance(header, Fault):
                yield header
                return
            names = header.split("\t")
            width = len(names)
            for name in columns:
                if name not in names:
                    yield Fault(self.path, 1, "missing column", f"no column {name!r}. {_near(str(name), names)}")
                    return
            columns = names.index(str(self.source)), names.index(str(self.target))
        for number, line in lines:
            if isinstance(line, Fault):
                yield line
                continue
            cells = line.split("\t")
            width = width or len(cells)
            missing = [int(column) for column in columns if int(column) >= len(cells)]
            if not missing and len(cells) != width:
                yield Fault(self.path, number, "ragged row", ragged(len(cells), width))
            elif number == 1 and not missing and looks_like_header([cells[int(column)] for column in columns]):
                reason = f"the line seems to hold the names of columns ({line!r}). Name both columns, or remove it."
                yield Fault(self.path, 1, "header", reason)
            elif missing:
                reason = f"no column {missing[0]} (from 0): the line has {len(cells)}, separated by tabs."
                yield Fault(self.path, number, "missing column", reason)
            else:
                yield _pair(cells[int(columns[0])], cells[int(columns[1])], self.path, self.path, number, sides)


class JsonlFile:
    """One JSON object per line.

    Args:
        path: the file, plain, .gz or .xz.
        source, target: the fields; ``translation.en`` is field ``en`` of the object in field ``translation``.
        max_characters: a longer line is a fault.
    """

    def __init__(
        self, path: str | Path, source: str = "source", target: str = "target", *, max_characters: int = LONGEST_LINE
    ) -> None:
        check_positive("JsonlFile", max_characters=max_characters)
        self.path, self.source, self.target, self.max_characters = Path(path), source, target, max_characters

    def __iter__(self) -> Iterator[Pair]:
        return _pairs(self.entries())

    def entries(self) -> Iterator[Pair | Fault]:
        """Yield every line, as a pair or as a Fault."""
        for number, line in enumerate(read_lines(self.path, self.max_characters), start=1):
            yield line if isinstance(line, Fault) else self._entry(line, number)

    def _entry(self, line: str, number: int) -> Pair | Fault:
        if not line.strip():
            return Fault(self.path, number, "empty line", "the line is empty, expected a JSON object. Remove the line.")
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            return Fault(self.path, number, "bad JSON", f"not a JSON object ({error}).")
        if not isinstance(record, dict):
            return Fault(self.path, number, "bad JSON", f"a JSON {type(record).__name__}, expected an object.")
        texts = []
        for field in (self.source, self.target):
            value, names = _field(record, field)
            if names is not None:
                return Fault(self.path, number, "missing field", f"no field {field!r}. {_near(field, names)}")
            if not isinstance(value, str):
                reason = f"field {field!r} is a {type(value).__name__}, expected text."
                return Fault(self.path, number, "field without text", reason)
            if any("\ud800" <= character <= "\udfff" for character in value):
                reason = f"field {field!r} holds half of a surrogate pair (\\ud800 to \\udfff), which is no character."
                return Fault(self.path, number, "undecodable text", reason)
            texts.append(value)
        sides = [f"field {field!r}" for field in (self.source, self.target)]
        return _pair(texts[0], texts[1], self.path, self.path, number, sides)


Corpus = AlignedFiles | TsvFile | JsonlFile


def open_corpus(
    source: str | Path,
    target: str | Path | None = None,
    *,
    fields: tuple[int | str, int | str] | None = None,
    max_characters: int = LONGEST_LINE,
) -> Corpus:
    """Return the reader: two files are aligned; one is read by its ending, .tsv, .txt, .jsonl or .json (+ .gz, .xz).

    ``fields`` are the columns of a TSV file or the fields of a JSONL file.
    """
    if target is not None:
        if fields is not None:
            raise ConfigError("open_corpus: two aligned files have no fields. Give one file, or leave fields out.")
        return AlignedFiles(source, target, max_characters=max_characters)
    ending = ending_of(source)
    if ending in (".tsv", ".txt"):
        return TsvFile(source, *(fields or (0, 1)), max_characters=max_characters)
    if ending in (".jsonl", ".json"):
        left, right = fields or ("source", "target")
        return JsonlFile(source, str(left), str(right), max_characters=max_characters)
    raise ConfigError(
        f"open_corpus: {source} alone holds no pairs: expected .tsv or .jsonl (also .gz, .xz), or a second file with "
        "the translations."
    )


def read_pairs(corpus: Corpus, log: Log | None = None) -> list[Pair]:
    """Return all pairs, or raise a DataError with the first fault and how many of each kind there are."""
    pairs = list(_good_pairs(corpus, log))
    if not pairs:
        raise _no_pairs(corpus)
    return pairs


def check(corpus: Corpus, log: Log | None = None) -> int:
    """Read everything once; return the number of pairs, or raise as `read_pairs` does."""
    pairs = sum(1 for _ in _good_pairs(corpus, log))
    if pairs == 0:
        raise _no_pairs(corpus)
    return pairs


def _good_pairs(corpus: Corpus, log: Log | None) -> Iterator[Pair]:
    entries = corpus.entries()
    return usable(entries if log is None else counted(entries, "lines", log), "pairs")


def _no_pairs(corpus: Corpus) -> DataError:
    path = corpus.source if isinstance(corpus, AlignedFiles) else corpus.path
    return DataError(f"{path}, line 1: no sentence pairs, the file is empty.")


def _pairs(entries: Iterable[Pair | Fault]) -> Iterator[Pair]:
    for entry in entries:
        if isinstance(entry, Fault):
            raise DataError(str(entry))
        yield entry


def _pair(
    source: str | Fault, target: str | Fault, source_path: Path, target_path: Path, number: int, sides: Sequence[str]
) -> Pair | Fault:
    if isinstance(source, Fault):
        return source
    if isinstance(target, Fault):
        return target
    pair = Pair(source.strip(), target.strip())
    for side, text, path in zip(sides, pair, (source_path, target_path)):
        if not text:
            return Fault(path, number, "empty side", f"{side} is empty.")
    return pair


def _field(record: dict[str, Any], field: str) -> tuple[Any, Iterable[str] | None]:
    """Return the value and None; or None and the names that exist where the path ends."""
    if field in record:
        return record[field], None
    outer, _, inner = field.partition(".")
    if inner and isinstance(record.get(outer), dict):
        return _field(record[outer], inner)
    return None, record


def _near(name: str, known: Iterable[str]) -> str:
    names = [str(other) for other in known]
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
