"""`python -m recipes.demos [--only TASK] [--seeds N] [--out demos]`: measure what every demo promises, over N seeds.

Prints promised beside measured metrics, and exits with 1 if one is out of tolerance. What was measured stays in the
folder, so that the same command goes on where it was stopped; remove the folder to measure again. Rows are stored in
recipes/results/demos.jsonl, from which `make docs` writes the sentences of the pages. It takes an hour of one core.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import foci
from foci.settings import to_tables
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.config import Promise
from recipes import report


def main() -> None:
    """Measure, print, and exit with 1 unless every promise holds."""
    parser = argparse.ArgumentParser(prog="python -m recipes.demos", description=str(__doc__).partition("\n")[2])
    parser.add_argument(
        "--only", action="append", choices=[*TASKS], help="measure this demo; may be given several times"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--out", type=Path, default=Path("demos"), help="folder for the runs and what was measured")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as `foci demo` does
    jobs = [(task, seed) for task in options.only or TASKS for seed in range(options.seeds)]
    broken = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("demos", total=len(jobs))
        for task, seed in jobs:
            progress.update(bar, description=f"{task}, seed {seed}")
            row = measured(task, seed, options.out)
            promise = configs.find_config(task).promise
            print(line(task, row, promise), flush=True)
            if not promise.holds(row["metrics"][promise.metric]):
                broken.append(f"{task} with seed {seed}")
            progress.advance(bar)
    if broken:
        sys.exit(f"out of tolerance: {', '.join(broken)}")
    print(f"{len(jobs)} demos measured, all within tolerance")


def measured(task: str, seed: int, out: Path) -> dict[str, Any]:
    """Return metrics and seconds of a demo with this seed: what the folder has of the same settings, or new ones."""
    kept = out / f"{task}-{seed}.json"
    kind = configs.find_config(task)
    tables = configs.put(kind.demo, {"training.seed": seed})
    config = json.loads(json.dumps(to_tables(configs.configure(kind, tables, "demos"))))
    if kept.exists() and (row := json.loads(kept.read_text(encoding="utf-8")))["config"] == config:
        return dict(row)
    run = out / f"{task}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    started = time.process_time()  # of this process, whatever else the machine does
    if foci.train(task, tables, out=run, log=lambda text: None, origin="demos").reason == "interrupted":
        sys.exit(f"interrupted in {task} with seed {seed}; the same command goes on with it")
    predictor = foci.load(run)
    metrics = dict(predictor.evaluate(predictor.held_out()).metrics)
    row = {"seed": seed, "metrics": metrics, "seconds": round(time.process_time() - started, 1)}
    report.add("demos", {"name": task, "command": f"python -m recipes.demos --only {task}", **row})
    kept.write_text(json.dumps({**row, "config": config}), encoding="utf-8")
    shutil.rmtree(run)
    return row


def line(task: str, row: dict[str, Any], promise: Promise) -> str:
    """Return one line with the promised beside the measured value."""
    value = row["metrics"][promise.metric]
    verdict = "holds" if promise.holds(value) else "OUT OF TOLERANCE"
    seconds = f"{row['seconds']:.0f} s"
    return f"{task:16} seed {row['seed']}  promised {promise!s:32} measured {value:<8.4g} {verdict:16} {seconds:>6}"


if __name__ == "__main__":
    main()
