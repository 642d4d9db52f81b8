"""Optimizers and learning rates.

A rate is a function of the step and, where a time limit ends the training, of the seconds before it, which checkpoints
keep. With w the warm-up and s the step counted from 1, all rates rise linearly until s = w, and then

    constant        η
    inverse_sqrt    η √(w / s)
    linear          η (1 - (1 - f) p),                       p = (s - w) / (max_steps - w + 1)
    cosine          η (f + (1 - f) (1 + cos πp) / 2)
    noam            η d^-½ min(s^-½, s w^-3/2)

where f is the share of the rate to end at; p is 1 at the step after the last one, so that no step has a rate of 0.
Where a time limit will end the training before max_steps, as it seems so far (seconds / time_limit > (s - 1) /
max_steps), the rates of linear and cosine, their warm-up included, are never above those of p = seconds / time_limit,
so that they end when the time does. noam is equation 3 of "Attention Is All You Need" (2017).
"""

from __future__ import annotations

import math

import torch
from torch import nn

from foci.errors import ConfigError, near_names
from foci.training.muon import MuonWithAdamW
from foci.training.options import TrainingOptions


def rate(step: int, options: TrainingOptions, seconds: float = 0.0) -> float:
    """Return the learning rate of a step, counted from 1, that begins after these seconds of training.

    Example:
        >>> options = TrainingOptions(max_steps=9, learning_rate=1.0, schedule="linear", warmup=2)
        >>> [rate(step, options) for step in (1, 2, 6, 9)]
        [0.5, 1.0, 0.5, 0.125]
    """
    highest, warmup = options.learning_rate, options.warmup
    if options.schedule == "noam":
        return highest / math.sqrt(options.model_dim or 1) * min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)
    timed = _decayed(options, _share_of_time(step, options, seconds))
    if step < warmup:
        return min(highest * step / warmup, timed)
    if options.schedule == "inverse_sqrt":
        return highest * math.sqrt(max(warmup, 1) / step)
    if options.schedule == "constant":
        return highest
    if options.max_steps is None:
        return timed
    return min(_decayed(options, (step - warmup) / max(options.max_steps - warmup + 1, 1)), timed)


def _share_of_time(step: int, options: TrainingOptions, seconds: float) -> float:
    """Return the share of the time that is over; 0 where the schedule has no end, or the steps seem to end first."""
    if options.time_limit is None or options.schedule not in ("linear", "cosine"):
        return 0.0
    share = seconds / options.time_limit
    return 0.0 if options.max_steps is not None and share <= (step - 1) / options.max_steps else share


def _decayed(options: TrainingOptions, done: float) -> float:
    """Return the rate of linear or cosine after this share of the decay."""
    done = min(done, 1.0)
    left = 1 - done if options.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return options.learning_rate * (options.min_lr_ratio + (1 - options.min_lr_ratio) * left)


def make_optimizer(model: nn.Module, options: TrainingOptions) -> torch.optim.Optimizer:
    """Return Adam, AdamW or Muon over the parameters that require gradients; weight decay is for matrices only.

    Parameters with the same kind, decay and share of the rate form a group, which has that ``share``.
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not learning:
        raise ConfigError(f"{type(model).__name__} has no parameter that requires a gradient: nothing to train.")
    check_rates(model, options)
    specific = sorted(options.lr_multipliers, key=len, reverse=True)  # tables of TOML have no order
    groups: dict[tuple[str, float, float], list[nn.Parameter]] = {}
    for_muon = _matrices(model, options) if options.optimizer == "muon" else set()
    for name, parameter in learning.items():
        share = next((options.lr_multipliers[end] for end in specific if name.endswith(end)), 1.0)
        kind = "muon" if name in for_muon else "adam"
        decay = options.weight_decay if parameter.dim() > 1 else 0.0
        groups.setdefault((kind, decay, share), []).append(parameter)
    made = [
        {"params": those, "kind": kind, "weight_decay": decay, "share": share}
        for (kind, decay, share), those in groups.items()
    ]
    fused = all(p.device.type in ("cpu", "cuda") for p in learning.values())
    lr, betas, eps = options.learning_rate, options.betas, options.eps
    if options.optimizer == "muon":
        return MuonWithAdamW(made, lr=lr, momentum=options.momentum, betas=betas, eps=eps, fused=fused)
    make = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam
    return make(made, lr=lr, betas=betas, eps=eps, fused=fused)


def _matrices(model: nn.Module, options: TrainingOptions) -> set[str]:
    """The names of the weights that Muon steps: matrices of linear layers, but for those left to Adam."""
    return {
        name
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear)
        for name in [f"{path}.weight" if path else "weight"]
        if not any(name.endswith(end) for end in options.adam_layers)
    }


def check_rates(model: nn.Module, options: TrainingOptions) -> None:
    """Raise unless the parameters with their own rate exist; called before a run folder is made."""
    learning = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    for end in options.lr_multipliers:
        if not any(name.endswith(end) for name in learning):
            raise ConfigError(
                f"training.lr_multipliers: no parameter's name ends in {end!r}. {near_names(end, learning)}"
            )


def set_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of every group to its share."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["share"]
