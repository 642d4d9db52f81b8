"""What a task counts in its training data, to be compared with in evaluations: kept in the run beside its assets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from foci.errors import CheckpointError
from foci.files import read_bytes

FILE = "baselines.json"
"""The file of a run; runs of earlier versions have none."""
V = TypeVar("V", bound=Hashable)


def read(run: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the baselines of a run, which have these types by name; nothing where it has kept none.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not (run / FILE).exists():
        return {}
    try:
        content = TypeAdapter(dict[str, Any]).validate_json(read_bytes(run / FILE))
        return {
            name: TypeAdapter(kind).validate_python(content[name]) for name, kind in types.items() if name in content
        }
    except (OSError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise CheckpointError(f"{run / FILE}: cannot be read ({reason}). Restore the file, or remove it.") from error


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
