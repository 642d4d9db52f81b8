"""Applications: data, model, loss, metric and decoding joined, one file each.

A run is a folder that training wrote; `load` gives back what can be done with it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from foci.errors import CheckpointError, unknown_name
from foci.training.run_folder import read_config

TASKS = {
    "memorise": "foci.tasks.memorise:Memoriser",
    "classify": "foci.tasks.classify:Classifier",
    "translate": "foci.tasks.translate:Translator",
}
"""What a task is called -> what its runs are loaded as."""


def load(path: str | Path, *, checkpoint: str = "auto") -> Any:
    """A trained run, ready to predict.

    Arguments:
        path: the folder that training wrote.
        checkpoint: "best", "last", "averaged" or the name of one; "auto" is the averaged one where there is one, else
            the best.
    """
    path = Path(path)
    task = read_config(path).get("task")
    if task is None:
        raise CheckpointError(f"{path / 'config.json'}: names no task. Name the folder that training wrote.")
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    module, name = TASKS[task].split(":")
    return getattr(import_module(module), name).load(path, checkpoint=checkpoint)
