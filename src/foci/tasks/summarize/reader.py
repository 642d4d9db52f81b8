"""Texts with their summaries from the user's files: two aligned files, a table, or JSONL; several references each.

    read_summaries(source, target)          line n of one file is summarized by line n of the other
    read_summaries(path, columns=(a, b))    columns of a .csv or .tsv file, fields of a .jsonl file (+ .gz, .xz)

In JSONL the target may be a list of references, and the source a list of sentences, which are joined by spaces; a field
"references" holds further ones. An empty text or summary is a fault with its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.lines import Fault, each, empty_field, ending_of, read_examples
from foci.data.pairs import AlignedFiles, Columns
from foci.data.tables import JSON, LONGEST_TEXT, JsonObject, field_of, json_objects, read_rows
from foci.errors import ConfigError


class SummarizedText(NamedTuple):
    """A text, its summary, and further references."""

    source: str
    target: str
    references: tuple[str, ...] = ()


def read_summaries(
    source: str | Path,
    target: str | Path | None = None,
    *,
    columns: Columns | None = None,
    references: Sequence[int | str] = (),
) -> list[SummarizedText]:
    """Return all texts with their summaries.

    Args:
        source: the texts, one per line; or a .csv, .tsv or .jsonl file with both.
        target: the summaries, one per line.
        columns: columns or fields of text and summary. Default: "source" and "target".
        references: columns or fields of further references.

    Raises:
        DataError: with the first fault, its file and line, and the number of faults.
    """
    path = Path(source)
    if target is None:
        return read_examples(path, _entries(path, (*(columns or ("source", "target")), *references)), "texts")
    if columns is not None or references:
        raise ConfigError("data: two aligned files have no columns. Give one file, or leave columns out.")
    pairs = AlignedFiles(path, target, max_characters=LONGEST_TEXT).entries()
    return read_examples(path, each(pairs, lambda pair: SummarizedText(*pair)), "texts")


def _entries(path: Path, columns: Sequence[int | str]) -> Iterator[SummarizedText | Fault]:
    if ending_of(path) in JSON:
        names = [str(column) for column in columns]
        return each(json_objects(path, names), lambda one: _from_object(path, one, names))
    expected = "summaries in a .csv, .tsv or .jsonl file (also .gz, .xz), or in a second file (data.target)"
    rows = read_rows(path, columns, texts=len(columns), expected=expected)
    return each(rows, lambda row: _summary(row.values[0], row.values[1:], path, row.line))


def _from_object(path: Path, entry: JsonObject, names: Sequence[str]) -> SummarizedText | Fault:
    record, line = entry
    given = [*names, *(["references"] if "references" in record and "references" not in names else [])]
    values = [_texts(field_of(record, name)) for name in given]
    if None in values:
        reason = f"field {given[values.index(None)]!r} is no text, expected a text or a list of texts."
        return Fault(path, line, "field without text", reason)
    text, *others = (value or [] for value in values)
    return _summary(" ".join(text), [one for some in others for one in some], path, line)


def _texts(value: Any) -> list[str] | None:
    values = [value] if isinstance(value, str) else value
    return values if isinstance(values, list) and all(isinstance(one, str) for one in values) else None


def _summary(source: str, targets: Sequence[str], path: Path, line: int) -> SummarizedText | Fault:
    texts = [one.strip() for one in targets]
    if empty := empty_field(path, line, source=source):
        return empty
    if not texts or not all(texts):
        return Fault(path, line, "empty summary", "a summary is empty.")
    return SummarizedText(source.strip(), texts[0], tuple(texts[1:]))
