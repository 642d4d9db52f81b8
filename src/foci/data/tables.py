"""Some columns of a .csv or .tsv file, or some fields of a .jsonl file (each also .gz or .xz), with their lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from foci.data.text import Fault, looks_like_header, ragged, read_lines
from foci.errors import ConfigError, near_names

LONGEST_CELL = 10_000_000
"""Maximum number of characters of a line; a longer one indicates a damaged file."""

Columns = Sequence[int | str]
"""The columns of a table, by the names in its first line or by numbers from 0; the fields of a JSONL file."""


class TableRow(NamedTuple):
    """The values of the chosen columns, and the line that they end in."""

    line: int
    values: tuple[str, ...]


def ending_of(path: Path) -> str:
    """Return the ending of a file's name in lower case, without that of its compression."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in (".gz", ".xz")]
    return endings[-1] if endings else ""


def read_rows(path: Path, columns: Columns, *, numbers: Sequence[int] = ()) -> Iterator[TableRow | Fault] | None:
    """Yield the rows of a .csv, .tsv, .jsonl or .json file; return None for a file with another ending.

    Args:
        path: the file.
        columns: which columns or fields; numbers mean that the table has no line of names.
        numbers: places in ``columns`` of JSON fields that may also be whole numbers.
    """
    ending = ending_of(path)
    if ending in (".csv", ".tsv"):
        return _in_table(path, columns, ending)
    if ending in (".jsonl", ".json"):
        return _in_objects(path, [str(column) for column in columns], numbers)
    return None


def _in_table(path: Path, columns: Columns, ending: str) -> Iterator[TableRow | Fault]:
    if len({type(column) for column in columns}) > 1 or len({*columns}) < len(columns):
        named = " and ".join(map(repr, columns))
        raise ConfigError(f"{path}: columns {named}, expected {len(columns)} different names or numbers from 0.")
    faults: list[Fault] = []
    # A TSV file has no quoting: a quote in a text must not swallow the lines that follow.
    reader = csv.reader(
        lines_with_ends(path, faults),
        delimiter="," if ending == ".csv" else "\t",
        quoting=csv.QUOTE_MINIMAL if ending == ".csv" else csv.QUOTE_NONE,
        strict=True,
    )
    longest = csv.field_size_limit(LONGEST_CELL)  # for all readers of the process: restored at the end
    try:
        yield from _rows(path, reader, columns)
    except csv.Error as error:
        yield Fault(path, reader.line_num, "broken table", f"the table cannot be read further ({error}).")
    finally:
        csv.field_size_limit(longest)
    yield from faults


def _rows(path: Path, reader: Iterator[list[str]], columns: Columns) -> Iterator[TableRow | Fault]:
    width: int | None = None
    places = [column for column in columns if isinstance(column, int)]
    if not places:
        names = next(reader, [])
        if not names:
            return
        width = len(names)
        for name in columns:
            if name not in names:
                reason = f"no column {name!r} in the first line. {near_names(name, names)}"
                yield Fault(path, 1, "missing column", reason)
                return
        places = [names.index(str(name)) for name in columns]
    for cells in reader:
        line: int = reader.line_num  # type: ignore[attr-defined]
        if not cells:
            continue
        first = width is None
        width = width or len(cells)
        if len(cells) <= max(places):
            reason = f"no column {max(places)} (from 0): the line has {len(cells)}."
            yield Fault(path, line, "missing column", reason)
        elif len(cells) != width:
            yield Fault(path, line, "ragged row", ragged(len(cells), width))
        elif first and looks_like_header([cells[place] for place in places]):
            reason = "the line seems to hold the names of columns. Give their names in place of numbers, or remove it."
            yield Fault(path, line, "header", reason)
        else:
            yield TableRow(line, tuple(cells[place] for place in places))


def lines_with_ends(path: Path, faults: list[Fault]) -> Iterator[str]:
    """Yield lines with their ends; invalid ones are added to ``faults``, and an empty line keeps the count."""
    for line in read_lines(path, LONGEST_CELL):
        if isinstance(line, Fault):
            faults.append(line)
        yield "\n" if isinstance(line, Fault) else f"{line}\n"


def _in_objects(path: Path, fields: Sequence[str], numbers: Sequence[int]) -> Iterator[TableRow | Fault]:
    for number, line in enumerate(read_lines(path, LONGEST_CELL), start=1):
        yield line if isinstance(line, Fault) else _object(path, number, line, fields, numbers)


def _object(path: Path, number: int, line: str, fields: Sequence[str], numbers: Sequence[int]) -> TableRow | Fault:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        return Fault(path, number, "bad JSON", f"not a JSON object ({error}).")
    if not isinstance(record, dict):
        return Fault(path, number, "bad JSON", f"a JSON {type(record).__name__}, expected an object.")
    for place, field in enumerate(fields):
        if field not in record:
            return Fault(path, number, "missing field", f"no field {field!r}. {near_names(field, record)}")
        if not isinstance(record[field], str | int if place in numbers else str):
            expected = "a text or a whole number" if place in numbers else "a text"
            reason = f"field {field!r} is a {type(record[field]).__name__}, expected {expected}."
            return Fault(path, number, "field of another kind", reason)
    return TableRow(number, tuple(str(record[field]) for field in fields))
