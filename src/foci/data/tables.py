"""Chosen columns of .csv and .tsv files, and chosen fields of .jsonl files, line by line.

A line that cannot be used is a `Fault` in its place; what the values mean is up to the caller.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from foci.data.lines import Fault, ending_of, read_lines
from foci.encodings import has_surrogates
from foci.errors import ConfigError, DataError, near_names

Entry = TypeVar("Entry")
_OTHERS = " Set data.columns (--columns) to the names that the file has"
LONGEST_TEXT = 10_000_000
"""Maximum number of characters of a line or cell; a longer one indicates a damaged file."""
JSON = (".jsonl", ".json")
"""Endings of files with one JSON object per line."""
_LANGUAGES = (
    " ar bg bn ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy is it ja ka kk km ko lt lv mk ml mn mr"
    " ms my ne nl no pa pl pt ro ru si sk sl sq sr sv sw ta te th tr uk ur uz vi yue zh cmn eng deu fra spa jpn kor "
)
"""Codes of languages that columns are called by; a region or a script may follow, as in zh-CN and zh_Hans."""
_HEADERS = frozenset(
    (
        *("answer", "audio", "author", "body", "category", "class", "comment", "content", "document", "file", "group"),
        *("id", "image", "input", "label", "labels", "output", "path", "question", "rating", "review", "sentence"),
        *("sentiment", "source", "speaker", "src", "stars", "tag", "target", "text", "tgt", "title", "topic"),
        *("transcript", "translation", "wav"),
    )
)
"""Common names of columns, in lower case."""

Column = int | str | tuple[str, ...]
"""A column by its number from 0, or by its name; several names are tried in order. In JSON, a dot leads into an inner
object."""


class TableRow(NamedTuple):
    """The values of the chosen columns, and the number of the line."""

    values: tuple[str, ...]
    line: int


class JsonObject(NamedTuple):
    """A JSON object, and the number of its line."""

    content: dict[str, Any]
    line: int


def read_rows(
    path: Path,
    columns: Sequence[Column],
    *,
    texts: int,
    optional: Sequence[Column] = (),
    tabs: Collection[str] = (".tsv",),
    commas: Collection[str] = (".csv",),
    longest: int = LONGEST_TEXT,
    expected: str = "a .csv, .tsv or .jsonl file (also .gz, .xz)",
) -> Iterator[TableRow | Fault]:
    """Yield the chosen columns of a .csv, .tsv, .jsonl or .json file, plain, .gz or .xz.

    Args:
        path: the file.
        columns: of a table by names, which its first line then has, or by numbers from 0.
        texts: how many of them, the first ones, must be texts in JSON; the others may also be whole numbers.
        optional: columns, by names, whose values are empty where the file does not have them.
        tabs: endings of files with tabs between columns, and without quoting.
        commas: endings of files with commas between columns, and quoting.
        longest: a line of more characters is a fault.
        expected: what the file should be, for messages.

    Raises:
        ConfigError: the file has another ending, names and numbers are mixed, or a column is chosen twice.
        DataError: there is no such file or folder.
    """
    check_table(path, columns, (*tabs, *commas), expected)
    if ending_of(path) in JSON:
        return _fields(path, columns, optional, texts, longest)
    return _columns(path, columns, optional, "," if ending_of(path) in commas else "\t", longest)


def check_table(path: Path, columns: Sequence[Column], endings: Collection[str], expected: str) -> None:
    """Raise unless `read_rows` can read a file with this ending by these columns."""
    if ending_of(path) not in (*endings, *JSON):
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder.")
        raise ConfigError(f"{path}: expected {expected}.")
    negative = any(isinstance(column, int) and column < 0 for column in columns)
    if negative or len({isinstance(column, int) for column in columns}) > 1 or len({*columns}) < len(columns):
        shown = " and ".join(repr(column) for column in columns)
        number = {2: "two", 3: "three"}.get(len(columns), str(len(columns)))
        raise ConfigError(f"{path}: columns {shown}, expected {number} different names or numbers from 0.")


# ---- tables


def read_cells(path: Path, separator: str, longest: int = LONGEST_TEXT) -> Iterator[TableRow | Fault]:
    """Yield all cells of each line; an empty line is one empty cell.

    A tab-separated file has no quoting: a quote in a text must not swallow the lines that follow. Where the first line
    of another has semicolons and no comma, as spreadsheets write it in many languages, they stand between its cells.
    """
    if separator == "\t":
        for number, line in enumerate(read_lines(path, longest), start=1):
            yield line if isinstance(line, Fault) else TableRow(tuple(line.split("\t")), number)
        return
    faults: list[Fault] = []
    lines = _lines(path, faults, longest)
    first = next(lines, "")
    separator = ";" if ";" in first and separator not in first else separator
    reader = csv.reader(chain([first], lines), delimiter=separator, strict=True)
    limit = csv.field_size_limit(LONGEST_TEXT)  # for all readers of the process: restored at the end
    try:
        for cells in reader:
            yield from faults
            faults.clear()
            yield TableRow(tuple(cells) or ("",), reader.line_num)
    except csv.Error as error:
        yield Fault(path, reader.line_num, "broken table", f"the table cannot be read further ({error}).")
    finally:
        csv.field_size_limit(limit)
    yield from faults


def first_names(path: Path, longest: int = LONGEST_TEXT) -> list[str]:
    """Return the cells of the first line of a table, or the names of the fields of a file's first JSON object."""
    if ending_of(path) in JSON:
        entry = next(json_objects(path, longest=longest), None)
        return list(entry.content) if isinstance(entry, JsonObject) else []
    cells = next(read_cells(path, "," if ending_of(path) == ".csv" else "\t", longest), None)
    return list(cells.values) if isinstance(cells, TableRow) else []


