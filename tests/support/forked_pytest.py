"""Run pytest many times, each in a separate process, without importing torch each time.

Importing torch and what the tests use of it takes longer than most tests. This process imports it once and then forks
for every line of its standard input, a JSON object with the folder to import foci from (``folder``), further variables
of the environment (``environment``) and pytest's ``arguments``. The answer is a line of JSON: the exit ``code`` and
the ``output``. foci itself is not imported here, so that every fork can have another copy of it.
"""

import gc
import json
import os
import signal
import sys
import tempfile

import entmax  # noqa: F401  as are the following: imported for the forks
import hypothesis  # noqa: F401
import pytest
import sympy  # noqa: F401
import torch
import torch.distributed.tensor  # torch.testing imports it at the first comparison
import torch.export
import torch.testing

SECONDS = 300


def child(task: dict, output: int) -> None:
    """Run in a fork; does not return."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.alarm(SECONDS)
    # Importing the plugins of all installed packages takes as long as a test.
    os.environ.update(task["environment"], PYTHONPATH=task["folder"], PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    sys.path.insert(0, task["folder"])
    code = pytest.main(task["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    torch.set_num_threads(1)
    gc.freeze()  # what was imported is no garbage: pytest collects it twice in every fork
    for line in sys.stdin:
        with tempfile.TemporaryFile() as file:
            sys.stdout.flush()
            process = os.fork()
            if process == 0:
                child(json.loads(line), file.fileno())
            _, status = os.waitpid(process, 0)
            file.seek(0)
            output = file.read().decode(errors="replace")
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), "output": output}), flush=True)


if __name__ == "__main__":
    main()
