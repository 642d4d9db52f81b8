"""The one runner of all recipes: train or resume, evaluate, measure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import foci
from foci.tasks.frame import config as configs
from foci.training.engine import TrainingResult
from foci.training.run_folder import read_metrics
from recipes.recipe import CONFIGS, Recipe, Row


class Job(NamedTuple):
    """One training: the name of its row, and its seed."""

    name: str
    seed: int


def jobs(recipe: Recipe, seed: int, seeds: int | None = None) -> Iterator[Job]:
    """Yield the trainings of a recipe: its number of seeds unless another is given, from ``seed`` on."""
    for number in range(seed, seed + (recipe.seeds if seeds is None else seeds)):
        for name in recipe.variants:
            yield Job(name, number)


def run(title: str, recipe: Recipe, job: Job, out: Path, minutes: float) -> Row | None:
    """Train or resume one run; return its row, or None in the other processes under torchrun."""
    print(f"== {title}: {job.name}, seed {job.seed}", flush=True)
    spent = 0.0
    for attempt in range(1, recipe.attempts + 1):
        folder = _folder(out, title, job.name, job.seed + attempt - 1)
        if recipe.attempts > 1:
            summary = _train(title, recipe, job.name, folder, minutes / 3, job.seed + attempt - 1)
            if attempt < recipe.attempts and not recipe.begun(job.name, summary):
                spent += summary.seconds
                continue
        break
    summary = _train(title, recipe, job.name, folder, minutes, job.seed + attempt - 1)
    if os.environ.get("RANK", "0") != "0":
        return None
    predictor = foci.load(folder)
    records = [dict(record) for record in predictor.read(*_test_files(recipe))] if recipe.test else None
    evaluation = predictor.evaluate(records, options=dict(recipe.variants[job.name].options))
    epochs = [line["epoch"] for line in read_metrics(folder / "metrics.jsonl") if "epoch" in line]
    return {
        "seed": job.seed,
        "steps": summary.step,
        "minutes": summary.seconds / 60,
        "minutes_of_other_seeds": spent / 60,
        "seeds_tried": attempt,
        "epochs": max(epochs, default=0),
        "count_trained": summary.count,
        "run": str(folder),
        **evaluation.notes,
        **evaluation.metrics,  # a note may have the name of the figure that it explains
        **recipe.measure(predictor, evaluation, records),
    }


def _train(title: str, recipe: Recipe, name: str, folder: Path, minutes: float, seed: int) -> TrainingResult:
    path = CONFIGS / f"{title}.toml"
    variant = recipe.variants[name]
    limits = {"training.time_limit": 60 * minutes, "training.seed": seed}
    start = {}
    if variant.init_from is not None:
        start["training.init_from"] = str(_folder(folder.parent, title, variant.init_from, seed))
    tables = configs.put(configs.read_toml(path), {**variant.settings, **limits, **start})
    resume = (folder / "config.json").exists()
    summary = foci.train(recipe.task, tables, out=folder, resume=resume, origin=str(path))
    if summary.reason == "interrupted":  # an interrupted training also ends the recipe
        sys.exit(130)
    return summary


def _folder(out: Path, title: str, name: str, seed: int) -> Path:
    return out / f"{title}-{_file_name(name)}-{seed}"


def _test_files(recipe: Recipe) -> list[str]:
    return [os.path.expandvars(path) for path in recipe.test]


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.split(" (")[0]).strip("-")
