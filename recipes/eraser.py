"""ERASER's movie reviews: whether the attention of a document classifier finds the reasons that people marked."""

from __future__ import annotations

import json
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foci
from foci.models.options.words import POOLINGS
from foci.probing import Probe
from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.probing.marked import RATIONALES
from foci.tasks.frame.task import Evaluation
from recipes.data import folder
from recipes.recipe import Row
from recipes.tables import POOLING_NAMES, markdown, share_cell

_PARTS = {"train": "train", "valid": "val", "test": "test"}
_TEST = "$FOCI_RUNS/eraser.test.jsonl"
_MEASURES = ("auprc", "f1", "comprehensiveness", "sufficiency", "tau")
_OTHER_WEIGHTS = ("uniform", "permuted", "adversarial")


def prepare_eraser(out: Path) -> None:
    """Write the reviews as three JSONL files: text, label, and the spans of characters that people marked."""
    paths = {part: out / f"eraser.{part}.jsonl" for part in _PARTS}
    if all(path.exists() for path in paths.values()):
        return
    with tarfile.open(folder("eraser-movies") / "docs.tar.xz") as archive:
        files = ((Path(member.name).name, archive.extractfile(member)) for member in archive)
        texts = {name: file.read().decode("utf-8") for name, file in files if file is not None}
    out.mkdir(parents=True, exist_ok=True)
    for part, path in paths.items():
        packed = lzma.decompress((folder("eraser-movies") / f"{_PARTS[part]}.jsonl.xz").read_bytes())
        lines = [json.dumps(one) + "\n" for one in _records(packed.decode("utf-8"), texts)]
        path.write_text("".join(lines), encoding="utf-8")
        print(f"recipes: {len(lines):,} reviews in {path}")


def _records(packed: str, texts: dict[str, str]) -> Iterator[dict[str, Any]]:
    for line in packed.splitlines():
        given = json.loads(line)
        text = texts[given["annotation_id"]]
        places = [found.span() for found in re.finditer(r"\S+", text)]
        marked = [one for group in given["evidences"] for one in group]
        spans = [[places[one["start_token"]][0], places[one["end_token"] - 1][1]] for one in marked]
        yield {"text": text, "label": given["classification"], RATIONALES: spans}


def measure_rationales(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Probe the test reviews."""
    path = Path(run.config.data.test)
    reviews = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = foci.probe(run, reviews, trials=20, permutations=5, steps=20, batch_size=64)
    return {"pooling": run.config.model.pooling, "probe": _plain(found)}


def _plain(found: Probe) -> list[Row]:
    """Return the measures of each attention beside chance."""
    kept = ("name", "measures", "chance")
    return [{key: row[key] for key in kept} for row in found.to_json()["rows"] if row["head"] is None]


def rationales_table(rows: list[Row]) -> str:
    """Return a line for the attention of each model, for gradient × input, and for chance."""
    head = ["what orders the words", "accuracy", "AUPRC", "token F1", "comprehensiveness", "sufficiency", "τ", "seed"]
    lines, chances = [], []
    for row in sorted(rows, key=lambda one: (POOLINGS.index(one["pooling"]), one["seed"])):
        accuracy = share_cell([row["accuracy"]], row["documents"], 1)
        for found in row["probe"]:
            name = f"{found['name']}: {POOLING_NAMES[row['pooling']]}"
            lines.append([name, accuracy, *(_cell(found, one) for one in _MEASURES), str(row["seed"])])
        chance = row["probe"][0]["chance"]
        chances.append(
            [
                f"chance: {POOLING_NAMES[row['pooling']]}",
                "",
                *(f"{chance[one]:.3f}" for one in _MEASURES),
                str(row["seed"]),
            ]
        )
    table = markdown(head, [*lines, *chances])
    others = [
        [
            f"{found['name']}: {POOLING_NAMES[row['pooling']]}",
            *(_cell(found, one) for one in _OTHER_WEIGHTS),
        ]
        for row in rows
        for found in row["probe"]
        if "uniform" in found["measures"]
    ]
    if not others:
        return table
    head = ["attention", "uniform weights", "permuted weights", "most different weights"]
    return f"{table}\n\n{markdown(head, others)}"


def _cell(found: Row, name: str) -> str:
    if name not in found["measures"]:
        return ""
    value, low, high = found["measures"][name]
    return f"{value:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")
