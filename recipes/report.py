"""docs/results.md from the stored rows of the recipes."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recipes.recipe import Recipe, Row

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


def add(recipe: str, row: Mapping[str, Any]) -> None:
    """Store a row, replacing an older one of the same name and seed."""
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
        "Training runs made with `recipes/`, most of them on real data, each row with the command that "
        "repeats it. The data is not part of foci: set `FOCI_DATA` to the folder that holds it.",
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
    """Return the commands with date, machine and load average."""
    loads: dict[str, list[float]] = {}
    for row in rows:
        loads.setdefault(f"`{row['command']}`, {row['date']}, {row['machine']}", []).append(row["load"])
    return "\n".join(f"- {command}, load average {min(some)} to {max(some)}" for command, some in sorted(loads.items()))


def rows_of(recipe: str) -> list[Row]:
    """Return the stored rows of a recipe."""
    path = RESULTS / f"{recipe}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
