"""The loop of every prediction: inputs of about equal length together, answers in the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from foci.tasks.frame.task import Prediction, Progress, Record


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


def predict_in_batches(
    records: Sequence[Record],
    batches: Iterable[Sequence[int]],
    answer: Callable[[Sequence[int]], Iterable[Prediction]],
    progress: Progress,
    unusable: Mapping[int, str] | None = None,
) -> list[Prediction]:
    """Return a prediction for each record, in the order of the records.

    Args:
        records: the inputs.
        batches: the numbers of the records that are predicted together, such as those of `by_length`.
        answer: returns the predictions of such a batch, in its order.
        progress: called with the number of records that were just done.
        unusable: why nothing can be predicted for a record, by its number; the reason becomes a note.
    """
    notes = unusable or {}
    found = {number: Prediction(records[number], "", None, {"notes": [note]}) for number, note in notes.items()}
    progress(len(found))
    for numbers in batches:
        found |= zip(numbers, answer(numbers), strict=True)
        progress(len(numbers))
    return [found[number] for number in range(len(records))]
