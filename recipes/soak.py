"""`python -m recipes.soak [finite] [batches] [kills] [nodes]`: check that trainings stay finite, and survive faults.

finite (the default; --sequences, --seeds, --problem) trains long on every problem of memorize with several seeds. The
training stops at the first loss or gradient that is not finite; here every line of the metrics is checked too, and the
final weights. There is no curriculum. The same command resumes a run that was stopped.

batches trains every task with ddp and fsdp, 2 and 3 processes, on batches of one row less than processes and of one
more (the latter two per step), and compares each step with that of one process. kills (--kills) ends every task with
kill -9 at random moments and resumes it: the last weights are those of an undisturbed run, to the bit. nodes (--kills,
root) kills a worker of the second of two nodes, and cuts the link between them at last. --task limits batches and kills
to some tasks.

Rows are stored in recipes/results/soak.jsonl and faults.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from foci.errors import TrainingError
from foci.tasks import TASKS
from foci.tasks.frame.predictor import load
from foci.tasks.frame.train import train
from foci.tasks.memorize.problems import PROBLEMS
from foci.training.run_folder import read_metrics
from recipes import report
from recipes.faults import kills, lost_node, small_batches
from recipes.recipe import Row
from recipes.tables import markdown

BATCH = 100
"""Sequences per step."""


def main() -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m recipes.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=["finite", *PARTS], default="finite", metavar="part")
    parser.add_argument("--task", action="append", choices=[*TASKS], help="of batches and kills; all unless given")
    parser.add_argument("--kills", type=int, default=10, help="of each task; on two nodes, a third of it")
    parser.add_argument("--sequences", type=int, default=100_000, help="of each training")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problem", action="append", choices=[*PROBLEMS], help="default: all of them")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    held = [part(options) for name, part in PARTS.items() if name in options.parts]
    if "finite" in options.parts:
        finite(options)
    if not all(held):
        sys.exit("what does not hold is listed above")


def finite(options: argparse.Namespace) -> None:
    """Train on problems of memorize, and print a table."""
    rows = []
    for seed in range(options.seeds):
        for problem in options.problem or PROBLEMS:
            row = soak(problem, options.sequences, seed, options.out)
            command = f"python -m recipes.soak --sequences {options.sequences} --seeds {options.seeds}"
            report.add("soak", {**row, "command": command})
            rows.append(row)
    print(table(rows))


def batches(options: argparse.Namespace) -> bool:
    """Train on batches with fewer rows than processes."""
    return hold(
        options,
        "batches",
        (
            small_batches(task, strategy, processes, processes + further, accumulated, options.out / "batches")
            for task in options.task or TASKS
            for strategy in ("ddp", "fsdp")
            for processes in (2, 3)
            for further, accumulated in ((-1, 1), (1, 2))
        ),
    )


def killed(options: argparse.Namespace) -> bool:
    """Kill and resume trainings."""
    return hold(options, "kills", (kills(task, options.kills, options.out / "kills") for task in options.task or TASKS))


def nodes(options: argparse.Namespace) -> bool:
    """Kill a worker of a second node, and cut the link."""
    return hold(options, "nodes", (lost_node(options.out / "nodes", max(1, options.kills // 3)) for _ in range(1)))


PARTS = {"batches": batches, "kills": killed, "nodes": nodes}


def hold(options: argparse.Namespace, part: str, rows: Iterable[Row]) -> bool:
    """Store and count the rows of a part in a new folder, print those that do not hold, and return whether all do."""
    if (options.out / part).exists():
        sys.exit(f"{options.out / part} exists. Remove it, or choose another folder with --out.")
    count, broken = 0, 0
    for row in rows:
        command = f"python -m recipes.soak {part}" + ("" if part == "batches" else f" --kills {options.kills}")
        report.add("faults", {**row, "command": command})
        count, broken = count + 1, broken + (not row["held"])
        print(json.dumps(row) if part != "batches" or not row["held"] else f"{row['name']}: held", flush=True)
    print(f"{part}: {count - broken} of {count} hold", flush=True)
    return broken == 0


def soak(problem: str, sequences: int, seed: int, out: Path) -> Row:
    """Train once; return metrics of the losses and gradients, and whether all of them were finite."""
    folder = out / f"soak-{problem}-{seed}"
    tables: dict[str, Any] = {
        "data": {"problem": {"kind": problem}, "batch_size": BATCH, "curriculum": 0, "valid_sequences": 20},
        "training": {"max_steps": max(1, sequences // BATCH), "eval_every": 500, "seed": seed, "metrics_every": 1},
    }
    stopped = ""
    try:
        resume = (folder / "config.json").exists()
        if train("memorize", tables, out=folder, resume=resume, origin="soak").reason == "interrupted":
            sys.exit(130)  # an interrupted training ends the program, without a row
    except TrainingError as error:
        stopped = str(error)
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "train"]
    losses, norms = ([line[name] for line in lines] for name in ("loss", "gradient_norm"))
    weights = [] if stopped else load(folder, checkpoint="last").model.parameters()
    return {
        "name": problem,
        "seed": seed,
        "sequences": len(lines) * BATCH,
        "finite": not stopped
        and all(map(math.isfinite, [*losses, *norms]))
        and all(bool(weight.isfinite().all()) for weight in weights),
        "stopped": stopped,
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "longest_gradient": max(norms, default=None),
    }


def table(rows: list[Row]) -> str:
    """Return a Markdown table."""
    head = ["problem", "seed", "sequences", "finite", "first loss", "last loss", "largest gradient norm"]
    metrics = ("first_loss", "last_loss", "longest_gradient")
    return markdown(
        head,
        [
            [row["name"], str(row["seed"]), f"{row['sequences']:,}", "yes" if row["finite"] else row["stopped"] or "no"]
            + ["" if row[name] is None else f"{row[name]:.4g}" for name in metrics]
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
