"""Train every task on batches of fewer rows than processes; print a line of JSON for each.

Run from the root of the repository, in a process of its own: it forks after importing torch. Its argument is a new
folder for the runs.
"""

import json
import os
import sys
from itertools import cycle
from pathlib import Path

import torch
from recipes.faults import small_batches

from foci.tasks import TASKS


def main() -> None:
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # flushing is for power cuts
    for task, strategy in zip(TASKS, cycle(("ddp", "fsdp"))):
        print(json.dumps(small_batches(task, strategy, 2, 1, 1, Path(sys.argv[1]))), flush=True)


if __name__ == "__main__":
    main()
