"""What the runs of all tasks share: how their training is set, where their checkpoints are, batches to predict."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foci.errors import CheckpointError, near_names
from foci.tasks import config as configs
from foci.training import TrainingOptions
from foci.training.checkpoint import AVERAGED, Checkpoints

Say = Callable[[str], None]
"""Is called with what the user should know."""


def tell_user(text: str) -> None:
    """On standard error, at once."""
    print(text, file=sys.stderr, flush=True)


def training_options(defaults: TrainingOptions, given: Mapping[str, Any], origin: str) -> TrainingOptions:
    """The options of a task's training; who says when to stop is taken at their word."""
    options = {**asdict(defaults), **given}
    if {"max_steps", "time_limit"} & given.keys():
        options["max_epochs"] = given.get("max_epochs")
        options["patience"] = given.get("patience")
    return configs.build(TrainingOptions, options, origin, "training")


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
