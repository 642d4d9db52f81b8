"""`foci.fit`: the training of foci for a model of one's own, as a run that is resumed and loaded like any other.

result = foci.fit(model, objective, batches, out="runs/mine", options={"max_steps": 1000})
model = foci.load("runs/mine", model=MyModel)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from foci.errors import CheckpointError, ConfigError
from foci.settings import build, to_tables
from foci.training.devices import launch_agents, launched, others_waiting
from foci.training.engine import TrainingResult, run_training
from foci.training.objective import Batches, Objective
from foci.training.options import RESUMABLE, TrainingOptions
from foci.training.run_folder import RunFolder, begun_by_launch, check_folder, read_config


class BatchList:
    """Batches of a list, in a new order in every epoch, which depends on the seed and the epoch alone.

    Example:
        >>> batches = BatchList(["a", "b", "c"], seed=1)
        >>> stream = iter(batches)
        >>> sorted(next(stream) for _ in range(3)), batches.state_dict()
        (['a', 'b', 'c'], {'epoch': 1, 'position': 0, 'batches': 3})
    """

    def __init__(self, batches: Sequence[Any], seed: int = 0) -> None:
        if not len(batches):
            raise ConfigError("fit: the list of batches is empty, expected at least one batch.")
        self.batches, self.seed = batches, seed
        self.epoch = self.position = 0

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches from the present position on, without end."""
        while True:
            order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.batches))
            chosen = self.batches[int(order[self.position])]
            epochs, self.position = divmod(self.position + 1, len(self.batches))
            self.epoch += epochs
            yield chosen

    def state_dict(self) -> dict[str, Any]:
        """Return the present position."""
        return {"epoch": self.epoch, "position": self.position, "batches": len(self.batches)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        if state.get("batches") != len(self.batches):
            raise ConfigError(
                f"fit: there are {len(self.batches)} batches, but the run was begun with {state.get('batches')}. "
                "Resume it with the same data."
            )
        self.epoch, self.position = state["epoch"], state["position"]


def fit(
    model: nn.Module,
    objective: Objective,
    batches: Batches | Sequence[Any],
    *,
    out: str | Path,
    options: TrainingOptions | Mapping[str, Any],
    arguments: Mapping[str, Any] | None = None,
    resume: bool = False,
    log: Callable[[str], None] | None = None,
) -> TrainingResult:
    """Train a model of one's own into a folder: validation, checkpoints, metrics, and resuming bit for bit.

    Args:
        model: any module; at the end it has the last weights.
        objective: its loss and its validation; see `foci.training.objective.Objective`.
        batches: a list of batches, which are shuffled in every epoch, or `foci.training.objective.Batches`, which
            give each of several processes its share.
        out: the folder of the run, new or empty.
        options: those of the training loop, as `foci.training.options.TrainingOptions` or by their names.
        arguments: what the class of the model was called with, as plain JSON. They are kept in the run, so that
            ``foci.load(out, model=MyModel)`` makes the model. Default: none.
        resume: continue the run in ``out``; limits, learning rate and validation may change.
        log: called with each message. Default: standard error.

    Raises:
        ConfigError: an option is wrong, or the folder cannot be used.
        CheckpointError: there is nothing to resume.
        TrainingError: the training cannot continue.
    """
    out = Path(out)
    chosen = build(TrainingOptions, options if isinstance(options, Mapping) else to_tables(options), "fit")
    tables = {"model": _name_of(type(model)), "arguments": _plain(arguments), "training": to_tables(chosen)}
    with launched(chosen) as fabric:
        launch, main = launch_agents(fabric), fabric.global_rank == 0
        restarted = False
        with others_waiting(fabric, chosen):
            if main:
                restarted = not resume and begun_by_launch(out, launch)
                check_folder(out, resume=resume or restarted)
                if resume or restarted:
                    _check_resumable(out, tables)
        resume = fabric.broadcast(restarted) or resume
        if not isinstance(batches, Batches):
            if fabric.world_size > 1:
                raise ConfigError(
                    f"fit: batches is a list, and there are {fabric.world_size} processes, expected an object with the "
                    "members of foci.training.objective.Batches, which gives each process its share."
                )
            batches = BatchList(batches, chosen.seed)
        with RunFolder(out, tables, resume=resume, main=main, launch=launch, log=log) as run:
            try:
                fabric.barrier()
                return run_training(model, objective, batches, chosen, run, fabric=fabric, unit="examples", log=log)
            except BaseException:
                run.remove_if_unused()
                raise


def _name_of(kind: type[nn.Module]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _plain(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(arguments or {})))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"fit: arguments are kept as JSON, but {error}. Pass numbers, texts, lists and mappings; a model that "
            "needs others is loaded by foci.load(path, model=lambda: …)."
        ) from error
    return plain


def _check_resumable(out: Path, tables: Mapping[str, Any]) -> None:
    """Raise unless the run in the folder is of this model, with the same options where they may not change."""
    before = read_config(out)
    if "arguments" not in before:
        raise CheckpointError(f"{out}: is no run of foci.fit. Name the folder of one.")
    for name in ("model", "arguments"):
        if before[name] != tables[name]:
            raise ConfigError(f"fit: {name} is {tables[name]!r}, but the run was begun with {before[name]!r}.")
    for name, value in tables["training"].items():
        was = before["training"].get(name)
        if value != was and name not in RESUMABLE:
            raise ConfigError(
                f"fit: {name} is {value!r}, but the run was begun with {was!r}. Leave it as it was, or start a new run "
                f"in another folder. What may change on resuming: {', '.join(RESUMABLE)}."
            )
