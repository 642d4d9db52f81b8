"""The weights of another run as the start of a new one: trained on one data set, continued on another.

A weight is taken where the other run has one of the same name and shape. Rows that stand for words or labels are
matched by name (`foci.tasks.frame.task.Task.named_axes`), so the two runs may have different vocabularies and another
order of labels. Everything else keeps its fresh value, and all of it is logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.tasks.frame.predictor import asset_reader, find_checkpoint, task_of
from foci.tasks.frame.task import Log, Task
from foci.training.checkpoint import load, verify
from foci.training.run_folder import read_config

_LISTED = 8


def check_run(path: str, task: type[Task]) -> None:
    """Raise unless the folder is a run of the task with a checkpoint.

    Raises:
        CheckpointError: it is no run, or it is damaged.
        ConfigError: it is a run of another task.
    """
    folder = Path(path)
    name = read_config(folder).get("task")
    if name != task.name:
        raise ConfigError(
            f"training.init_from: {folder} is a run of {name}, expected one of {task.name}: only runs of the same task "
            "have the same weights."
        )
    verify(find_checkpoint(folder, "auto"))


def take_weights(task: Task, model: nn.Module, assets: Any, log: Log) -> None:
    """Copy the weights of the run that training.init_from names into a new model, and log what was taken.

    Args:
        task: the task of the new run.
        model: the new model.
        assets: of the new run.
        log: called with each message.

    Raises:
        ConfigError: the runs have no weight in common, or different vocabularies that the task cannot match.
    """
    folder = Path(task.config.training.init_from)
    other = task_of(folder)
    other_assets = other.Assets.from_files(asset_reader(folder))
    checkpoint = find_checkpoint(folder, "auto")
    saved = load(checkpoint)
    here, there = task.named_axes(assets), other.named_axes(other_assets)
    if here is None or there is None:
        if dict(assets.to_files()) != dict(other_assets.to_files()):
            raise ConfigError(
                f"training.init_from: {folder} has another vocabulary or other labels, which {task.name} cannot match "
                "by name. Train on data with the same ones."
            )
        here, there = {}, {}
    taken: list[str] = []
    partly: list[str] = []
    left: list[str] = []
    done: set[int] = set()
    for name, own in model.state_dict(keep_vars=True).items():
        if not own.is_floating_point() or id(own) in done:  # masks come from the settings; tied weights are taken once
            continue
        done.add(id(own))
        if (saved_as := saved.ties.get(name, name)) not in saved.model:
            left.append(f"{name} (not there)")
            continue
        other_own = saved.model[saved_as]
        axes = _axes(own, here.get(name, ())), _axes(other_own, there.get(name, ()))
        rows = _copy(own, other_own, *axes)
        if rows is None:
            left.append(f"{name} (is {_form(other_own)} there, {_form(own)} here)")
        elif rows == 0:
            left.append(f"{name} (no row of the same name)")
        else:
            taken.append(name)
            if any(names is not None for names in axes[0]):
                partly.append(f"{name} {rows:,} of {own.numel():,} numbers by the names of its rows")
    if not taken:
        raise ConfigError(f"training.init_from: none of the weights of {folder} fits this model. Use the same model.")
    log(f"weights of {checkpoint}: {len(taken)} of {len(taken) + len(left)} taken{_listed('; ', partly)}")
    if left:
        log(f"not taken from {folder}, and begun afresh{_listed(': ', left)}")


def _axes(tensor: Tensor, names: Sequence[Sequence[str] | None]) -> list[Sequence[str] | None]:
    return [*names, *[None] * (tensor.dim() - len(names))]


def _copy(
    own: Tensor, other: Tensor, names: Sequence[Sequence[str] | None], other_names: Sequence[Sequence[str] | None]
) -> int | None:
    """Copy what both tensors have; return how many numbers that is, None where their shapes or types do not fit."""
    if own.dim() != other.dim() or own.dtype != other.dtype:
        return None
    to: list[Tensor] = []
    come: list[Tensor] = []
    for axis, (rows, other_rows) in enumerate(zip(names, other_names)):
        if rows is None or other_rows is None:
            if own.shape[axis] != other.shape[axis]:
                return None
            pairs = [(number, number) for number in range(own.shape[axis])]
        else:
            place = {name: number for number, name in enumerate(other_rows)}
            pairs = [(number, place[name]) for number, name in enumerate(rows) if name in place]
        to.append(torch.tensor([pair[0] for pair in pairs], dtype=torch.long))
        come.append(torch.tensor([pair[1] for pair in pairs], dtype=torch.long))
    with torch.no_grad():
        if not to:
            own.copy_(other)
            return own.numel()
        taken = other[torch.meshgrid(*come, indexing="ij")]
        own[torch.meshgrid(*to, indexing="ij")] = taken.to(own.device)
    return taken.numel()


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _listed(before: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{before}{', '.join(names[:_LISTED])}{more}" if names else ""
