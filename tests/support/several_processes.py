"""Trainings in several processes; print a line of JSON for each, with ``held``.

Run in a process of its own: it forks after importing torch. Its argument is a new folder for the runs.
"""

import json
import os
import sys
import time
from itertools import cycle
from pathlib import Path

import torch
from recipes.faults import small_batches, together

from foci.errors import ConfigError, TrainingError
from foci.tasks import TASKS
from foci.training.devices import launched, others_waiting
from foci.training.options import TrainingOptions

PATIENT = TrainingOptions(max_steps=1, device="cpu", distributed_timeout=1.0)


def wait(seconds: float) -> None:
    """Let the first process work for longer than the others wait for a lost one."""
    with launched(PATIENT) as fabric, others_waiting(fabric, PATIENT):
        if fabric.global_rank == 0:
            time.sleep(seconds)


def fail() -> None:
    """Let the first process fail, of which the others are told."""
    try:
        with launched(PATIENT) as fabric, others_waiting(fabric, PATIENT):
            if fabric.global_rank == 0:
                raise ConfigError("it failed")
    except (ConfigError, TrainingError) as error:
        expected = "it failed" if fabric.global_rank == 0 else "process 1: the first process has failed."
        if not str(error).startswith(expected):
            raise
        return
    raise AssertionError("nothing was raised")


def main() -> None:
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # flushing is for power cuts
    for task, strategy in zip(TASKS, cycle(("ddp", "fsdp"))):
        print(json.dumps(small_batches(task, strategy, 2, 1, 1, Path(sys.argv[1]))), flush=True)
    for name, work in {"longer than the timeout": lambda: wait(2.5), "failed": fail}.items():
        failed = together(2, work)
        print(json.dumps({"name": name, "held": not failed, "failed": failed}), flush=True)


if __name__ == "__main__":
    main()
