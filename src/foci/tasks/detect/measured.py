"""How well boxes are found: average precision, confusion, calibration, a baseline, and where queries look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foci.data.images.canvases import Canvases
from foci.metrics.boxes import share_inside
from foci.metrics.calibration import Odds, calibration, expected_calibration_error
from foci.metrics.detection import Found, Marked, average_precision
from foci.metrics.matched_boxes import confusion, matched
from foci.printable import printable
from foci.tasks.detect.answers import Outcomes, Seen
from foci.tasks.detect.baseline import same_everywhere
from foci.tasks.detect.looks import Shown
from foci.tasks.frame.scores import calibration_table
from foci.tasks.frame.task import Evaluation, Table


class Measured:
    """Counts batches of images.

    Args:
        odds: how probabilities are calibrated.
        threshold: the lowest probability of the boxes that count, except for average precision.
    """

    def __init__(self, odds: Odds, threshold: float) -> None:
        self.odds, self.threshold = odds, threshold
        self.outcomes = Outcomes()
        self.marked: list[Marked] = []
        self.ranked: list[Found] = []
        self.best: list[Found] = []
        self.originals: list[tuple[int, int]] = []
        self.inside: list[float] = []
        self.chance: list[float] = []

    def add(self, seen: Seen, marked: Sequence[Marked], canvas: tuple[int, int]) -> None:
        """Count a batch, given what is to be found in each image."""
        for row, (answer, wanted) in enumerate(zip(seen.answers, marked)):
            self.outcomes.add(answer, wanted)
            self.ranked.append(answer.ranked())
            self.best.append(answer.best(self.odds))
            self.marked.append(wanted)
            self.originals.append(seen.originals[row])
            self._look(Shown.of(canvas, seen.output.grids, seen.sizes[row]), seen, row, wanted)

    def _look(self, shown: Shown, seen: Seen, row: int, marked: Marked) -> None:
        """Count how much of the attention of the queries that are right lies in their objects, in the last layer."""
        found = self.best[-1]
        pairs = matched(found, marked, threshold=self.threshold)
        right = [
            (int(query), int(place))
            for query, place in zip(pairs.boxes, pairs.objects)
            if place >= 0 and marked.labels[place] == found.labels[query]
        ]
        names = [name for name in seen.output.attentions if name.endswith("cross")]
        if not right or not names:
            return
        weights = seen.output.attentions[names[-1]].dense()[row]
        height, width = seen.originals[row]
        for query, place in right:
            left, top, right_edge, bottom = (marked.boxes[place] / [width, height, width, height]).tolist()
            box = shown.box((left, top, right_edge, bottom))
            self.inside.append(share_inside(shown.map(weights[:, query]), box))
            self.chance.append((right_edge - left) * (bottom - top))

    def evaluation(
        self, labels: Sequence[str], counts: Mapping[str, float | int], always: tuple[int, Sequence[Any]] | None
    ) -> Evaluation:
        """Return all metrics.

        Args:
            labels: the classes.
            counts: further metrics: ``unreadable``, ``beyond_queries`` and ``loss``.
            always: the baseline: the number of a class, and its boxes as shares of any image; None if there is none.
        """
        precision = average_precision(self.ranked, self.marked, len(labels))
        confused = confusion(self.best, self.marked, len(labels), threshold=self.threshold)
        right, boxes, objects = (
            int(n) for n in (np.trace(confused[:-1, :-1]), confused[:, :-1].sum(), confused[:-1].sum())
        )
        scores, outcomes = self.outcomes.scores, self.outcomes.right
        bins, raw_bins = calibration(self.odds(scores), outcomes), calibration(scores, outcomes)
        metrics: dict[str, float | int] = {
            "images": len(self.marked),
            "objects": objects,
            **{name: value for name, value in counts.items() if name != "loss"},
            **dict.fromkeys(("ap", "ap50", "ap75"), 0.0),
            **precision.metrics(),
            "precision": right / boxes if boxes else 0.0,
            "recall": right / objects if objects else 0.0,
            "loss": counts["loss"],
            "ece": expected_calibration_error(bins),
            "ece_uncalibrated": expected_calibration_error(raw_bins),
        }
        notes = {
            "ap_of": "as pycocotools: the mean over ten thresholds of IoU (.50 to .95) and the classes that occur; "
            "ar_100: the recall of 100 boxes; small is below 32², medium below 96² pixels of the image itself",
            "precision_of": f"boxes of a probability of at least {self.threshold:g} (threshold) with an IoU of .5",
        }
        metrics |= self._always(labels, always, notes) | self._attention(notes)
        tables = _tables(labels, precision.of_classes(), precision.objects[0].tolist(), confused.tolist())
        return Evaluation(metrics, notes, {**tables, "calibration": calibration_table(bins, "boxes")})

    def _always(
        self, labels: Sequence[str], always: tuple[int, Sequence[Any]] | None, notes: dict[str, str]
    ) -> dict[str, float]:
        """Return the average precision of the most frequent class at its mean boxes."""
        if always is None:
            return {}
        label, boxes = always
        found = same_everywhere(np.array(boxes, np.float64), label, self.originals)
        scores = average_precision(found, self.marked, len(labels)).metrics()
        count = f"{len(boxes)} box{'es' * (len(boxes) > 1)}"
        notes["baselines"] = f"mean_boxes_…: in each image {printable(labels[label])!r} at its mean boxes, {count}"
        return {f"mean_boxes_{name}": scores.get(name, 0.0) for name in ("ap", "ap50")}

    def _attention(self, notes: dict[str, str]) -> dict[str, float]:
        """Return the shares of attention in the objects; nothing where no object was found."""
        if not self.inside:
            return {}
        notes["attention_of"] = (
            f"of {len(self.inside):,} objects that were found: the share of their query's attention in the last layer "
            "that lies in their box; by chance: the share of the picture that their box covers"
        )
        return {
            "attention_inside": float(np.mean(self.inside)),
            "attention_inside_by_chance": float(np.mean(self.chance)),
        }

    def draw(self, path: str, labels: Sequence[str], canvases: Canvases, names: Sequence[str]) -> None:
        """Draw the worst mistakes beside the truth."""
        from foci.viz.figure import mistakes

        def image(number: int) -> mistakes.Seen:
            return mistakes.Seen(canvases.picture(number), self.originals[number], names[number])

        mistakes.draw_mistakes(path, self.best, self.marked, labels, image, threshold=self.threshold)


def _tables(
    labels: Sequence[str], scores: Mapping[str, Any], objects: Sequence[int], counts: Sequence[Sequence[int]]
) -> dict[str, Table]:
    """Return the table of classes, and the confusion."""
    rows = []
    for place, label in enumerate(labels):
        values = [None if np.isnan(of_class[place]) else float(of_class[place]) for of_class in scores.values()]
        rows.append((label, objects[place], *values))
    confused = tuple((name, *row) for name, row in zip((*labels, "background"), counts))
    return {
        "classes": Table(("class", "objects", *scores), tuple(rows)),
        "confusion": Table(("class \\ predicted", *labels, "missed"), confused),
    }
