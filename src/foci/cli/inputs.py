"""The inputs of a prediction from arguments, files, folders or standard input, as records of the task's fields.

What cannot be read is an input too, with the reason and its place, so that the others are still predicted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.audio.files import SOUND_ENDINGS
from foci.data.images.files import image_files
from foci.data.lines import ArrivingLines, Fault, ending_of, read_lines, strict
from foci.data.tables import JSON, LONGEST_TEXT, json_objects, read_cells
from foci.errors import ConfigError, DataError
from foci.files import count_endings, walk
from foci.tasks.frame.task import Field, Task

_FILES = {"image": "images", "audio": "recordings"}
"""Kinds of fields that hold the name of a file, and what such files are called."""
_CHUNK = 1 << 16
"""Bytes of standard input that are read at a time; fewer if fewer have arrived."""


class Input(NamedTuple):
    """An input of a prediction.

    ``record`` is None where it cannot be read, for a ``reason``. ``file`` is its image or recording, else the file that
    it is from (None: an argument, or standard input), and ``line`` its line there.
    """

    record: dict[str, Any] | None
    file: str | None = None
    line: int | None = None
    reason: str = ""

    @property
    def where(self) -> str | None:
        """The place of the input, for messages."""
        return self.file if self.line is None else f"{self.file or 'standard input'}, line {self.line}"


def takes_files(fields: Sequence[Field]) -> bool:
    """Return whether one of the fields is the name of an image or a recording."""
    return any(field.kind in _FILES for field in fields)


def from_arguments(fields: Sequence[Field], values: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a record for every ``len(fields)`` arguments; of one record those that may be empty may be left out."""
    names = " ".join(field.name.upper() for field in fields)
    if len(values) == len([field for field in fields if field.required]):
        fields = [field for field in fields if field.required]
    if len(values) % len(fields):
        raise ConfigError(f"{len(values)} inputs are given, expected {len(fields)} for each prediction: {names}.")
    for start in range(0, len(values), len(fields)):
        try:
            yield _record(fields, values[start : start + len(fields)])
        except DataError as error:
            raise ConfigError(f"the command line: {error}") from error


def from_files(fields: Sequence[Field], paths: Sequence[Path], task: Task | None = None) -> Iterator[Input]:
    """Yield the inputs of files.

    A .jsonl file has one object per line and a .tsv file one row per record, with the fields as columns. Of a task with
    one field any other file has one sentence per line, or is one document, one image or one recording; a .txt file has
    the name of an image or a recording per line. Such names are looked for beside the file first. A folder of texts
    stands for all its files. A ``task`` may read further forms.
    """
    for path in chain.from_iterable(_files_of(fields, path) for path in paths):
        try:
            own = None if task is None else task.read_inputs(path)
            if own is not None:
                print(f"foci: {path}: is read as a file with one word per line", file=sys.stderr)
            yield from _in_file(fields, path, task) if own is None else _own_form(task, path, own)
        except (DataError, OSError) as error:
            yield Input(None, str(path), reason=str(error))


def _files_of(fields: Sequence[Field], path: Path) -> list[Path]:
    """Return the files of a folder of texts, or the folder itself if it has none; any other path alone."""
    return [*map(Path, walk(path))] or [path] if path.is_dir() and not takes_files(fields) else [path]


def _own_form(task: Task | None, path: Path, entries: Iterator[tuple[Any, int] | Fault]) -> Iterator[Input]:
    """Yield the inputs of a file in a form that the task knows."""
    for entry in entries:
        if isinstance(entry, Fault):
            yield Input(None, str(path), entry.line, entry.reason)
        else:
            yield Input(entry[0] if task is None else task.as_input(entry[0]), str(path), entry[1])


def _in_file(fields: Sequence[Field], path: Path, task: Task | None) -> Iterator[Input]:
    ending, kind = ending_of(path), fields[0].kind
    if len(fields) == 1 and kind in _FILES and (path.is_dir() or ending not in ("", ".txt", ".tsv", *JSON)):
        yield Input({fields[0].name: str(path)}, str(path))
        return
    if len(fields) == 1 and kind == "document" and ending not in (".tsv", *JSON):
        yield Input({fields[0].name: "\n".join(strict(read_lines(path, LONGEST_TEXT)))}, str(path))
        return
    for number, entry in enumerate(_entries(fields, path, ending), start=1):
        if isinstance(entry, Fault):
            yield Input(None, str(path), entry.line, entry.reason)
            continue
        try:
            record = _checked(entry, fields, task) if isinstance(entry, dict) else _record(fields, entry)
        except DataError as error:
            yield Input(None, str(path), number, str(error))
        else:
            yield Input(_found_beside(path, record, fields), str(path), number)


def _entries(fields: Sequence[Field], path: Path, ending: str) -> Iterator[dict[str, Any] | tuple[str, ...] | Fault]:
    """Yield the object, the cells or the text of each line of a file."""
    if ending in JSON:
        return (one if isinstance(one, Fault) else one.content for one in json_objects(path))
    if ending == ".tsv" or len(fields) > 1:
        return (one if isinstance(one, Fault) else one.values for one in read_cells(path, "\t"))
    return (one if isinstance(one, Fault) else (one,) for one in read_lines(path, LONGEST_TEXT))


