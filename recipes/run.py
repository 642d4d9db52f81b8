"""The one runner of all recipes: train or resume, evaluate, measure."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import foci
from foci.tasks.frame import config as configs
from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.task import find
from foci.training.engine import TrainingResult
from foci.training.run_folder import read_metrics
from recipes import intervals
from recipes.recipe import CONFIGS, Recipe, Row, Variant


class Job(NamedTuple):
    """One training: the name of its row, and its seed."""

    name: str
    seed: int


def jobs(recipe: Recipe, seed: int, seeds: int | None = None) -> Iterator[Job]:
    """Yield the trainings of a recipe: its number of seeds unless another is given, from ``seed`` on."""
    for number in range(seed, seed + (recipe.seeds if seeds is None else seeds)):
        for name in recipe.variants:
            yield Job(name, number)


def run(title: str, recipe: Recipe, job: Job, out: Path, minutes: float | None = None) -> Row | None:
    """Train or resume one run, for all its steps unless ``minutes`` stop it.

    Returns:
        Its row, or None in the other processes under torchrun.
    """
    print(f"== {title}: {job.name}, seed {job.seed}", flush=True)
    folder = _folder(out, title, job.name, job.seed)
    resumed, began = (folder / "config.json").exists(), time.process_time()
    summary = _train(title, recipe, job, folder, minutes)
    spent = {} if resumed else {"cpu_seconds": time.process_time() - began}
    if os.environ.get("RANK", "0") != "0":
        return None
    predictor = foci.load(folder)
    options = dict(recipe.variants[job.name].options)
    records = [dict(record) for record in predictor.read(*_test_files(recipe))] if recipe.test else None
    evaluation = predictor.evaluate(records, options=options)
    epochs = [line["epoch"] for line in read_metrics(folder / "metrics.jsonl") if "epoch" in line]
    row = {
        "seed": job.seed,
        "steps": summary.step,
        "minutes": summary.seconds / 60,
        **spent,
        "epochs": max(epochs, default=0),
        "count_trained": summary.count,
        "run": str(folder),
        **evaluation.notes,
        **evaluation.metrics,  # a note may have the name of the figure that it explains
        **recipe.measure(predictor, evaluation, records),
    }
    if recipe.intervals:
        row["intervals"] = measure_intervals(predictor, recipe.intervals, evaluation.metrics, records, options)
    return row


def measure_intervals(
    predictor: Predictor,
    names: Sequence[str],
    metrics: Mapping[str, float],
    records: Sequence[Row] | None,
    options: Row,
) -> dict[str, tuple[float, float]]:
    """Return the intervals of metrics, from evaluations of ten parts of the test examples, or of the one test text."""
    examples = [dict(record) for record in predictor.held_out()] if records is None else records
    if len(examples) == 1:
        text = examples[0]["text"]
        cuts = [len(text) * number // intervals.PARTS for number in range(intervals.PARTS + 1)]
        parts = [[{"text": text[begin:end]}] for begin, end in pairwise(cuts)]
    else:
        parts = [list(examples[first :: intervals.PARTS]) for first in range(intervals.PARTS)]
    if min(map(len, parts)) < 2 <= len(examples):
        return {}
    found = [predictor.evaluate(part, options=options).metrics for part in parts]
    return {name: intervals.of_parts(metrics[name], [one[name] for one in found]) for name in names}


def settings(title: str, variant: Variant, **changes: object) -> dict[str, Any]:
    """Return the tables of settings of a row: its recipe's file, with what the variant and ``changes`` set."""
    tables: dict[str, Any] = configs.put(configs.read_toml(CONFIGS / f"{title}.toml"), {**variant.settings, **changes})
    return tables


def max_steps(title: str, recipe: Recipe, name: str) -> int | None:
    """Return the steps of a row's training, unless it is stopped."""
    config = configs.configure(find(recipe.task).Config, settings(title, recipe.variants[name]), title)
    steps: int | None = config.training.max_steps
    return steps


def _train(title: str, recipe: Recipe, job: Job, folder: Path, minutes: float | None) -> TrainingResult:
    variant = recipe.variants[job.name]
    changes: dict[str, object] = {"training.seed": job.seed}
    if minutes is not None:
        changes["training.time_limit"] = 60 * minutes
    if variant.init_from is not None:
        changes["training.init_from"] = str(_folder(folder.parent, title, variant.init_from, job.seed))
    resume = (folder / "config.json").exists()
    tables = settings(title, variant, **changes)
    summary = foci.train(recipe.task, tables, out=folder, resume=resume, origin=str(CONFIGS / f"{title}.toml"))
    if summary.reason == "interrupted":  # an interrupted training also ends the recipe
        sys.exit(130)
    return summary


def _folder(out: Path, title: str, name: str, seed: int) -> Path:
    return out / f"{title}-{_file_name(name)}-{seed}"


def _test_files(recipe: Recipe) -> list[str]:
    return [os.path.expandvars(path) for path in recipe.test]


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.split(" (")[0]).strip("-")
