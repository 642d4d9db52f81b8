"""Training that can be interrupted and resumed: one loop for every task, on one device or under torchrun.

    with launched(options) as fabric, RunFolder("runs/x", config, main=fabric.global_rank == 0) as run:
        summary = fit(model, objective, batches, options, run, fabric=fabric)

An `Objective` computes the loss and the validation, `Batches` yield the data; the loop is the same for all of them.

Each name is imported on first use, so that loading a run to predict does not import lightning-fabric.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foci.training.checkpoint import Checkpoints, average, load_weights, verify
    from foci.training.devices import launch, launched
    from foci.training.engine import Summary, fit
    from foci.training.objective import Batches, Loss, Objective
    from foci.training.optim import check_rates, rate
    from foci.training.options import TrainingOptions
    from foci.training.randomness import seed_everything
    from foci.training.run_folder import RunFolder, read_config, read_metrics

__all__ = [
    "Batches",
    "Checkpoints",
    "Loss",
    "Objective",
    "RunFolder",
    "Summary",
    "TrainingOptions",
    "average",
    "check_rates",
    "fit",
    "launch",
    "launched",
    "load_weights",
    "rate",
    "read_config",
    "read_metrics",
    "seed_everything",
    "verify",
]

_MODULES = {
    "checkpoint": ("Checkpoints", "average", "load_weights", "verify"),
    "devices": ("launch", "launched"),
    "engine": ("Summary", "fit"),
    "objective": ("Batches", "Loss", "Objective"),
    "optim": ("check_rates", "rate"),
    "options": ("TrainingOptions",),
    "randomness": ("seed_everything",),
    "run_folder": ("RunFolder", "read_config", "read_metrics"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'foci.training' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"foci.training.{_HOMES[name]}"), name)
    return value