def from_standard_input(fields: Sequence[Field], task: Task | None = None) -> Iterator[list[Input]]:
    """Yield the inputs of standard input as they arrive: JSON objects with the fields, sentences, or one document."""
    groups = _arriving()
    if fields[0].kind == "document" and len(fields) == 1:
        first = next(groups, None)
        if first is None:
            return
        if isinstance(first[0], Fault) or fields[0].name not in (_object(first[0]) or ()):
            lines = [line for group in (first, *groups) for line in group]
            fault = next((line for line in lines if isinstance(line, Fault)), None)
            if len(lines) > 1 and not fault:
                told = f'as one document; for several give JSON lines, {{"{fields[0].name}": …}}'
                print(f"foci: standard input: {len(lines):,} lines are read {told}", file=sys.stderr)
            text = None if fault else {fields[0].name: "\n".join(map(str, lines))}
            yield [Input(text, None, fault and fault.line, fault.reason if fault else "")]
            return
        yield [_from_line(fields, line, number, task) for number, line in enumerate(first, start=1)]
        number = len(first)
    else:
        number = 0
    for group in groups:
        yield [_from_line(fields, line, number + place, task) for place, line in enumerate(group, start=1)]
        number += len(group)


def _from_line(fields: Sequence[Field], line: str | Fault, number: int, task: Task | None) -> Input:
    if isinstance(line, Fault):
        return Input(None, None, number, line.reason)
    record = _object(line)
    try:
        record = record if record is None or task is None else task.as_input(record)
        if record is not None and all(field.name in record for field in fields if field.required):
            return Input(_checked(record, fields, task), None, number)
        if len(fields) == 1:
            return Input(_record(fields, [line]), None, number)
    except DataError as error:
        return Input(None, None, number, str(error))
    names = ", ".join(f'"{field.name}": …' for field in fields)
    return Input(None, None, number, f"is no JSON object with the inputs, expected {{{names}}} on each line.")


def _arriving() -> Iterator[list[str | Fault]]:
    """Yield the lines of standard input, each time all that have arrived: a pipe may stay open between two lines."""
    lines = ArrivingLines(Path("-"))
    stream = getattr(sys.stdin, "buffer", None)
    while chunk := sys.stdin.readline().encode() if stream is None else stream.read1(_CHUNK):
        if arrived := lines.add(chunk):
            yield arrived
    if left := lines.finish():
        yield left


def with_folders(inputs: Iterable[Input], fields: Sequence[Field], log: Callable[[str], None]) -> Iterator[Input]:
    """Yield the inputs; one that names a folder becomes one for each image or recording in it, at any depth."""
    media = next((field for field in fields if field.kind in _FILES), None)
    for one in inputs:
        if media is None or one.record is None:
            yield one
            continue
        name = one.record[media.name]
        if not os.path.isdir(name):
            yield one._replace(file=name, line=None) if name else one
            continue
        found, others = image_files(name) if media.kind == "image" else _sound_files(name)
        if not found:
            yield one._replace(record=None, file=name, line=None, reason=f"the folder has no {_FILES[media.kind]}.")
        if others:
            skipped = f"skipped {len(others):,} other files ({count_endings(others)})"
            log(f"{name}: {len(found):,} {_FILES[media.kind]}; {skipped}")
        for path in found:
            yield Input({**one.record, media.name: path}, path)


def _sound_files(folder: str) -> tuple[list[str], list[str]]:
    """Return the recordings of a folder and its folders, and its other files."""
    found: tuple[list[str], list[str]] = [], []
    for path in walk(folder):
        found[not path.lower().endswith(SOUND_ENDINGS)].append(path)
    return found


def _object(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _record(fields: Sequence[Field], values: Sequence[str]) -> dict[str, Any]:
    if len(values) != len(fields):
        raise DataError(f"has {len(values)} columns. {_expected(fields)}")
    record: dict[str, Any] = {}
    for field, value in zip(fields, values):
        if field.kind != "number":
            record[field.name] = value
            continue
        if not value.strip().isdecimal():
            raise DataError(f"{field.name} is {value!r}, expected a whole number.")
        record[field.name] = int(value)
    return record


def _found_beside(path: Path, record: dict[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """Return a record of a file with the images and recordings that lie beside it by their full names."""
    for field in fields:
        if field.kind in _FILES and record[field.name] and os.path.exists(path.parent / record[field.name]):
            record[field.name] = str(path.parent / record[field.name])
    return record


def _checked(record: dict[str, Any], fields: Sequence[Field], task: Task | None) -> dict[str, Any]:
    record = record if task is None else task.as_input(record)
    record = {**{field.name: "" for field in fields if not field.required}, **record}
    for field in fields:
        kinds = {"number": int, "choices": str | list}
        if not isinstance(record.get(field.name), kinds.get(field.kind, str)):
            raise DataError(f"has no {field.name!r} of the right kind. {_expected(fields)}")
    further = () if task is None else task.further
    return {name: record[name] for name in (*(field.name for field in fields), *further) if name in record}


def _expected(fields: Sequence[Field]) -> str:
    return f"Expected {', '.join(field.name for field in fields)}."
