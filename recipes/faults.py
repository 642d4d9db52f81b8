"""Trainings under hard conditions, in processes of their own.

Batches with fewer rows than processes, kill -9 at any moment, a worker of a second node that is killed, a link between
nodes that is cut.
"""

from __future__ import annotations

import os
import random
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
from recipes.nodes import Launch, cut, two_nodes, until
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


def kills(task: str, count: int, out: Path) -> Row:
    """Kill trainings of a task that many times, each at a random moment, and resume them; all must end alike.

    Data is prepared by two workers where the task has them. A run that comes to its end is followed by a new one; its
    weights, to the bit, and its losses are those of a run that was never stopped.
    """
    kind = configs.find_config(task)
    workers = {"data.workers": 2} if "workers" in to_tables(kind())["data"] else {}
    tables = configs.put(kind.smallest, {**workers, "training.save_every": 1})
    whole = out / f"{task}-whole"
    foci.train(task, tables, out=whole, log=silent, origin="soak")  # what it needs is then imported in the forks
    started = time.monotonic()
    failed = [] if _code(_start(lambda: _go_on(task, tables, out / f"{task}-timed"))) == 0 else ["the undisturbed run"]
    usual = time.monotonic() - started
    moments, killed, runs, resumed = random.Random(task), 0, 0, 0
    while not failed and (killed < count or (out / f"{task}-{runs}").exists()):
        run = out / f"{task}-{runs}"
        resumed += any(run.glob("checkpoints/step-*[0-9]"))
        process = _start(lambda: _go_on(task, tables, run))  # noqa: B023
        if killed < count:
            until(lambda: _has_ended(process), moments.uniform(0, usual))  # noqa: B023
            os.kill(process, signal.SIGKILL)  # of one that has ended, only its code is left
        code = _code(process)
        killed += code == -signal.SIGKILL
        if code == 0:
            runs += 1
            if not _same(whole, run):
                failed.append(f"{run} differs from an undisturbed run")
        elif code != -signal.SIGKILL:
            failed.append(f"{run} ended with {code}")
    return {
        "name": f"kill -9 of {task}",
        "seed": 0,
        "held": not failed,
        "kills": killed,
        "resumed": resumed,
        "runs": runs,
        "workers": bool(workers),
        "failed": failed,
    }


def _go_on(task: str, tables: Mapping[str, Any], run: Path) -> None:
    foci.train(task, tables, out=run, resume=(run / "config.json").exists(), log=silent, origin="soak")


def _same(one: Path, other: Path) -> bool:
    if steps_of(one) != steps_of(other):
        return False
    weights = [max(run.glob("checkpoints/step-*[0-9]")) / "model.safetensors" for run in (one, other)]
    return weights[0].read_bytes() == weights[1].read_bytes()


def lost_node(out: Path, restarts: int, timeout: float = 5.0) -> Row:
    """Train on two nodes, kill the worker of the second one several times, and cut the link at last.

    Raises:
        NoNamespacesError: the nodes cannot be made here.
    """
    run = out / "nodes"
    tables: dict[str, Any] = {
        "data.batch_size": 4,
        "training.max_steps": 10**6,
        "training.save_every": 10,
        "training.eval_every": 50,
    }
    tables |= {"training.distributed_timeout": timeout, "training.schedule": "constant", "data.valid_sequences": 5}
    settings = [part for name, value in tables.items() for part in ("--set", f"{name}={configs.to_toml(value)}")]
    arguments = ["train", "memorize", "--preset", "tiny", "--out", str(run), *settings]
    out.mkdir(parents=True, exist_ok=True)

    def newest() -> int:
        return max((int(path.name[5:]) for path in (run / "checkpoints").glob("step-*[0-9]")), default=0)

    resumed, told, seconds = 0, [False, False], None
    with two_nodes() as nodes, Launch(nodes, arguments, out, restarts) as launch:
        going = until(lambda: newest() > 0, SECONDS)
        for killed in range(restarts) if going else ():
            before = newest()
            os.kill(launch.worker(1), signal.SIGKILL)
            said = "resuming from"
            if until(lambda: launch.said(0).count(said) > killed and newest() > before, SECONDS):  # noqa: B023
                resumed += 1
        cut(nodes[0])
        started = time.monotonic()
        lost = "the connection to the other processes is lost"
        told = [until(lambda: lost in launch.said(node), timeout + SECONDS) for node in (0, 1)]  # noqa: B023
        seconds = time.monotonic() - started
    last = newest()
    result = foci.train("memorize", {"training": {"max_steps": last + 1}}, out=run, resume=True, log=silent)
    return {
        "name": f"two nodes, {restarts} kills on the second, then a cut link",
        "seed": 0,
        "held": going and resumed == restarts and all(told) and result.step == last + 1,
        "resumed": resumed,
        "told": told,
        "seconds_until_told": round(seconds, 1),
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
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    numbers["MASTER_PORT"] = port
    variables = {name: str(number) for name, number in numbers.items()}
    variables |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "soak"}
    return _start(lambda: (os.environ.update(variables), work()))


def _has_ended(process: int) -> bool:
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _code(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _start(work: Callable[[], object]) -> int:
    """Run the work in a fork of this process, and return the fork's id."""
    process = os.fork()
    if process:
        return process
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
