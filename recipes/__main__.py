"""`python -m recipes NAME [--only ROW] [--seed S] [--seeds N] [--out runs]`: train a recipe, and keep its metrics.

`torchrun --nproc-per-node 2 -m recipes NAME --threads 1` trains with two processes. Rows are stored in
recipes/results/NAME.jsonl; docs/results.md is generated from all of them. The same command resumes a run that was
stopped.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch

from recipes import data, report, run
from recipes.table import RECIPES


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    about = "\n".join(f"{name:10} {recipe.title}" for name, recipe in RECIPES.items())
    made = argparse.ArgumentParser(
        prog="python -m recipes", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("name", choices=[*RECIPES, "report"])
    made.add_argument("--minutes", type=float, help="stop each training after these; its row says so")
    made.add_argument("--seed", type=int, default=0, help="the first seed")
    made.add_argument("--seeds", type=int, help="number of seeds. Default: the recipe's")
    made.add_argument("--only", action="append", metavar="ROW", help="train this row; may be given several times")
    made.add_argument("--threads", type=int, help="of torch. Default: all cores")
    made.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    return made


def selected(options: argparse.Namespace) -> list[run.Job]:
    """Return the trainings that the command line asks for."""
    recipe = RECIPES[options.name]
    for name in set(options.only or []) - {*recipe.variants}:
        parser().error(f"{options.name} has no row {name!r}; it has {', '.join(map(repr, recipe.variants))}")
    jobs = run.jobs(recipe, options.seed, options.seeds)
    return [job for job in jobs if not options.only or job.name in options.only]


def main() -> None:
    """Run one recipe, or only write the report."""
    options = parser().parse_args()
    is_first = os.environ.get("RANK", "0") == "0"
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.name != "report":
        recipe, jobs = RECIPES[options.name], selected(options)
        data.set_variables(options.out)
        if recipe.prepare is not None:
            recipe.prepare(options.out)
        made = {"threads": options.threads, "processes": int(os.environ.get("WORLD_SIZE", "1"))}
        for job in jobs:
            row = run.run(options.name, recipe, job, options.out, options.minutes)
            if row is not None:
                report.add(options.name, {**row, "name": job.name, **made})
                print(json.dumps(row, indent=1), flush=True)
        if is_first and recipe.draw is not None:
            recipe.draw(report.rows_of(options.name))
    if is_first:
        print(f"wrote {report.write(RECIPES)}")


if __name__ == "__main__":
    main()
