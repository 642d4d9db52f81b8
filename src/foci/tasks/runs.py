"""What the runs of all tasks share: where their checkpoints are, how they are told of, and batches to predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from foci.errors import CheckpointError, near_names
from foci.training.checkpoint import AVERAGED, Checkpoints

Say = Callable[[str], None]
"""How a training tells its user something."""


def find_checkpoint(run: Path, name: str) -> Path:
    """The folder of a checkpoint: "best", "last", a name, or "auto": the averaged one if there is one, or the best."""
    store = Checkpoints(run / "checkpoints")
    averaged = store.folder / AVERAGED
    if name == "best" or (name == "auto" and not averaged.exists()):
        return store.best()
    if name == "last" and store.all():
        return store.all()[-1]
    chosen = averaged if name == "auto" else store.folder / name
    if not chosen.exists():
        known = [path.name for path in (*store.all(), averaged) if path.exists()]
        raise CheckpointError(
            f"{run}: has no checkpoint {name!r}. {near_names(name, ['auto', 'best', 'last', *known])}"
        )
    return chosen


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of texts of about equal length, together at most ``batch_tokens``, padding included."""
    held: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if held and (len(held) + 1) * max(lengths[held[0]], 1) > batch_tokens:
            yield held
            held = []
        held.append(i)
    if held:
        yield held
