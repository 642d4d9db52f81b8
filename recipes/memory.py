"""The recipe of memories; it needs no data.

memorise    the five problems of "Neural Turing Machines" (2014), and an LSTM beside it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from foci.data.algorithms import PROBLEMS
from foci.tasks import load
from foci.tasks.memorise import SETTINGS, MemoriseConfig, Memoriser, train
from foci.training import Summary
from foci.viz.curves import plot_curves
from recipes import report
from recipes.report import Job, Recipe, Row, markdown

LENGTHS = {
    "copy": (10, 20, 40, 80, 120),
    "repeat_copy": (5, 10, 20),
    "recall": (2, 6, 10, 15, 20),
    "ngrams": (200,),
    "sort": (20,),
}
"""Where each problem is judged; the paper's training ends at 20 (copy), 10 (repeat_copy), 6 (recall)."""

MODELS = {"ntm": "Neural Turing Machine", "lstm": "LSTM"}

RUNS = [*((problem, "ntm") for problem in PROBLEMS), ("copy", "lstm")]
"""Which model is trained on which problem."""

SHOWN = 60
"""Length of the copied sequence whose tape is drawn."""

SEEDS = 3
"""How many are tried, until one has begun to learn by a third of its time."""

JUDGED = 200
"""Sequences of each length."""


def memorise(out: Path, minutes: float, seed: int) -> Iterator[Job]:
    """A training a problem and model, with the settings that `foci train memorise --problem …` has of itself."""
    for problem, kind in RUNS:
        yield Job(f"{problem}, {kind}", partial(_run, problem, kind, out, minutes, seed))


def _draw(rows: list[Row]) -> None:
    """Error against length of all models that copy, and the tape of the first machine among them."""
    images = report.ROOT / "docs" / "images"
    copying = [row for row in rows if row["problem"] == "copy"]
    curves = {
        f"{row['model'].upper()}, seed {row['seed']}": [(at["length"], at["wrong_bits"]) for at in row["lengths"]]
        for row in copying
    }
    plot_curves(curves, images / "memory-lengths.png", across="length", up="wrong bits a sequence", title="copy")
    # Runs of other machines have left only their rows.
    runs = [row["run"] for row in copying if row["model"] == "ntm" and Path(row["run"]).exists()]
    if runs:
        run: Memoriser = load(Path(runs[0]))
        run.trace(length=SHOWN).plot(images / "memory-tape.png")


def _run(problem: str, kind: str, out: Path, minutes: float, seed: int) -> Row:
    """Train, or go on with, the first seed that learns; then its figures at each length."""
    print(f"== {problem}, {kind}", flush=True)
    spent = 0.0
    for tried in range(1, SEEDS + 1):
        folder = out / f"memorise-{problem}-{kind}-{seed + tried - 1}"
        summary = _train(problem, kind, folder, minutes / 3, seed + tried - 1)
        if tried == SEEDS or kind == "lstm" or _has_begun(problem, summary):  # an LSTM learns slowly, whatever its seed
            break
        spent += summary.seconds
    summary = _train(problem, kind, folder, minutes, seed + tried - 1)
    run: Memoriser = load(folder)
    return {
        "problem": problem,
        "model": kind,
        "preset": run.config.model.preset,
        "steps": summary.step,
        "sequences": summary.step * run.config.data.batch_size,
        "minutes": summary.seconds / 60,
        "minutes_of_other_seeds": spent / 60,
        "seeds_tried": tried,
        "run": str(folder),
        "trained_to": run.problem.max_length,
        "lengths": [row._asdict() for row in run.evaluate(LENGTHS[problem], sequences=JUDGED)],
    }


def _train(problem: str, kind: str, folder: Path, minutes: float, seed: int) -> Summary:
    tables: dict[str, Any] = {
        "data": {"problem": problem},
        "model": {"kind": kind},
        "training": {"max_steps": SETTINGS[problem].max_steps, "time_limit": 60 * minutes, "seed": seed},
    }
    config = MemoriseConfig.from_table(tables, "recipes", "")
    summary = train(config, folder, resume=(folder / "config.json").exists())
    if summary.reason == "interrupted":  # a user who stops one training does not ask for the next
        sys.exit(130)
    return summary


def _has_begun(problem: str, summary: Summary) -> bool:
    """Whether it is half way from guessing to knowing; the bits of n-grams can be known in part only."""
    return problem == "ngrams" or (summary.best_value or 0.0) < 0.5 * summary.figures["of_bits"]


def _table(rows: list[Row]) -> str:
    head = ["problem", "model", "length", "wrong bits", "of", "bits (cost)", "best possible", "perfect", "minutes",
            "sequences trained on", "seed", "seeds tried"]  # fmt: skip
    lines = []
    for row in sorted(rows, key=lambda row: ([*PROBLEMS].index(row["problem"]), row["model"] != "ntm", row["seed"])):
        for number, at in enumerate(row["lengths"]):
            length = str(at["length"]) + ("" if at["length"] <= row["trained_to"] else " (beyond training)")
            best = "0" if at["optimal_bits"] is None else f"{at['optimal_bits']:.1f}"
            figures = [f"{at['wrong_bits']:.2f}", f"{at['of_bits']:.0f}", f"{at['bits']:.2f}", best]
            seed = row["seed"] + row["seeds_tried"] - 1
            told = [f"{row['minutes']:.1f}", f"{row['sequences']:,}", str(seed), str(row["seeds_tried"])]
            name = [row["problem"], MODELS[row["model"]]] if number == 0 else ["", ""]
            lines.append([*name, length, *figures, f"{at['perfect']:.0%}", *(told if number == 0 else [""] * 4)])
    return markdown(head, lines)


RECIPES = {
    "memorise": Recipe(
        memorise,
        minutes=24,
        title="Memory: the five problems of the Neural Turing Machine",
        note="No data is needed. Trained with what `foci train memorise --problem …` has of itself, for at most so "
        f"many minutes. {JUDGED} held-out sequences of each length. A bit is wrong on the wrong side of ½; "
        "bits (cost) are the paper's measure. See docs/memory.md.",
        table=_table,
        draw=_draw,
    )
}
"""By name."""
