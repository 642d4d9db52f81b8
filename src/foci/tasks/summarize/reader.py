"""Texts with their summaries from the user's files: two aligned files, a table, or JSONL; several references each.

    read_summaries(source, target)          line n of one file is summarized by line n of the other
    read_summaries(path, fields=(a, b))     columns of a .csv or .tsv file, fields of a .jsonl file (+ .gz, .xz)

In JSONL the target may be a list of references, and the source a list of sentences, which are joined by spaces; a field
"references" holds further ones. An empty text or summary is a fault with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.lines import Fault, Log, ending_of, usable
from foci.data.pairs import AlignedFiles
from foci.data.progress import counted
from foci.data.tables import LONGEST_TEXT, json_objects, read_table
from foci.errors import ConfigError, DataError


class Summary(NamedTuple):
    """A text, its summary, and further references."""

    source: str
    target: str
    references: tuple[str, ...] = ()


def read_summaries(
    source: str | Path,
    target: str | Path | None = None,
    *,
    fields: tuple[int | str, int | str] | None = None,
    references: Sequence[int | str] = (),
    log: Log | None = None,
) -> list[Summary]:
    """Return all texts with their summaries.

    Args:
        source: the texts, one per line; or a .csv, .tsv or .jsonl file with both.
        target: the summaries, one per line.
        fields: columns or fields of text and summary; "source" and "target" unless given.
        references: columns or fields of further references.
        log: called with a message every few seconds.

    Raises:
        DataError: with the first fault, its file and line, and the number of faults.
    """
    path = Path(source)
    if target is not None:
        if fields is not None or references:
            raise ConfigError("data: two aligned files have no fields. Give one file, or leave fields out.")
        entries = _aligned(path, Path(target))
    else:
        entries = _entries(path, fields or ("source", "target"), references)
    found = list(usable(entries if log is None else counted(entries, "texts", log), "texts"))
    if not found:
        raise DataError(f"{path}, line 1: no texts, the file is empty.")
    return found


def _aligned(source: Path, target: Path) -> Iterator[Summary | Fault]:
    for entry in AlignedFiles(source, target, max_characters=LONGEST_TEXT).entries():
        yield entry if isinstance(entry, Fault) else Summary(*entry)


def _entries(
    path: Path, fields: tuple[int | str, int | str], references: Sequence[int | str]
) -> Iterator[Summary | Fault]:
    names = [*fields, *references]
    ending = ending_of(path)
    if ending in (".csv", ".tsv"):
        for row in read_table(path, names, separator="," if ending == ".csv" else "\t"):
            yield row if isinstance(row, Fault) else _summary(row.values[0], row.values[1:], path, row.line)
    elif ending in (".jsonl", ".json"):
        for one in json_objects(path, [str(name) for name in names]):
            if isinstance(one, Fault):
                yield one
                continue
            given = [*names, *(["references"] if "references" in one.content and "references" not in names else [])]
            values = [_texts(one.content[str(name)]) for name in given]
            wrong = [str(name) for name, value in zip(given, values) if value is None]
            if wrong:
                reason = f"field {wrong[0]!r} is no text, expected a text or a list of texts."
                yield Fault(path, one.line, "field without text", reason)
            else:
                text, *others = (value or [] for value in values)
                yield _summary(" ".join(text), [each for some in others for each in some], path, one.line)
    elif not path.exists():
        raise DataError(f"{path}: there is no such file.")
    else:
        raise ConfigError(
            f"{path} alone holds no summaries: expected .csv, .tsv or .jsonl (also .gz, .xz), or a second file with "
            "the summaries (data.target)."
        )


def _texts(value: Any) -> list[str] | None:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        return None
    if any("\ud800" <= character <= "\udfff" for one in values for character in one):
        return None
    return values


def _summary(source: str, targets: Sequence[str], path: Path, line: int) -> Summary | Fault:
    texts = [one.strip() for one in targets]
    if not source.strip():
        return Fault(path, line, "empty source", "the source is empty.")
    if not texts or not all(texts):
        return Fault(path, line, "empty summary", "a summary is empty.")
    return Summary(source.strip(), texts[0], tuple(texts[1:]))
