"""The inputs of a prediction from arguments, files or standard input, as records of the task's fields."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foci.data.lines import ending_of, read_lines, strict
from foci.data.tables import JSON, LONGEST_TEXT, json_objects, read_cells
from foci.errors import ConfigError, DataError
from foci.tasks.frame.task import Field

_FILES = ("image", "audio")
"""Kinds of fields that hold the name of a file."""


def from_arguments(fields: Sequence[Field], values: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a record for every ``len(fields)`` arguments; of one record those that may be empty may be left out."""
    names = " ".join(field.name.upper() for field in fields)
    if len(values) == len([field for field in fields if field.required]):
        fields = [field for field in fields if field.required]
    if len(values) % len(fields):
        raise ConfigError(f"{len(values)} inputs are given, expected {len(fields)} for each prediction: {names}.")
    for start in range(0, len(values), len(fields)):
        yield _record(fields, values[start : start + len(fields)], "the command line")


def from_files(fields: Sequence[Field], paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of files.

    A .jsonl file has one object per line and a .tsv file one row per record, with the fields as columns. Of a task with
    one field any other file has one sentence per line, or is one document, one image or one recording; a .txt file has
    the name of an image or a recording per line. Such names are looked for beside the file first.
    """
    for path in paths:
        ending = ending_of(path)
        if ending in JSON:
            for entry in strict(json_objects(path)):
                yield _found_beside(path, _checked(entry.content, fields, f"{path}, line {entry.line}"), fields)
        elif ending == ".tsv" or len(fields) > 1:
            for cells, number in strict(read_cells(path, "\t")):
                if len(cells) != len(fields):
                    raise DataError(f"{path}, line {number}: has {len(cells)} columns. {_expected(fields)}")
                yield _found_beside(path, _record(fields, cells, f"{path}, line {number}"), fields)
        elif fields[0].kind in _FILES and ending not in ("", ".txt"):
            yield {fields[0].name: str(path)}
        elif fields[0].kind == "document":
            yield {fields[0].name: "\n".join(strict(read_lines(path, LONGEST_TEXT)))}
        else:
            for number, line in enumerate(strict(read_lines(path, LONGEST_TEXT)), start=1):
                yield _found_beside(path, _record(fields, [line], f"{path}, line {number}"), fields)


def from_standard_input(fields: Sequence[Field]) -> Iterator[dict[str, Any]]:
    """Yield the records of standard input: JSON objects with the fields, sentences, or one document."""
    lines = _standard_input()
    if fields[0].kind == "document" and len(fields) == 1:
        first = next(lines, None)
        if first is None:
            return
        record = _object(first)
        if record is None or fields[0].name not in record:
            yield {fields[0].name: "\n".join([first, *lines])}
            return
        yield _checked(record, fields, "standard input, line 1")
    for number, line in enumerate(lines, start=1):
        where = f"standard input, line {number}"
        record = _object(line)
        if record is not None and all(field.name in record for field in fields if field.required):
            yield _checked(record, fields, where)
        elif len(fields) == 1:
            yield _record(fields, [line], where)
        else:
            raise DataError(f"{where}: is no such object. {_expected(fields)}")


def _standard_input() -> Iterator[str]:
    binary = getattr(sys.stdin, "buffer", None)
    for number, raw in enumerate(sys.stdin if binary is None else binary, start=1):
        try:
            line = raw if isinstance(raw, str) else raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input, line {number}: byte {error.start + 1} of the line is not UTF-8. Convert it: iconv -f "
                "OLD -t UTF-8."
            ) from error
        yield line.removesuffix("\n").removesuffix("\r")


def _object(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _record(fields: Sequence[Field], values: Sequence[str], where: str) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for field, value in zip(fields, values):
        if field.kind != "number":
            record[field.name] = value
            continue
        if not value.strip().isdecimal():
            raise ConfigError(f"{where}: {field.name} is {value!r}, expected a whole number.")
        record[field.name] = int(value)
    return record


def _found_beside(path: Path, record: dict[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """Return a record of a file with the images and recordings that lie beside it by their full names."""
    for field in fields:
        if field.kind in _FILES and record[field.name] and os.path.exists(path.parent / record[field.name]):
            record[field.name] = str(path.parent / record[field.name])
    return record


def _checked(record: dict[str, Any], fields: Sequence[Field], where: str) -> dict[str, Any]:
    record = {**{field.name: "" for field in fields if not field.required}, **record}
    for field in fields:
        kinds = {"number": int, "choices": str | list}
        if not isinstance(record.get(field.name), kinds.get(field.kind, str)):
            raise DataError(f"{where}: has no {field.name!r} of the right kind. {_expected(fields)}")
    return {field.name: record[field.name] for field in fields}


def _expected(fields: Sequence[Field]) -> str:
    return f"Expected {', '.join(field.name for field in fields)}."
