"""The rows of object detection: what each part of a detector brings, and blood cells."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.task import Evaluation
from recipes.data import folder
from recipes.recipe import Row, Variant
from recipes.tables import markdown

_RATE = {"training.learning_rate": 2e-3}
PARTS = {
    "plain (DETR)": Variant({"model.attention.kind": "plain", **_RATE}),
    "with reference points (conditional, DAB)": Variant({"model.attention.kind": "conditional", **_RATE}),
    "with points instead of the whole map (deformable)": Variant(),
    "deformable, warm-up of 16 steps instead of 65": Variant({"training.warmup": 16}),
    "deformable, boxes not refined from layer to layer": Variant({"model.attention.refine": False}),
    "deformable, neither refined nor with auxiliary losses": Variant(
        {"model.loss.auxiliary": False, "model.attention.refine": False}
    ),
    "deformable, learned anchors": Variant({"model.attention.anchors": "learned"}),
}
"""What is compared on drawn scenes; all but what is named is that of the deformable row."""
KINDS = {
    "deformable": Variant(),
    "conditional": Variant({"model.attention.kind": "conditional"}),
    "plain": Variant({"model.attention.kind": "plain"}),
}
"""The attentions that are compared on photographs."""


def unpack_bccd(out: Path) -> None:
    """Unpack the photographs and their annotations."""
    target = out / "bccd"
    if target.exists():
        return
    unfinished = out / ".bccd"
    with zipfile.ZipFile(folder("bccd") / "bccd.zip") as archive:
        archive.extractall(unfinished)
    unfinished.replace(target)


def measure_detector(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the number of parameters, and the average precision of each class."""
    classes = evaluation.tables["classes"]
    ap50 = classes.columns.index("ap50")
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "classes": {str(row[0]): row[ap50] for row in classes.rows},
    }


def detection_table(rows: list[Row]) -> str:
    """Return the means over the seeds."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)
    head = ["detector", "AP50", "AP", "AP50 by class", "parameters", "processor minutes each", "seeds"]
    lines = []
    for name, some in by_name.items():
        means = {label: _mean([row["classes"][label] for row in some]) for label in some[0]["classes"]}
        lines.append(
            [
                name,
                *(_deviating([100 * row[metric] for row in some]) for metric in ("ap50", "ap")),
                ", ".join(f"{label} {100 * mean:.1f}" for label, mean in means.items()),
                f"{some[0]['parameters']:,}",
                f"{fmean(row['cpu_seconds'] for row in some) / 60:.1f}",
                str(len(some)),
            ]
        )
    return markdown(head, lines)


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0


def _deviating(values: list[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