def _lines(path: Path, faults: list[Fault], longest: int) -> Iterator[str]:
    """Yield lines with their ends; invalid ones are collected, and an empty line keeps the count."""
    for line in read_lines(path, longest):
        if isinstance(line, Fault):
            faults.append(line)
        yield "\n" if isinstance(line, Fault) else f"{line}\n"


def _columns(
    path: Path, columns: Sequence[Column], optional: Sequence[Column], separator: str, longest: int
) -> Iterator[TableRow | Fault]:
    rows = (row for row in read_cells(path, separator, longest) if row[0] != ("",))  # empty lines are passed over
    width: int | None = None
    chosen: list[int | None] = [column for column in columns if isinstance(column, int)]
    if not chosen:
        header = next(rows, None)
        if not isinstance(header, TableRow):
            if header is not None:
                yield header
            return
        names, width = header.values, len(header.values)
        found = [name_of(column, names) for column in (*columns, *optional)]
        for column, name in zip(columns, found):
            if name is None:
                known = near_names(_names(column)[0], names)
                numbers = "or to numbers from 0, as in 0,1, if its first line is no header"
                reason = f"no column {_shown(column)} in the first line. {known}{_OTHERS}, {numbers}."
                yield Fault(path, 1, "missing column", reason)
                return
        chosen = [None if name is None else names.index(name) for name in found]
    last = max(place for place in chosen if place is not None)
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        cells, line = row
        first = width is None
        width = width or len(cells)
        if len(cells) <= last:
            hint = ", separated by tabs" if separator == "\t" else ""
            yield Fault(path, line, "missing column", f"no column {last} (from 0): the line has {len(cells)}{hint}.")
        elif len(cells) != width:
            reason = f"the row has {len(cells)} cells, but the first line has {width}. "
            yield Fault(path, line, "ragged row", f"{reason}Quote or remove separators inside a cell.")
        elif first and looks_like_header([cells[place] for place in chosen if place is not None]):
            reason = "the line seems to hold the names of columns. Name the columns, or remove it."
            yield Fault(path, line, "header", reason)
        else:
            yield TableRow(tuple("" if place is None else cells[place] for place in chosen), line)


def looks_like_header(cells: Sequence[str]) -> bool:
    """Return whether these cells of a first line are names of columns rather than data."""
    names = [cell.strip().lower() for cell in cells]
    return len(set(names)) == len(names) and all(name in _HEADERS or is_language(name) for name in names)


def is_language(name: str) -> bool:
    """Return whether a column is called by the code of a language.

    Example:
        >>> [name for name in ("en", "zh-CN", "zh_Hans", "text", "at-all") if is_language(name)]
        ['en', 'zh-CN', 'zh_Hans']
    """
    code, _, rest = name.strip().replace("_", "-").partition("-")
    return f" {code.lower()} " in _LANGUAGES and (not rest or (rest.isalnum() and 2 <= len(rest) <= 4))


def two_sides(names: Sequence[str]) -> tuple[str, str] | None:
    """Return which of the names of columns, or fields, are the source and the target of a translation; None if unclear.

    These are source and target, src and tgt, or the two that are codes of languages, in their order.

    Example:
        >>> two_sides(["id", "en", "zh"]), two_sides(["tgt", "src"]), two_sides(["de", "en", "zh"])
        (('en', 'zh'), ('src', 'tgt'), None)
    """
    by_name = {name.strip().lower(): name for name in names}
    for source, target in (("source", "target"), ("src", "tgt")):
        if source in by_name and target in by_name:
            return by_name[source], by_name[target]
    languages = [name for name in names if is_language(name)]
    return (languages[0], languages[1]) if len(languages) == 2 else None


# ---- JSON


