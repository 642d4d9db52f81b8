"""docs/results.md, from the rows that recipes have left."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"

Row = dict[str, Any]


class Job(NamedTuple):
    """One training, which gives one row of the same name."""

    name: str
    run: Callable[[], Row]


@dataclass(frozen=True)
class Recipe:
    """A training, or several, and how their rows are shown."""

    jobs: Callable[[Path, float, int], Iterator[Job]]
    """Called with the folder for runs, the minutes of each training and the seed; nothing is trained yet."""
    minutes: float
    """Of each training, unless the user says otherwise."""
    title: str
    note: str
    table: Callable[[list[Row]], str]
    """Markdown of all rows."""
    draw: Callable[[list[Row]], None] | None = None
    """Makes the pictures, if there are any, from all rows."""


def add(recipe: str, row: Mapping[str, Any]) -> None:
    """Keep a row in place of an older one of the same name and seed."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{recipe}.jsonl"
    rows = [old for old in rows_of(recipe) if (old["name"], old["seed"]) != (row["name"], row["seed"])]
    machine = f"{os.cpu_count()} processors, {platform.machine()}"
    rows.append({**row, "machine": machine, "date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[2], 1)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write(recipes: Mapping[str, Recipe]) -> Path:
    """Write docs/results.md."""
    text = [
        "# Results",
        "Trainings on real data by `recipes/`, each row with the command that makes it again. The data is not part of "
        "foci: set `FOCI_DATA` to the folder that holds it.",
    ]
    for name, recipe in recipes.items():
        rows = rows_of(name)
        if not rows:
            continue
        text += [f"## {recipe.title}", recipe.note, recipe.table(rows)]
        text.append(_commands(rows))
    target = ROOT / "docs" / "results.md"
    target.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return target


def _commands(rows: list[Row]) -> str:
    """What was typed, when and where, and how busy the machine was."""
    loads: dict[str, list[float]] = {}
    for row in rows:
        loads.setdefault(f"`{row['command']}`, {row['date']}, {row['machine']}", []).append(row["load"])
    return "\n".join(f"- {told}, load average {min(some)} to {max(some)}" for told, some in sorted(loads.items()))


def rows_of(recipe: str) -> list[Row]:
    """What is kept of a recipe."""
    path = RESULTS / f"{recipe}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(line) + " |" for line in lines)]
    )
