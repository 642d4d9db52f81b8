"""What tasks with classes share: numbers and file of the classes, tables, and the picture of the confusion."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from foci.errors import CheckpointError, DataError
from foci.metrics import labels as figures_of
from foci.metrics.labels import Confusion
from foci.printable import printable
from foci.tasks.task import Evaluation, Log, Table

LABELS_FILE = "labels.json"


def number_classes(labels: Iterable[str], known: Sequence[str], what: str, use: str) -> list[int]:
    """Return the number of each class.

    Args:
        labels: the class of each example.
        known: the classes of the training examples.
        what: what an example is, for messages: "a document".
        use: what the examples are for: "train on", "validate" or "evaluate".

    Raises:
        DataError: a class that the training examples do not have.
    """
    number = {label: place for place, label in enumerate(known)}
    found = []
    for label in labels:
        if label not in number:
            raise DataError(
                f"{what} to {use} is of the class {label!r}, which the training data does not have: "
                f"{', '.join(known[:20])}."
            )
        found.append(number[label])
    return found


def log_classes(labels: Iterable[str], log: Log) -> None:
    """Log the classes with their counts, and which of them differ in case or spaces alone."""
    counts = Counter(labels)
    shown = [f"{printable(label)} ({count:,})" for label, count in counts.most_common(20)]
    more = f" and {len(counts) - 20} more" if len(counts) > 20 else ""
    log(f"{len(counts)} classes: {', '.join(shown)}{more}")
    alike: dict[str, list[str]] = {}
    for label in sorted(counts):
        alike.setdefault("".join(label.casefold().split()), []).append(label)
    for some in alike.values():
        if len(some) > 1:
            names = ", ".join(repr(printable(label)) for label in some)
            log(f"warning: the classes {names} differ in case or spaces alone, and are trained as different classes")


def labels_text(labels: Sequence[str]) -> str:
    """Return the text of `LABELS_FILE`."""
    return json.dumps(list(labels), ensure_ascii=False)


def labels_from(text: str) -> tuple[str, ...]:
    """Return the classes of the text of `LABELS_FILE`.

    Raises:
        CheckpointError: the text is not that of at least two classes.
    """
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{LABELS_FILE}: the classes of the run cannot be read ({error}).") from error
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels) or len(labels) < 2:
        raise CheckpointError(f"{LABELS_FILE}: holds no list of at least two classes. Restore the file.")
    return tuple(labels)


def class_tables(labels: Sequence[str], counts: Confusion, what: str) -> dict[str, Table]:
    """Return the confusion, and the F1 of each class; ``what`` is the name of the examples in the plural."""
    rows = tuple((label, *map(int, row)) for label, row in zip(labels, counts))
    f1 = [None if np.isnan(value) else float(value) for value in figures_of.f1_per_class(counts)]
    classes = tuple(zip(labels, map(int, counts.sum(axis=1)), map(int, counts.sum(axis=0)), f1))
    return {
        "confusion": Table(("class \\ predicted", *labels), rows),
        "classes": Table(("class", what, "predicted", "f1"), classes),
    }


def draw_confusion(evaluation: Evaluation, path: Path, what: str) -> None:
    """Draw the confusion; ``what`` is the name of the examples in the plural."""
    from foci.viz.heatmap import heatmap

    table = evaluation.tables["confusion"]
    counts = [list(row[1:]) for row in table.rows]
    heatmap(
        counts,
        path,
        rows=list(table.columns[1:]),
        columns=list(table.columns[1:]),
        texts=[[str(count) for count in row] for row in counts],
        row_axis="class",
        column_axis="predicted",
        scale=what,
    )
