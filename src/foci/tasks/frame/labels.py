"""What tasks with labels share: their numbers and their file, tables from the confusion, and its picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from foci.data.vocabulary import Vocabulary
from foci.errors import CheckpointError, DataError
from foci.metrics import labels as label_metrics
from foci.printable import printable
from foci.tasks.frame.task import Log, Table

LABELS_FILE = "labels.json"
"""The file of a run that has its labels in their order."""


def number_labels(labels: Iterable[str], known: Sequence[str], what: str, use: str, fix: str = "") -> list[int]:
    """Return the number of each label.

    Args:
        labels: the label of each example.
        known: the labels of the training examples, in their order.
        what: what an example is, for messages: "a document".
        use: what the examples are for: "train on", "validate" or "evaluate".
        fix: how to fix it, if the task knows.

    Raises:
        DataError: a label that the training examples do not have.
    """
    number = {label: place for place, label in enumerate(known)}
    found = []
    for label in labels:
        if label not in number:
            raise DataError(
                f"{what} to {use} has the label {label!r}, which the training data does not have: "
                f"{', '.join(known[:20])}.{' ' * bool(fix)}{fix}"
            )
        found.append(number[label])
    return found


def labels_text(labels: Sequence[str]) -> str:
    """Return the text of `LABELS_FILE`."""
    return json.dumps(list(labels), ensure_ascii=False)


def labels_from(text: str) -> tuple[str, ...]:
    """Return the labels of the text of `LABELS_FILE`.

    Raises:
        CheckpointError: the text is not that of at least two labels.
    """
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{LABELS_FILE}: the classes of the run cannot be read ({error}).") from error
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels) or len(labels) < 2:
        raise CheckpointError(f"{LABELS_FILE}: holds no list of at least two classes. Restore the file.")
    return tuple(labels)


def label_tables(labels: Sequence[str], counts: label_metrics.Confusion, *, kind: str, unit: str) -> dict[str, Table]:
    """Return the table ``confusion``, and ``classes`` with the metrics of each label.

    Args:
        labels: in the order of the rows and columns.
        counts: the confusion.
        kind: what a label is, "class" or "label".
        unit: what is counted, "documents" or "pairs".
    """
    rows = tuple((label, *map(int, row)) for label, row in zip(labels, counts))
    f1 = [None if np.isnan(value) else float(value) for value in label_metrics.f1_per_class(counts)]
    each = tuple(zip(labels, map(int, counts.sum(axis=1)), map(int, counts.sum(axis=0)), f1))
    return {
        "confusion": Table((f"{kind} \\ predicted", *labels), rows),
        "classes": Table((kind, unit, "predicted", "f1"), each),
    }


def draw_confusion(table: Table, path: Path, *, kind: str, unit: str) -> None:
    """Draw the confusion of `label_tables` to a .png, .svg or .pdf file."""
    from foci.viz.heatmap import heatmap

    counts = [list(row[1:]) for row in table.rows]
    heatmap(
        counts,
        path,
        rows=list(table.columns[1:]),
        columns=list(table.columns[1:]),
        texts=[[str(count) for count in row] for row in counts],
        row_axis=kind,
        column_axis="predicted",
        scale=unit,
    )


def log_labels(labels: Iterable[str], kind: str, log: Log) -> None:
    """Log the labels with their counts, and which of them differ in case or spaces alone.

    Args:
        labels: of all examples.
        kind: the plural of what a label is, "classes" or "labels".
        log: called with each message.
    """
    counts = Counter(labels)
    shown = [f"{printable(label)} ({count:,})" for label, count in counts.most_common(20)]
    more = f" and {len(counts) - 20} more" if len(counts) > 20 else ""
    log(f"{len(counts)} {kind}: {', '.join(shown)}{more}")
    alike: dict[str, list[str]] = {}
    for label in sorted(counts):
        alike.setdefault("".join(label.casefold().split()), []).append(label)
    for some in alike.values():
        if len(some) > 1:
            names = ", ".join(repr(printable(label)) for label in some)
            log(f"warning: the {kind} {names} differ in case or spaces alone, and are trained as different {kind}")


class Lexicon(NamedTuple):
    """The words and the classes of a run."""

    vocabulary: Vocabulary
    labels: tuple[str, ...]

    def to_files(self) -> dict[str, str]:
        """Return both as JSON."""
        return {"vocabulary.json": self.vocabulary.to_text(), LABELS_FILE: labels_text(self.labels)}
