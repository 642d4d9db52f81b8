"""Chosen columns of .csv and .tsv files, and chosen fields of .jsonl files, line by line.

A line that cannot be used is a `Fault` in its place; what the values mean is up to the caller.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.lines import Fault, ending_of, looks_like_header, ragged, read_lines
from foci.errors import ConfigError, near_names

LONGEST_TEXT = 10_000_000
"""Maximum number of characters of a line or cell; a longer one indicates a damaged file."""

Column = int | str | tuple[str, ...]
"""A column by its number from 0, or by its name; several names are tried in order."""


class TableRow(NamedTuple):
    """The values of the chosen columns, and the number of the line."""

    values: tuple[str, ...]
    line: int


def read_rows(
    path: Path, columns: Sequence[Column], *, texts: int, optional: Sequence[Column] = ()
) -> Iterator[TableRow | Fault] | None:
    """Yield the chosen columns of a .csv, .tsv, .jsonl or .json file; return None for a file with another ending.

    Args:
        path: the file, plain, .gz or .xz.
        columns: of a table by names or by numbers from 0; numbers mean that it has no line of names.
        texts: how many of them, the first ones, must be texts in JSON; the others may also be whole numbers.
        optional: columns whose values are empty where the file does not have them.
    """
    ending = ending_of(path)
    if ending in (".csv", ".tsv"):
        return read_table(path, columns, separator="," if ending == ".csv" else "\t", optional=optional)
    if ending in (".jsonl", ".json"):
        fields = [str(column) if isinstance(column, int) else column for column in columns]
        return read_objects(path, fields, texts=texts, optional=optional)
    return None


def read_table(
    path: Path, columns: Sequence[Column], *, separator: str, optional: Sequence[Column] = ()
) -> Iterator[TableRow | Fault]:
    """Yield the chosen columns of a table.

    Args:
        path: the file, plain, .gz or .xz.
        columns: either all by names, which the first line then has, or all by numbers.
        separator: a comma, or a tab; a tab-separated file has no quoting.
        optional: columns, by names, whose values are empty where the first line does not have them.

    Raises:
        ConfigError: names and numbers are mixed, or a column is chosen twice.
    """
    if len({isinstance(column, int) for column in columns}) > 1 or len({*columns}) < len(columns):
        shown = " and ".join(repr(column) for column in columns)
        number = {2: "two", 3: "three"}.get(len(columns), str(len(columns)))
        raise ConfigError(f"{path}: columns {shown}, expected {number} different names or numbers from 0.")
    faults: list[Fault] = []
    # A TSV file has no quoting: a quote in a text must not swallow the lines that follow.
    reader = csv.reader(
        _lines(path, faults),
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE,
        strict=True,
    )
    longest = csv.field_size_limit(LONGEST_TEXT)  # for all readers of the process: restored at the end
    try:
        yield from _rows(path, reader, columns, optional)
    except csv.Error as error:
        yield Fault(path, reader.line_num, "broken table", f"the table cannot be read further ({error}).")
    finally:
        csv.field_size_limit(longest)
    yield from faults


def _rows(
    path: Path, reader: Iterator[list[str]], columns: Sequence[Column], optional: Sequence[Column]
) -> Iterator[TableRow | Fault]:
    width: int | None = None
    chosen: list[int | None] = [column for column in columns if isinstance(column, int)]
    if not chosen:
        names = next(reader, [])
        if not names:
            return
        width = len(names)
        for column in columns:
            place = _place(column, names)
            if place is None:
                reason = f"no column {_shown(column)} in the first line. {near_names(_first(column), names)}"
                yield Fault(path, 1, "missing column", reason)
                return
            chosen.append(place)
        chosen += [_place(column, names) for column in optional]
    last = max(place for place in chosen if place is not None)
    for cells in reader:
        line: int = reader.line_num  # type: ignore[attr-defined]
        if not cells:
            continue
        first = width is None
        width = width or len(cells)
        if len(cells) <= last:
            yield Fault(path, line, "missing column", f"no column {last} (from 0): the line has {len(cells)}.")
        elif len(cells) != width:
            yield Fault(path, line, "ragged row", ragged(len(cells), width))
        elif first and looks_like_header([cells[place] for place in chosen if place is not None]):
            reason = "the line seems to hold the names of columns. Name the columns, or remove it."
            yield Fault(path, line, "header", reason)
        else:
            yield TableRow(tuple("" if place is None else cells[place] for place in chosen), line)


def _lines(path: Path, faults: list[Fault]) -> Iterator[str]:
    """Yield lines with their ends; invalid ones are collected, and an empty line keeps the count."""
    for line in read_lines(path, LONGEST_TEXT):
        if isinstance(line, Fault):
            faults.append(line)
        yield "\n" if isinstance(line, Fault) else f"{line}\n"


def read_objects(
    path: Path, fields: Sequence[Column], *, texts: int, optional: Sequence[Column] = ()
) -> Iterator[TableRow | Fault]:
    """Yield the chosen fields of a file with one JSON object per line.

    Args:
        path: the file, plain, .gz or .xz.
        fields: by their names.
        texts: how many of them, the first ones, must be texts; the others may also be whole numbers.
        optional: fields whose values are empty where an object does not have them.
    """
    for entry in json_objects(path):
        if isinstance(entry, Fault):
            yield entry
        else:
            yield _object(path, entry.line, entry.content, fields, texts, optional)


class JsonObject(NamedTuple):
    """A JSON object, and the number of its line."""

    content: dict[str, Any]
    line: int


def json_objects(path: Path, names: Sequence[str] = ()) -> Iterator[JsonObject | Fault]:
    """Yield the objects of a file with one JSON object per line; each must have the named fields."""
    for number, line in enumerate(read_lines(path, LONGEST_TEXT), start=1):
        if isinstance(line, Fault):
            yield line
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            yield Fault(path, number, "bad JSON", f"not a JSON object ({error}).")
            continue
        if not isinstance(record, dict):
            yield Fault(path, number, "bad JSON", f"a JSON {type(record).__name__}, expected an object.")
            continue
        missing = next((name for name in names if name not in record), None)
        if missing is not None:
            yield Fault(path, number, "missing field", f"no field {missing!r}. {near_names(missing, record)}")
        else:
            yield JsonObject(record, number)


def _object(
    path: Path, line: int, record: dict[str, Any], fields: Sequence[Column], texts: int, optional: Sequence[Column]
) -> TableRow | Fault:
    names = list(record)
    values = []
    for number, field in enumerate(fields):
        place = _place(field, names)
        if place is None:
            reason = f"no field {_shown(field)}. {near_names(_first(field), names)}"
            return Fault(path, line, "missing field", reason)
        value = record[names[place]]
        if not isinstance(value, str if number < texts else str | int):
            expected = "a text" if number < texts else "a text or a whole number"
            reason = f"field {names[place]!r} is a {type(value).__name__}, expected {expected}."
            return Fault(path, line, "field of another kind", reason)
        values.append(str(value))
    for field in optional:
        place = _place(field, names)
        values.append("" if place is None else str(record[names[place]]))
    return TableRow(tuple(values), line)


def _place(column: Column, names: Sequence[str]) -> int | None:
    tried = column if isinstance(column, tuple) else (str(column),)
    return next((names.index(name) for name in tried if name in names), None)


def _first(column: Column) -> str:
    return column[0] if isinstance(column, tuple) else str(column)


def _shown(column: Column) -> str:
    tried: Iterable[str] = column if isinstance(column, tuple) else (str(column),)
    return " or ".join(repr(name) for name in tried)
