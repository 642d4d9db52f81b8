"""Trainings under hard conditions, in processes of their own: batches with fewer rows than processes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import foci
from foci.settings import to_tables
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import silent
from foci.training.run_folder import read_metrics
from recipes.recipe import Row

TOLERANCE = 1e-4
"""Relative difference of losses and norms of gradients that rounding explains."""
SECONDS = 120
"""After which processes are taken for hanging."""


def small_batches(task: str, strategy: str, processes: int, rows: int, accumulated: int, out: Path) -> Row:
    """Train on batches of so many rows with some processes, and compare each step with that of one process."""
    tables = without_dropout(
        task,
        {
            **({"data.batch_tokens": 110 * rows} if task == "translate" else {"data.batch_size": rows}),
            **({"model.gradient_bound": 0.01} if task == "memorize" else {}),  # clips inside of the backward pass
            "training.max_steps": 3,
            "training.eval_every": None,
            "training.optimizer": "adam",  # muon refuses shards
            "training.strategy": strategy,
            "training.gradient_accumulation_steps": accumulated,
        },
    )
    whole = out / f"{task}-{rows}-{accumulated}"
    if not whole.exists():  # in this process, so that the forks find imported what it needs
        foci.train(task, tables, out=whole, log=silent, origin="soak")
    run = out / f"{whole.name}-{strategy}-{processes}"
    failed = together(processes, lambda: foci.train(task, tables, out=run, log=silent, origin="soak"))
    steps = [] if failed else list(zip(steps_of(whole), steps_of(run), strict=True))
    pairs = [pair for alone, shared in steps for pair in zip(alone, shared, strict=True)]
    difference = max((abs(one - other) / max(abs(one), 1e-6) for one, other in pairs), default=0.0)
    return {
        "name": f"{task}, {strategy}, {processes} processes, {rows} rows, {accumulated} accumulated",
        "seed": 0,
        "held": len(steps) == 3 and difference < TOLERANCE,
        "difference": difference,
        "failed": failed,
    }


def without_dropout(task: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest settings of a task with some changes, and without dropout, which each process draws."""
    kind = configs.find_config(task)
    changed = configs.put(kind.smallest, changes)
    return configs.put(changed, dict.fromkeys(_dropouts(to_tables(configs.configure(kind, changed, "soak"))), 0.0))


def _dropouts(tables: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _dropouts(value, f"{above}{name}.")
        elif "dropout" in name and isinstance(value, float):
            yield above + name


def steps_of(run: Path) -> list[tuple[float, float, float]]:
    """Return loss, norm of the gradient and count of each step of a run."""
    lines = (line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train")
    return [(line["loss"], line["gradient_norm"], line["count"]) for line in lines]


def together(processes: int, work: Callable[[], object]) -> list[str]:
    """Run the work in forks of this process that find each other as under torchrun; return how some of them failed.

    torchrun would import torch in each of them, which takes longer than a small training. All are killed once one has
    failed, or after `SECONDS`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    deadline = time.monotonic() + SECONDS
    running = {_forked(rank, processes, port, work): rank for rank in range(processes)}
    failed: list[str] = []
    while running:
        for process in list(running):
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended:
                continue
            rank, code = running.pop(process), os.waitstatus_to_exitcode(status)
            if code:
                failed.append(f"process {rank} ended with {code}")
        if running and (failed or time.monotonic() > deadline):
            failed.append(f"{len(running)} others were killed")
            for process in running:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            break
        time.sleep(0.005)
    return failed


def _forked(rank: int, processes: int, port: int, work: Callable[[], object]) -> int:
    process = os.fork()
    if process:
        return process
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    numbers["MASTER_PORT"] = port
    os.environ.update({name: str(number) for name, number in numbers.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", TORCHELASTIC_RUN_ID="soak")
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 (the fork must not go on as its parent)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