def json_objects(path: Path, names: Sequence[str] = (), longest: int = LONGEST_TEXT) -> Iterator[JsonObject | Fault]:
    """Yield the objects of a file with one JSON object per line; each must have the named fields."""
    for number, line in enumerate(read_lines(path, longest), start=1):
        if isinstance(line, Fault):
            yield line
            continue
        if not line.strip():
            yield Fault(path, number, "empty line", "the line is empty, expected a JSON object. Remove the line.")
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            yield Fault(path, number, "bad JSON", f"not a JSON object ({error}).")
            continue
        if not isinstance(record, dict):
            yield Fault(path, number, "bad JSON", f"a JSON {type(record).__name__}, expected an object.")
            continue
        # Only the escape of a code unit from \ud800 on can spell half of a surrogate pair.
        half = half_surrogate(record) if "\\ud" in line.lower() else None
        if half is not None:
            reason = f"field {half!r} holds half of a surrogate pair (\\ud800 to \\udfff), which is no character."
            yield Fault(path, number, "undecodable text", reason)
            continue
        missing = next((fault for name in names if (fault := missing_field(path, number, record, name))), None)
        yield missing or JsonObject(record, number)


def missing_field(path: Path, line: int, record: Mapping[str, Any], column: Column) -> Fault | None:
    """Return the fault of an object without this field; None if it has it."""
    if name_of(column, record) is not None:
        return None
    reason = f"no field {_shown(column)}. {near_names(_names(column)[0], _paths(record))}{_OTHERS}."
    return Fault(path, line, "missing field", reason)


def _paths(record: Mapping[str, Any]) -> list[str]:
    """Return the fields of an object, and those of its inner objects with a dot."""
    inner = [f"{outer}.{name}" for outer, value in record.items() if isinstance(value, dict) for name in value]
    return [*record, *inner]


def field_of(record: Mapping[str, Any], column: Column) -> Any:
    """Return the value of a field that the object has; of several names that of the first one."""
    name = name_of(column, record)
    if name is None or name in record:
        return record[name or _names(column)[0]]
    outer, _, inner = name.partition(".")
    return field_of(record[outer], inner)


def half_surrogate(record: Mapping[str, Any]) -> str | None:
    """Return the first field of an object that holds half of a surrogate pair, which JSON can spell; None if none does.

    Example:
        >>> half_surrogate({"a": "\\u00e9", "b": [{"c": "\\ud83d"}]})
        'b'
    """
    texts = ((name, json.dumps([name, value], ensure_ascii=False)) for name, value in record.items())
    return next((name for name, text in texts if has_surrogates(text)), None)


def _fields(
    path: Path, columns: Sequence[Column], optional: Sequence[Column], texts: int, longest: int
) -> Iterator[TableRow | Fault]:
    for entry in json_objects(path, longest=longest):
        yield entry if isinstance(entry, Fault) else _object(path, entry, columns, optional, texts)


def _object(
    path: Path, entry: JsonObject, columns: Sequence[Column], optional: Sequence[Column], texts: int
) -> TableRow | Fault:
    record, line = entry
    values = []
    for number, column in enumerate(columns):
        if missing := missing_field(path, line, record, column):
            return missing
        value = text_of(path, line, field_of(record, column), f"field {name_of(column, record)!r}", number < texts)
        if isinstance(value, Fault):
            return value
        values.append(value)
    values += ["" if name_of(column, record) is None else str(field_of(record, column)) for column in optional]
    return TableRow(tuple(values), line)


def text_of(path: Path, line: int, value: Any, where: str, text_only: bool) -> str | Fault:
    """Return a value of JSON as a text; the fault of one that is neither a text nor, unless that is all, a number."""
    if not isinstance(value, str if text_only else str | int):
        expected = "a text" if text_only else "a text or a whole number"
        return Fault(path, line, "field of another kind", f"{where} is a {type(value).__name__}, expected {expected}.")
    return str(value)


def read_records(path: Path, make: Callable[[dict[str, Any]], Entry], kind: str) -> Iterator[Entry | Fault]:
    """Yield what ``make`` returns for each JSON object; where it raises a DataError, a fault of this kind."""
    for entry in json_objects(path):
        if isinstance(entry, Fault):
            yield entry
            continue
        try:
            yield make(entry.content)
        except DataError as error:
            yield Fault(path, entry.line, kind, str(error))


# ---- names


def _names(column: Column) -> tuple[str, ...]:
    return column if isinstance(column, tuple) else (str(column),)


def name_of(column: Column, known: Collection[str]) -> str | None:
    """Return the first name of a column that is known; in an object, a dotted name of an inner object's field too."""
    for name in _names(column):
        outer, _, inner = name.partition(".")
        if name in known:
            return name
        if isinstance(known, Mapping) and isinstance(known.get(outer), dict) and inner:
            return name if name_of(inner, known[outer]) is not None else None
    return None


def _shown(column: Column) -> str:
    return " or ".join(map(repr, _names(column)))
