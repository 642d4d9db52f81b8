"""Run several commands of foci in the processes of one torchrun, which takes longer to start than they take to run.

Its arguments are a new folder for files, and the commands as a JSON list of their lists of arguments.
"""

import json
import os
import sys
from pathlib import Path

import torch.distributed

import foci_cli


def main() -> None:
    folder, commands = Path(sys.argv[1]), json.loads(sys.argv[2])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for number, command in enumerate(commands):
        if number > 0:  # the processes meet again in a file: the port of the first time may not be free yet
            torch.distributed.init_process_group(
                "gloo", init_method=(folder / str(number)).as_uri(), rank=rank, world_size=world
            )
        if code := foci_cli.main(command):
            sys.exit(code)


if __name__ == "__main__":
    main()
