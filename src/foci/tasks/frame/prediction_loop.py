"""The loop of every prediction: inputs of about equal length together, answers in the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from foci.data.batching import Examples
from foci.tasks.frame.task import Prediction, Progress, Record

Batch = TypeVar("Batch", bound=Any)
Made = TypeVar("Made")


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of inputs of about equal length, together at most ``batch_tokens``, padding included.

    Example:
        >>> list(by_length([1, 5, 2, 4], batch_tokens=10))
        [[1, 3], [2, 0]]
    """
    held: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if held and (len(held) + 1) * max(lengths[held[0]], 1) > batch_tokens:
            yield held
            held = []
        held.append(i)
    if held:
        yield held


def batches_by_length(examples: Examples[Made], batch_tokens: int) -> Iterator[tuple[Made, list[int]]]:
    """Yield batches of examples of about equal length, by their first tensor, and the numbers of the examples."""
    for numbers in by_length(examples.lengths[:, 0].tolist(), batch_tokens):
        yield batch_of(examples, numbers), numbers


def batch_of(examples: Examples[Made], numbers: Sequence[int]) -> Made:
    """Return examples as one batch, padded to the longest of them."""
    return examples.batch(np.array(numbers), examples.lengths[list(numbers)].max(axis=0).tolist())


def predict_in_batches(
    records: Sequence[Record],
    batches: Iterable[Batch],
    answer: Callable[[Batch], Iterable[Prediction]],
    progress: Progress,
    *,
    unusable: Mapping[int, str] | None = None,
    numbers: Callable[[Batch], Sequence[int]] = lambda batch: batch,
) -> list[Prediction]:
    """Return a prediction for each record, in the order of the records.

    Args:
        records: the inputs.
        batches: what is predicted together; the numbers of records by default, such as `by_length` yields.
        answer: returns the predictions of a batch.
        progress: called with the number of records that were just done.
        unusable: why nothing can be predicted for a record, by its number; it has failed, with this note.
        numbers: returns the numbers of the records of a batch, in the order of its predictions.
    """
    notes = unusable or {}
    answers = {number: Prediction.failure(records[number], note) for number, note in notes.items()}
    progress(len(answers))
    for batch in batches:
        rows = numbers(batch)
        answers |= zip(rows, answer(batch), strict=True)
        progress(len(rows))
    return [answers[number] for number in range(len(records))]
