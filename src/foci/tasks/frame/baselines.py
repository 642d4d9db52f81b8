"""What a task counts in its training data, to be compared with in evaluations: kept in the run beside its assets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from foci.errors import CheckpointError
from foci.files import read_text

FILE = "baselines.json"
"""The file of a run; runs of earlier versions have none."""
V = TypeVar("V", bound=Hashable)


def read(run: Path) -> dict[str, Any]:
    """Return the baselines of a run; nothing where it has kept none.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not (run / FILE).exists():
        return {}
    try:
        content = json.loads(read_text(run / FILE))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{run / FILE}: cannot be read as JSON ({error}). Restore the file, or remove it."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{run / FILE}: holds no object. Restore the file, or remove it.")
    return content


def most_frequent(values: Iterable[V]) -> V:
    """Return the most frequent value; of equally frequent ones the first in their order.

    Example:
        >>> most_frequent(["b", "a", "b", "a", "c"])
        'a'
    """
    counts = Counter(values)
    highest = max(counts.values())
    return min((value for value, count in counts.items() if count == highest), key=str)


def most_frequent_by(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the most frequent second of each first.

    Example:
        >>> most_frequent_by([("is", "O"), ("May", "DATE"), ("is", "O"), ("is", "DATE")])
        {'is': 'O', 'May': 'DATE'}
    """
    found: dict[str, list[str]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return {first: most_frequent(seconds) for first, seconds in found.items()}
