"""Sentence pairs from the user's files: two aligned files, a table or JSONL, plain or compressed, read line by line.

    AlignedFiles(source, target)        line n of one file translates line n of the other
    TableFile(path, columns)            two columns of a .tsv or .csv file, or two fields of a .jsonl file

Each can be iterated several times, and holds one line at a time. Iterating stops with a DataError at the first invalid
line; `read_pairs` and `check` read everything and then report the first such line and their number.
Text and its lines are those of `foci.data.lines`; a corpus keeps the encoding of the block it was made in. White space
around a sentence is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from foci.data.lines import (
    LONGEST_LINE,
    Fault,
    Log,
    current_encoding,
    each,
    ending_of,
    in_encoding,
    read_lines,
    strict,
    usable,
)
from foci.data.tables import (
    JSON,
    JsonObject,
    TableRow,
    check_table,
    first_names,
    json_objects,
    looks_like_header,
    read_rows,
    two_sides,
)
from foci.errors import ConfigError, DataError, check_positive

Columns = tuple[int | str, int | str]
"""The columns of a table by two numbers from 0 or two names of its first line, or two fields of JSON objects."""
NO_PARTNER = "line without a partner"
"""The kind of fault of two files with different numbers of lines."""
_TABS = (".tsv", ".txt")
_EXPECTED = "a .tsv, .txt (tabs), .csv or .jsonl file (also .gz, .xz), or a second file with the other side"


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
        self.encoding = current_encoding()

    def __iter__(self) -> Iterator[Pair]:
        return strict(self.entries())

    def entries(self) -> Iterator[Pair | Fault]:
        """Yield every line, as a pair or as a Fault."""
        return in_encoding(self.encoding, self._entries())

    def _entries(self) -> Iterator[Pair | Fault]:
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
        return Fault(longer, number, NO_PARTNER, reason)


class TableFile:
    """One file with both sides: .tsv or .txt (tabs), .csv or .jsonl, plain, .gz or .xz.

    Args:
        path: the file.
        columns: those of both sides; in JSON, ``translation.en`` is field ``en`` of the object in field
            ``translation``. Default: those that the first line calls source and target, src and tgt, or by two
            languages (in JSON also inside of ``translation``); of a table without such names the first two columns.
        max_characters: a longer line is a fault.
    """

    def __init__(self, path: str | Path, columns: Columns | None = None, *, max_characters: int = LONGEST_LINE) -> None:
        check_positive("TableFile", max_characters=max_characters)
        self.source, self.max_characters, self.encoding = Path(path), max_characters, current_encoding()
        self.is_json = ending_of(path) in JSON
        default: Columns = ("source", "target") if self.is_json else (0, 1)
        check_table(self.source, columns or default, (".csv", *_TABS), _EXPECTED)
        self.found = None if columns else self._named_sides()
        """The columns that were chosen by the names in the first line."""
        self.columns = columns or self.found or default

    def __iter__(self) -> Iterator[Pair]:
        return strict(self.entries())

    def entries(self) -> Iterator[Pair | Fault]:
        """Yield every line, as a pair or as a Fault."""
        rows = read_rows(self.source, self.columns, texts=2, tabs=_TABS, longest=self.max_characters)
        return in_encoding(self.encoding, each(rows, self._pair))

    def _named_sides(self) -> Columns | None:
        """Return the columns of both sides by the names that the first line has; None where it has none."""
        if self.is_json:
            first = next(iter(json_objects(self.source, longest=self.max_characters)), None)
            record = first.content if isinstance(first, JsonObject) else {}
            inner = record.get("translation")
            if isinstance(inner, dict) and (sides := two_sides(list(inner)) or _two(list(inner))):
                return f"translation.{sides[0]}", f"translation.{sides[1]}"
            return two_sides(list(record))
        names = first_names(self.source, self.max_characters)
        # A header has names alone: a text that happens to be "en" is no reason to skip its line.
        return two_sides(names) if looks_like_header(names) else None

    def _pair(self, row: TableRow) -> Pair | Fault:
        kind, suffix = "field" if self.is_json else "column", " (from 0)" if isinstance(self.columns[0], int) else ""
        source, target = row.values
        sides = [f"{kind} {column!r}{suffix}" for column in self.columns]
        return _pair(source, target, self.source, self.source, row.line, sides)


Corpus = AlignedFiles | TableFile


def open_corpus(
    source: str | Path,
    target: str | Path | None = None,
    *,
    columns: Columns | None = None,
    max_characters: int = LONGEST_LINE,
) -> Corpus:
    """Return the reader: two files are aligned; one is read by its ending, .tsv, .txt, .csv or .jsonl (+ .gz, .xz)."""
    if target is None:
        return TableFile(source, columns, max_characters=max_characters)
    if columns is not None:
        raise ConfigError("open_corpus: two aligned files have no columns. Give one file, or leave columns out.")
    return AlignedFiles(source, target, max_characters=max_characters)


def read_pairs(corpus: Corpus, log: Log | None = None) -> list[Pair]:
    """Return all pairs, or raise a DataError with the first fault and how many of each kind there are."""
    return list(_good_pairs(corpus, log))


def check(corpus: Corpus, log: Log | None = None) -> int:
    """Read everything once; return the number of pairs, or raise as `read_pairs` does."""
    return sum(1 for _ in _good_pairs(corpus, log))


def _two(names: list[str]) -> tuple[str, str] | None:
    return (names[0], names[1]) if len(names) == 2 else None


def _good_pairs(corpus: Corpus, log: Log | None) -> Iterator[Pair]:
    if log is not None and isinstance(corpus, TableFile) and corpus.found:
        source, target = corpus.found
        if (source, target) != ("source", "target"):
            log(f"{corpus.source}: the source is {source!r}, the target {target!r}; data.columns names others")
    pairs = usable(corpus.entries(), "pairs")
    first = next(pairs, None)
    if first is None:
        raise DataError(f"{corpus.source}, line 1: no sentence pairs, the file is empty.")
    yield first
    yield from pairs


def _pair(
    source: str | Fault, target: str | Fault, source_path: Path, target_path: Path, number: int, sides: Iterable[str]
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
