"""Training that can be interrupted and resumed: one loop for every task, on one device or under torchrun.

`foci.fit` trains a model of one's own; it is this loop in a folder:

    with launched(options) as fabric:
        main, launch = fabric.global_rank == 0, launch_agents(fabric)
        with RunFolder("runs/x", config, main=main, launch=launch) as run:
            result = engine.run_training(model, objective, batches, options, run, fabric=fabric)

An `Objective` computes the loss and the validation, `Batches` yield the data; the loop is the same for all of them.
Import each name from its module: loading a run to predict does not import lightning-fabric.
"""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = [
    "checkpoint",
    "devices",
    "engine",
    "objective",
    "optim",
    "options",
    "own_model",
    "progress",
    "run_folder",
]

if TYPE_CHECKING:
    from foci.training import checkpoint, devices, engine, objective, optim, options, own_model, progress, run_folder
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
