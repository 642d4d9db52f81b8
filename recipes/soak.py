"""`python -m recipes.soak [--sequences N] [--seeds S] [--problem P …]`: check that long trainings stay finite.

Trains on every problem of memorize with several seeds. The training stops at the first loss or gradient that is not
finite; here every line of the metrics is checked too, and the final weights. There is no curriculum. Rows are stored in
recipes/results/soak.jsonl. The same command resumes a run that was stopped.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from foci.errors import TrainingError
from foci.tasks.frame.predictor import load
from foci.tasks.frame.train import train
from foci.tasks.memorize.problems import PROBLEMS
from foci.training.run_folder import read_metrics
from recipes import report
from recipes.recipe import Row
from recipes.tables import markdown

BATCH = 100
"""Sequences per step."""


def main() -> None:
    """Train, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m recipes.soak", description=__doc__)
    parser.add_argument("--sequences", type=int, default=100_000, help="of each training")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problem", action="append", choices=[*PROBLEMS], help="all of them unless given")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        for problem in options.problem or PROBLEMS:
            row = soak(problem, options.sequences, seed, options.out)
            command = f"python -m recipes.soak --sequences {options.sequences} --seeds {options.seeds}"
            report.add("soak", {**row, "command": command})
            rows.append(row)
    print(table(rows))


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
