"""docs/results.md from the stored rows of the recipes."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foci.files import locked, write_text
from recipes.recipe import Recipe, Row
from recipes.run import max_steps

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


def add(recipe: str, row: Mapping[str, Any]) -> None:
    """Store a row, replacing an older one of the same name and seed; several processes may do so at once."""
    RESULTS.mkdir(exist_ok=True)
    machine = f"{os.cpu_count()} processors, {platform.machine()}"
    new = {**row, "machine": machine, "date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[2], 1)}
    with locked(RESULTS):
        rows = [old for old in rows_of(recipe) if (old["name"], old["seed"]) != (row["name"], row["seed"])]
        write_text(RESULTS / f"{recipe}.jsonl", "".join(json.dumps(one) + "\n" for one in (*rows, new)))


_ABOUT = (
    "Training runs made with `recipes/`, most of them on real data. Below each table stands the command that "
    "repeats each row: all its steps, without a limit of time. A row that was stopped by the clock is marked, "
    "since its steps depend on the machine; none of these is in the README. The data is not part of foci: set "
    "`FOCI_DATA` to the folder that holds it.\n\n"
    "± is the standard deviation over seeds; a table with a column “seed” has one seed per row. In brackets are "
    "intervals of 95 % that come from the number of test examples alone: Wilson's of shares, for error rates as "
    "if words were independent; those of span F1, BLEU, chrF, ROUGE, CIDEr-D and nats are estimated from ten parts of "
    "the test examples. A row without one of the latter says so (“no interval of …”): only the metrics of older rows "
    "were kept, and they were not trained again; none of these figures is in the README. What else a table has (macro "
    "F1, perplexity, metrics of validation, speed) has no interval. A difference that is smaller than an interval, or "
    "of one seed, may be chance. Examples that foci itself holds out (movie reviews, BBC, the parts of SNLI) are "
    "chosen by their content since 2026-11-18: older rows were evaluated on others."
)


def write(recipes: Mapping[str, Recipe]) -> Path:
    """Write docs/results.md."""
    text = ["# Results", _ABOUT]
    for name, recipe in recipes.items():
        rows = rows_of(name)
        if not rows:
            continue
        text += [f"## {recipe.title}", recipe.note, recipe.table(rows)]
        text.append(_commands(name, recipe, rows))
    target = ROOT / "docs" / "results.md"
    target.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return target


def _commands(name: str, recipe: Recipe, rows: list[Row]) -> str:
    """Return a line for each row: the command that repeats it, when it was measured, and whether it was stopped."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)
    return "\n".join(f"- {row}: {_command(name, recipe, row, some)}" for row, some in by_name.items())


def _command(name: str, recipe: Recipe, row: str, some: list[Row]) -> str:
    dates, loads = {one["date"] for one in some}, [one["load"] for one in some]
    lacking = [name for name in recipe.intervals if any(name not in one.get("intervals", {}) for one in some)]
    without = f"no interval of {', '.join(lacking)}; " if lacking else ""
    measured = f"{without}{', '.join(sorted(dates))}, {some[0]['machine']}, load average {min(loads)} to {max(loads)}"
    if row not in recipe.variants:  # of a program with a command of its own
        end = "" if some[0].get("whole") else f", stopped by processor time after {some[0]['steps']:,} steps"
        return f"`{some[0]['command']}`{end}; {measured}"
    needed = [other for other in (recipe.variants[row].init_from, row) if other is not None]
    processes, threads = some[0].get("processes", 1), some[0].get("threads")
    start = "python" if processes == 1 else f"torchrun --nproc-per-node {processes}"
    words = [f"{start} -m recipes {name}", *(f'--only "{other}"' for other in needed)]
    words.append(f"--seed {min(one['seed'] for one in some)} --seeds {len(some)}")
    words += [f"--threads {threads}"] if threads else []
    whole = max_steps(name, recipe, row)
    stopped = sorted({one["steps"] for one in some if one.get("steps") not in (None, whole)})
    steps = f"; **stopped by the clock** after {stopped[0]:,} of {whole:,} steps" if stopped and whole else ""
    return f"`{' '.join(words)} --out runs`{steps}; {measured}"


def rows_of(recipe: str) -> list[Row]:
    """Return the stored rows of a recipe."""
    path = RESULTS / f"{recipe}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
