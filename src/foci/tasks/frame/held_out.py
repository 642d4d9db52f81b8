"""Which examples a run has trained on, validated with and held out: digests that its folder keeps for evaluations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from foci.data.splits import digest
from foci.errors import CheckpointError
from foci.files import open_regular
from foci.tasks.frame.task import Log, Record, Splits, Task

FILE = "examples.safetensors"
"""The file of a run with eight bytes for each example."""

Digests = NDArray[np.uint64]


class HeldOut(list[dict[str, Any]]):
    """Held-out examples: which part they are, and how they differ from those of the run, None where they do not."""

    part: Literal["valid", "test"] = "test"
    change: str | None = None


class Fingerprint(NamedTuple):
    """Digests of what the examples of each part ask, and of the examples to evaluate on with their answers."""

    train: Digests
    valid: Digests
    test: Digests
    evaluated: Digests

    @classmethod
    def from_splits(cls, task: Task, splits: Splits) -> Fingerprint:
        """Compute the digests, in one pass over the examples."""
        train, valid, test = (_digests(text for one in part for text in task.contents(one)) for part in splits)
        return cls(train, valid, test, _digests(_whole(task, one) for one in splits.test or splits.valid))

    @classmethod
    def read(cls, run: Path) -> Fingerprint | None:
        """Return that of a run; None for a run of an earlier version, of which nothing is known."""
        path = run / FILE
        if not path.exists():
            return None
        try:
            open_regular(path).close()  # the library waits for the other end of a pipe
            kept = cls(**load_file(path))
            if any(part.dtype != np.uint64 or part.ndim != 1 for part in kept):
                raise TypeError("these are no digests")
            return kept
        except (OSError, SafetensorError, TypeError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error}). Restore the file, or remove it.") from error

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        return save(self._asdict())

    def warnings(self) -> list[str]:
        """Return a message for each two parts that share examples."""
        uses = {"train": "train on", "valid": "validate", "test": "evaluate"}
        messages = []
        for one, other in (("test", "train"), ("test", "valid"), ("valid", "train")):
            held = getattr(self, one)
            if count := int(np.isin(held, getattr(self, other)).sum()):
                messages.append(
                    f"warning: {count:,} of {len(held):,} different examples to {uses[one]} are also among those to "
                    f"{uses[other]}"
                )
        return messages


def _digests(texts: Iterable[str]) -> Digests:
    """Return the different digests in order, so that equal data has equal bytes."""
    return np.unique(np.fromiter(map(digest, texts), np.uint64))


def _whole(task: Task, example: Any) -> str:
    record = example if isinstance(example, Mapping) else example._asdict()
    answers = {one.name: record[one.name] for one in task.targets}
    return json.dumps([list(task.contents(example)), answers], sort_keys=True, default=str)


def change(run: Path, task: Task, splits: Splits) -> str | None:
    """Return how the examples to evaluate on differ from those that the run held out; None if they are the same."""
    kept = Fingerprint.read(run)
    if kept is None:
        return None
    now = _digests(_whole(task, one) for one in splits.test or splits.valid)
    new, missing = (int((~np.isin(*pair)).sum()) for pair in ((now, kept.evaluated), (kept.evaluated, now)))
    if not new and not missing:
        return None
    return (
        f"the data has changed since the training: of {len(now):,} held-out examples {new:,} are new, and {missing:,} "
        f"of the {len(kept.evaluated):,} held out then are missing"
    )


def notes(run: Path, task: Task, records: Sequence[Record], given: Any) -> dict[str, str]:
    """Return what to know about examples that a run is evaluated on: whether it has seen them.

    Args:
        run: its folder.
        task: its task.
        records: the examples.
        given: what was passed to `evaluate`, which may be a `HeldOut`.
    """
    found = {}
    if isinstance(given, HeldOut) and given.change is not None:
        found["data_changed"] = given.change
    kept = Fingerprint.read(run)
    now = [digest(text) for record in records for text in task.contents(record)]
    asked = np.array(now, np.uint64)
    trained = np.zeros(len(now), bool) if kept is None else np.isin(asked, kept.train)
    chose = np.zeros(len(now), bool) if kept is None else np.isin(asked, kept.valid) & ~trained
    if trained.any():
        found["trained_on"] = (
            f"{int(trained.sum()):,} of {len(now):,} {task.counted} were trained on (case, punctuation and spaces "
            "aside): the metrics are not those of new data"
        )
    if isinstance(given, HeldOut) and given.part == "valid":
        found["chose_checkpoint"] = (
            "these examples chose the checkpoint, since the run has none to evaluate on: the metrics are better than "
            "those of new data. Name others, or train with data.test or data.test_share"
        )
    elif chose.any():
        found["chose_checkpoint"] = (
            f"{int(chose.sum()):,} of {len(now):,} {task.counted} chose the checkpoint (validation): the metrics are "
            "better than those of new data"
        )
    return found


SEEN = ("data_changed", "trained_on", "chose_checkpoint")
"""The names of these notes."""


def log_overlap(fingerprint: Fingerprint, run: Path, log: Log) -> None:
    """Log which parts share examples, and, where a run is resumed, which are not those that it began with."""
    for message in fingerprint.warnings():
        log(message)
    began = Fingerprint.read(run)
    for name in ("valid", "test"):
        if began is not None and not np.array_equal(getattr(began, name), getattr(fingerprint, name)):
            use = "validate" if name == "valid" else "evaluate"
            log(f"warning: the examples to {use} are not those that the run began with, which it keeps digests of")
