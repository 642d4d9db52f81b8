"""Pairs of a premise and a hypothesis with a label, from tables and JSON lines, SNLI's, SICK's and OCNLI's included.

Columns are recognized by the names that the common data sets give them, or named by the caller. Rows whose label is
"-", which have no agreed label, are left out and counted. A column such as SICK's SemEval_set says which rows are for
training, validation and test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from foci.data.lines import Fault, each, empty_field, usable
from foci.data.tables import Column, TableRow, read_rows
from foci.errors import DataError
from foci.tasks.entail.config import SPLIT

NO_LABEL = "-"
"""The label of pairs on which the annotators did not agree."""
PREMISE = ("premise", "sentence1", "sentence_A", "text_a", "query")
HYPOTHESIS = ("hypothesis", "sentence2", "sentence_B", "text_b", "title")
LABEL = ("label", "gold_label", "entailment_judgment", "entailment_label")
"""Names of the columns, in the order in which they are tried."""
SPLITS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "dev", "development", "trial"),
    "test": ("test",),
}
"""What such a column may say, in any case."""


class SentencePair(NamedTuple):
    """A premise, a hypothesis and the label of the pair."""

    premise: str
    hypothesis: str
    label: str


class PairFile(NamedTuple):
    """The pairs of a file by split ("" where the file has none), and how many were left out for want of a label."""

    splits: dict[str, list[SentencePair]]
    unlabeled: int


def read_entailment(
    path: str | Path,
    *,
    columns: Sequence[Column] | None = None,
    split: str = SPLIT,
    names: Mapping[str, str] | None = None,
) -> PairFile:
    """Return the pairs of a file.

    Args:
        path: a .tsv or .txt file (tabs), a .csv or a .jsonl file, also .gz or .xz.
        columns: those of premise, hypothesis and label, or fields, by name; of a table without a line of names by
            three zero-based numbers. Default: the names that the common data sets give them.
        split: the column or field that says which split a row belongs to, where the file has it.
        names: what labels of the file are called in foci, such as ``{"0": "entailment"}``.

    Raises:
        ConfigError: the file has another form, or only some columns are numbers.
        DataError: with the first fault, its file and line, and the number of faults; everything is read before.
    """
    path = Path(path)
    rows = read_rows(
        path,
        columns or (PREMISE, HYPOTHESIS, LABEL),
        texts=2,
        optional=(split,),
        tabs=(".tsv", ".txt"),  # .txt: SICK's and SNLI's own files
        expected=".tsv, .txt (tabs), .csv or .jsonl (also .gz, .xz)",
    )
    entries = each(rows, lambda row: _pair(row, path, split, names or {}))
    splits: dict[str, list[SentencePair]] = {}
    unlabeled = 0
    for part, pair in usable(entries, "pairs"):
        if pair.label == NO_LABEL:
            unlabeled += 1
        else:
            splits.setdefault(part, []).append(pair)
    if not splits:
        what = f"all {unlabeled} rows have the label {NO_LABEL!r}" if unlabeled else "no pairs, the file is empty"
        raise DataError(f"{path}, line 1: {what}.")
    return PairFile(splits, unlabeled)


def _pair(row: TableRow, path: Path, column: str, names: Mapping[str, str]) -> tuple[str, SentencePair] | Fault:
    texts = [value.strip() for value in row.values]
    pair = SentencePair(texts[0], texts[1], names.get(texts[2], texts[2]))
    if empty := empty_field(path, row.line, **pair._asdict()):
        return empty
    part = texts[3].casefold() if len(texts) > 3 else ""
    split = next((name for name, names in SPLITS.items() if part in names), None if part else "")
    if split is None:
        known = ", ".join(name for names in SPLITS.values() for name in names)
        return Fault(path, row.line, "unknown split", f"{column} is {texts[3]!r}, expected one of {known}.")
    return split, pair
