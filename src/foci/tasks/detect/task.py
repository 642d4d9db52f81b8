"""Object detection: boxes around the objects of an image with their classes, and where each was looked for."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
from pydantic import AfterValidator
from torch import nn

from foci.data import TokenBatches
from foci.data.batching import Indices, on_device
from foci.data.images.canvases import Canvases, canvas_for
from foci.data.images.drawn import PREFIX, SIDE
from foci.data.images.files import Unreadable, read_scaled, same_pixels, sizes_of
from foci.data.splits import Parts, file_key
from foci.errors import ConfigError, DataError
from foci.metrics.boxes import share_inside
from foci.metrics.calibration import Odds, calibration, expected_calibration_error, fit_odds
from foci.metrics.detection import Found, Marked, average_precision
from foci.metrics.matched_boxes import confusion, matched
from foci.models.detector import Detector, DetectorOutput
from foci.printable import printable
from foci.tasks.detect.answers import Answer, Outcomes, answers_of, details_of, given, said
from foci.tasks.detect.augment import augmented
from foci.tasks.detect.baseline import mean_boxes, same_everywhere
from foci.tasks.detect.batches import DetectionBatch, DetectionExamples, marked_objects
from foci.tasks.detect.config import BUILT_IN, DetectConfig, DetectEvaluateOptions, DetectOptions
from foci.tasks.detect.forms import BoxesForm, CocoForm
from foci.tasks.detect.looks import Look
from foci.tasks.detect.marked import MarkedImage
from foci.tasks.detect.reader import ReadImages, drawn_objects, read_marked_images
from foci.tasks.detect.set_loss import set_loss
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.file_task import FileTask, log_labels, shortened
from foci.tasks.frame.prediction_loop import predict_in_batches
from foci.tasks.frame.scores import calibration_table
from foci.tasks.frame.task import (
    Document,
    Evaluation,
    Field,
    Log,
    Prediction,
    Progress,
    Record,
    Shard,
    Splits,
    Suited,
    Table,
)
from foci.training.objective import Batches, Loss
from foci.viz.trace import Trace

_MEASURED = 500
"""Images whose size is looked up, to choose the canvas."""
_SMALL = 12.0
"""Pixels that nearly all objects should be wide and high on the canvas."""
_SIZES = (64, 96, 128, 192, 256, 384, 512)
"""Longer sides of a canvas that are chosen by themselves."""
_FINE = 128
"""From this longer side on the network has one more stage, so that its coarsest level stays small."""
_FEWEST, _MOST = 16, 300
"""Queries that are chosen by themselves."""
_LEAST_STEPS = 1500


def _some(labels: tuple[str, ...]) -> tuple[str, ...]:
    if not labels or len({*labels}) < len(labels):
        raise ValueError("it has no list of different classes")
    return labels


@dataclass(frozen=True)
class DetectAssets(Assets):
    """The classes of a run, the numbers that they have in COCO's form, and height and width of the canvas."""

    labels: Annotated[tuple[str, ...], AfterValidator(_some)]
    numbers: tuple[int, ...]
    canvas: tuple[int, int]

    def check(self) -> None:
        """Raise unless each class has a number, and the canvas a size."""
        if len(self.numbers) != len(self.labels) or min(self.canvas) < 1:
            raise ValueError("each class needs a number, and the canvas a height and a width")


class _HeldOut(NamedTuple):
    """The validation images, and what is to be found in them."""

    examples: DetectionExamples
    marked: list[Marked]


class Detect(FileTask):
    """The object detection task."""

    name: ClassVar[str] = "detect"
    Config: ClassVar[type[Any]] = DetectConfig
    Options: ClassVar[type[Any]] = DetectOptions
    EvaluateOptions: ClassVar[type[Any]] = DetectEvaluateOptions
    Assets: ClassVar[type[Any]] = DetectAssets
    inputs: ClassVar[tuple[Field, ...]] = (Field("image", "image"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("objects", "list"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    unit: ClassVar[str] = "objects"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {"loss": "lower", "ap": "higher", "ap50": "higher"}
    baseline_types: ClassVar[Mapping[str, Any]] = {"label": str, "boxes": list[tuple[float, float, float, float]]}
    documents: ClassVar[Mapping[str, type[Document]]] = {"coco": CocoForm, "boxes": BoxesForm}
    noun: ClassVar[str] = "images"
    about: ClassVar[str] = "content"
    builtin_sizes: ClassVar[tuple[int, int, int]] = (BUILT_IN, 200, 200)

    config: DetectConfig
    _numbers: Mapping[str, int] = {}
    """COCO's numbers of the classes, once its file is read."""

    # ---- data

    def read_file(self, path: str, log: Log | None = None) -> list[MarkedImage]:
        """Read images with objects; images are decoded when they are batched."""
        return self._read(path, log).images

    def _read(self, path: str, log: Log | None) -> ReadImages:
        data = self.config.data
        corners = None if data.corners == "auto" else data.corners
        return read_marked_images(path, images=data.images, columns=data.columns, corners=corners, log=log)

    def read_part(self, part: str, path: str, log: Log) -> list[MarkedImage]:
        """Read the images of a part; what is guessed of those to train on holds for all."""
        found, data = self._read(path, log), self.config.data
        if part != "train":
            return found.images
        if found.corners is None and data.corners != "auto":
            raise ConfigError(
                f"data.corners is {data.corners}, but {path} is no Pascal VOC, whose corners it counts. Leave it out."
            )
        if found.corners is not None:
            self.config = replace(self.config, data=replace(data, corners=0 if found.corners == 0 else 1))
        self._numbers = found.numbers
        return found.images

    def read(self, log: Log) -> Splits:
        """Read, check and split the images, and log their classes."""
        splits = super().read(log)
        data = self.config.data
        if data.path is None:
            return splits
        train: list[MarkedImage] = list(splits.train)
        labels = [one["label"] for image in train for one in image.objects if not one.get("crowd")]
        if not labels:
            raise DataError(f"{data.path}, line 1: none of {len(train):,} images to train on has an object to learn.")
        log_labels(labels, "classes", log)
        parts = (("train on", train), ("validate", splits.valid), ("evaluate", splits.test))
        for use, part in parts:
            if empty := sum(not image.objects for image in part):
                log(f"{empty:,} of {len(part):,} images to {use} have no objects")
            if crowds := sum(bool(one.get("crowd")) for image in part for one in image.objects):
                log(f"{crowds:,} objects to {use} are crowds or difficult: neither trained on nor counted")
            if other := sorted({one["label"] for image in part for one in image.objects} - {*labels}):
                names = ", ".join(repr(printable(label)) for label in other)
                log(f"warning: images to {use} have classes that are not trained on, and left out: {names}")
        return splits

    def split(self, examples: list[MarkedImage], log: Log) -> Parts:
        """Split the images; the objects of an image that is named several times are together."""
        named: dict[str, MarkedImage] = {}
        for one in examples:
            place = os.path.normpath(one.image)
            known = named.get(place, one._replace(objects=[]))
            named[place] = known._replace(objects=[*known.objects, *one.objects])
        return super().split(list(named.values()), log)

    def key(self, example: MarkedImage) -> str:
        """Return the content of the image."""
        return file_key(example.image)

    def twins(self, examples: Sequence[MarkedImage]) -> list[str | None]:
        """Return the pixels of images that differ in their bytes alone."""
        return same_pixels([one.image for one in examples], max_pixels=self.config.data.max_pixels)

    def show(self, example: MarkedImage) -> str:
        """Return the image and its objects, counted."""
        return shortened(example.image, self._said(example.objects))

    def read_builtin(self, size: int, part: str) -> list[MarkedImage]:
        """Return drawn scenes."""
        return drawn_objects(size, split=part, seed=self.config.data.split_seed)

    def sizes(self, builtin: int) -> tuple[int, int, int]:
        """Return how many scenes each part has; of few to train on, as few are held out."""
        _, valid, test = self.builtin_sizes
        return builtin, min(builtin, valid), min(builtin, test)

    def suited(self, splits: Splits) -> dict[str, Suited]:
        """Return the size of the canvas by that of the objects, the queries by their number, and how long to train."""
        train: list[MarkedImage] = list(splits.train)
        chosen: dict[str, Suited] = {}
        longest = self.config.data.image_size
        if longest is None:
            longest, reason = self._longest(train)
            chosen["data.image_size"] = Suited(longest, reason)
        most = max(len(_trained_on(image)) for image in train)
        queries = min(_MOST, max(_FEWEST, math.ceil(1.5 * most)))
        chosen["model.num_queries"] = Suited(queries, f"images have up to {most} objects")
        if longest > _FINE and self.config.model.preset == "base":
            stages = (*self.config.model.encoder.stages, 96)
            reason = f"images have {longest} px, and a stage more keeps the coarsest level of their map small"
            chosen["model.encoder.stages"] = Suited(stages, reason)
        training, size = self.config.training, self.config.data.batch_size
        chosen["training.schedule"] = Suited("cosine", "the learning rate falls to 0 until the training ends")
        steps = training.max_steps
        if steps is None and training.time_limit is None:
            epoch = math.ceil(len(train) / size)
            steps = max(_LEAST_STEPS, (training.max_epochs or 1) * epoch)
            about = f"{steps / epoch:.0f} epochs of {len(train):,} images, {size} per batch"
            chosen["training.max_steps"] = Suited(steps, about)
            chosen["training.max_epochs"] = Suited(None, "training.max_steps says when the training ends")
        if steps is not None and training.warmup > steps // 10:
            chosen["training.warmup"] = Suited(max(1, steps // 10), f"a tenth of training.max_steps = {steps:,}")
        return chosen

    def _longest(self, train: Sequence[MarkedImage]) -> tuple[int, str]:
        """Return the longer side on which nearly all objects are large enough, and the reason."""
        if train[0].image.startswith(PREFIX):
            return SIDE, "the size of drawn scenes"
        shares, sides = [], []
        for one in _spread(train):
            if (sizes := sizes_of(one.image)) is not None:
                sides.append(max(sizes.upright))
                shares += [
                    math.sqrt((right - left) * (bottom - top)) / max(sizes.upright)
                    for left, top, right, bottom in (item["box"] for item in _trained_on(one))
                ]
        if not shares:
            return _SIZES[2], "the sizes of the objects are not known"
        small, side = float(np.quantile(shares, 0.05)), int(np.median(sides))
        most = next((size for size in _SIZES if size >= side), _SIZES[-1])
        longest = next((size for size in _SIZES if size * small >= _SMALL), _SIZES[-1])
        chosen = min(longest, most)
        return chosen, (
            f"images have {side} px (the longer side, median), and all but the smallest 5 % of the objects more than "
            f"{chosen * small:.0f} px then. More takes more time"
        )

    # ---- model

    def assets(self, splits: Splits, log: Log) -> DetectAssets:
        """List the classes, and choose the canvas by the proportions of the images."""
        labels = tuple(sorted({one["label"] for image in splits.train for one in _trained_on(image)}))
        found = (sizes_of(one.image) for one in _spread(list(splits.train)))
        longest = self.config.data.image_size or SIDE
        canvas = canvas_for((one.upright for one in found if one is not None), longest)
        log(f"images are scaled to fit into {canvas[0]} × {canvas[1]} px (height and width)")
        numbers = [self._numbers.get(label, -1) for label in labels]
        known = min(numbers) >= 0 and len({*numbers}) == len(numbers)
        return DetectAssets(labels, tuple(numbers if known else range(1, len(labels) + 1)), canvas)

    def model(self, assets: DetectAssets) -> nn.Module:
        """Build the model for these classes."""
        return Detector(len(assets.labels), self.config.model)

    def count_baselines(self, splits: Splits) -> dict[str, Any]:
        """Return the most frequent class and its mean boxes."""
        boxes, labels = [], []
        for image in splits.train:
            if (sizes := sizes_of(image.image)) is not None:
                height, width = sizes.upright
                trained = _trained_on(image)
                boxes.append([[edge / side for edge, side in zip(one["box"], (width, height) * 2)] for one in trained])
                labels.append([one["label"] for one in trained])
        return mean_boxes(boxes, labels) if any(labels) else {}

    def batches(self, splits: Splits, assets: DetectAssets, shard: Shard, log: Log) -> Batches:
        """Decode and batch the training images."""
        train: list[MarkedImage] = list(splits.train)
        queries = self.config.model.num_queries
        if cut := sum(max(0, len(_trained_on(image)) - queries) for image in train):
            log(
                f"warning: {cut:,} objects to train on are beyond the {queries} queries of an image (model.num_queries)"
            )
        size = self.config.data.batch_size
        return TokenBatches(self._examples(train, assets, log), **self.batching(shard, size, size))

    def held_out(self, splits: Splits, assets: DetectAssets, log: Log) -> _HeldOut:
        """Decode the validation images."""
        return self._held_out(list(splits.valid), assets, log)

    def _held_out(self, images: Sequence[MarkedImage], assets: DetectAssets, log: Log | None = None) -> _HeldOut:
        examples = self._examples(images, assets, log)
        return _HeldOut(
            examples, [marked_objects(images[one].objects, assets.labels) for one in examples.canvases.kept]
        )

    def _examples(self, images: Sequence[MarkedImage], assets: DetectAssets, log: Log | None) -> DetectionExamples:
        canvases = self._canvases([one.image for one in images], assets, log)
        if images and not canvases.kept:
            raise DataError(f"none of the {len(images)} images can be read: {canvases.unreadable[0]}")
        return DetectionExamples(canvases, [one.objects for one in images], assets.labels)

    def _canvases(self, names: Sequence[str], assets: DetectAssets, log: Log | None = None) -> Canvases:
        return Canvases.load_canvases(names, assets.canvas, max_pixels=self.config.data.max_pixels, log=log)

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: DetectionBatch) -> Loss:
        """Return the loss of the set of boxes, by objects; pictures are changed at random in training."""
        data = self.config.data
        if model.training:
            batch = augmented(batch, flips=data.flips, crop=data.crop, scale=data.scale, color=data.color)
        found = set_loss(model(batch.images, batch.sizes), batch.targets, self.config.model.loss)
        return Loss(found.total, found.count, found.parts)

    def validate(self, model: nn.Module, held_out: _HeldOut) -> dict[str, float]:
        """Return the loss, average precision, and how probabilities are calibrated."""
        outcomes, found = Outcomes(), []
        total = count = 0.0
        for seen in _seen(model, held_out.examples, self.config.data.batch_size):
            one = set_loss(seen.output, seen.batch.targets, self.config.model.loss)
            total, count = total + float(one.total), count + one.count
            for number, answer in zip(seen.numbers, seen.answers):
                outcomes.add(answer, held_out.marked[number])
                found.append(answer.ranked())
        odds = fit_odds(outcomes.scores, outcomes.right)
        classes = cast(Detector, getattr(model, "module", model)).num_classes
        precision = average_precision(found, held_out.marked, classes).metrics()
        fitted = {f"calibration/{name}": value for name, value in odds._asdict().items()}
        return {"loss": total / count, **{name: precision.get(name, 0.0) for name in ("ap", "ap50")}, **fitted}

    @property
    def odds(self) -> Odds:
        """How the probabilities of boxes are calibrated."""
        return Odds(**{name: value for name, value in self.calibration.items() if name in Odds._fields})

    # ---- predictions

    def empty_details(self, assets: DetectAssets) -> dict[str, Any]:
        """Return no objects, and no size."""
        return {"objects": [], "size": []}

    def predict(
        self,
        model: nn.Module,
        assets: DetectAssets,
        records: Sequence[Record],
        options: DetectOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Return the boxes of each image; the score is the probability of the surest one."""
        names = [str(record["image"]) for record in records]
        examples = DetectionExamples(self._canvases(names, assets), [()] * len(names), assets.labels)
        canvases = examples.canvases
        reasons = {one.name: one.reason for one in canvases.unreadable}
        missing = sorted({*range(len(names))} - {*canvases.kept})
        unusable = {
            number: f"the image cannot be read, so nothing was predicted: {reasons[names[number]]}"
            for number in missing
        }

        def answer(seen: _Seen) -> Iterator[Prediction]:
            for row, number in enumerate(seen.numbers):
                record = records[canvases.kept[number]]
                found = seen.answers[row].best(self.odds)
                height, width = canvases.originals[number].tolist()
                objects = details_of(found, assets.labels, options.threshold)
                if options.crops is not None:
                    _crop(str(record["image"]), (height, width), objects, Path(options.crops))
                output = said(one["label"] for one in objects)
                look = self._trace(seen, row, found, assets, options.threshold, canvases, output) if trace else None
                details = {"objects": objects, "size": [width, height]}
                yield Prediction(record, output, float(found.scores.max()), details, look)

        seen = _seen(model, examples, options.batch_size)
        return predict_in_batches(
            records,
            seen,
            answer,
            progress,
            unusable=unusable,
            numbers=lambda one: [canvases.kept[number] for number in one.numbers],
        )

    def _trace(
        self,
        seen: _Seen,
        row: int,
        found: Found,
        assets: DetectAssets,
        least: float,
        canvases: Canvases,
        text: str,
    ) -> Trace:
        """Return what the given boxes were found by."""
        number = seen.numbers[row]
        look = Look.at(canvases.picture(number), assets.canvas, seen.output.grids)
        queries = given(found, least)
        height, width = canvases.originals[number].tolist()
        labels = [f"{assets.labels[int(found.labels[one])]} {found.scores[one]:.2f}" for one in queries]
        boxes = [(found.boxes[one] / [width, height, width, height]).tolist() for one in queries]
        return look.trace(seen.output.attentions, row, queries, labels, boxes, text)

    def expected(self, record: Record) -> str:
        """Return which objects an image has, as predictions say it."""
        return self._said(record["objects"])

    def _said(self, objects: Sequence[Mapping[str, Any]]) -> str:
        return said(str(one["label"]) for one in objects if not one.get("crowd"))

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: DetectAssets,
        records: Sequence[Record],
        options: DetectEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return average precision and recall, confusion, calibration, and whether queries look at their objects."""
        images = [MarkedImage(str(record["image"]), list(record["objects"])) for record in records]
        held_out = self._held_out(images, assets)
        canvases, marked, classes = held_out.examples.canvases, held_out.marked, len(assets.labels)
        progress(len(canvases.unreadable))
        outcomes, pointing = Outcomes(), Pointing()
        ranked: list[Found] = []
        best: list[Found] = []
        total = count = 0.0
        for seen in _seen(model, held_out.examples, options.batch_size):
            one = set_loss(seen.output, seen.batch.targets, self.config.model.loss)
            total, count = total + float(one.total), count + one.count
            for row, number in enumerate(seen.numbers):
                outcomes.add(seen.answers[row], marked[number])
                ranked.append(seen.answers[row].ranked())
                best.append(seen.answers[row].best(self.odds))
                look = Look.at(canvases.picture(number), assets.canvas, seen.output.grids)
                pointing.add(look, seen, row, best[-1], marked[number], canvases.originals[number], options.threshold)
            progress(len(seen.numbers))
        precision = average_precision(ranked, marked, classes)
        counts = confusion(best, marked, classes, threshold=options.threshold)
        bins, raw_bins = (
            calibration(scores, outcomes.right) for scores in (self.odds(outcomes.scores), outcomes.scores)
        )
        queries = self.config.model.num_queries
        right, given_boxes = int(np.trace(counts[:-1, :-1])), int(counts[:, :-1].sum())
        objects = int(counts[:-1].sum())
        metrics: dict[str, float | int] = {
            "images": len(marked),
            "unreadable": len(canvases.unreadable),
            "objects": objects,
            "beyond_queries": sum(max(0, int((~one.crowd).sum()) - queries) for one in marked),
            **dict.fromkeys(("ap", "ap50", "ap75"), 0.0),
            **precision.metrics(),
            "precision": right / given_boxes if given_boxes else 0.0,
            "recall": right / objects if objects else 0.0,
            "loss": total / count,
            "ece": expected_calibration_error(bins),
            "ece_uncalibrated": expected_calibration_error(raw_bins),
        }
        notes = {
            "ap_of": "as pycocotools: ap is the mean over ten thresholds of IoU (.50 to .95) and the classes that "
            "occur, ar_100 the recall of 100 boxes; small is below 32², medium below 96² pixels of the image itself",
            "precision_of": f"boxes of a probability of at least {options.threshold:g} (threshold) with an IoU of .5",
            **self.calibration_note(),
        }
        unknown = sum(one["label"] not in assets.labels for image in images for one in image.objects)
        if unknown:
            notes["unknown_labels"] = f"{unknown:,} objects have classes that were not trained, and are left out"
        metrics |= self._compared(marked, canvases, assets, notes)
        metrics |= pointing.metrics(notes)
        tables = _tables(assets.labels, precision.of_classes(), precision.objects[0].tolist(), counts.tolist())
        return Evaluation(metrics, notes, {**tables, "calibration": calibration_table(bins, "boxes")})

    def _compared(
        self, marked: Sequence[Marked], canvases: Canvases, assets: DetectAssets, notes: dict[str, str]
    ) -> dict[str, float]:
        """Return the average precision of the most frequent class at its mean boxes."""
        if self.baselines.keys() != self.baseline_types.keys() or self.baselines["label"] not in assets.labels:
            return {}
        label = assets.labels.index(self.baselines["label"])
        boxes = np.array(self.baselines["boxes"], np.float64)
        found = same_everywhere(boxes, label, [(int(high), int(wide)) for high, wide in canvases.originals])
        scores = average_precision(found, marked, len(assets.labels)).metrics()
        shown = f"{len(boxes)} box{'es' * (len(boxes) > 1)}"
        notes["baselines"] = f"mean_boxes_…: always {printable(self.baselines['label'])!r} at the mean boxes, {shown}"
        return {f"mean_boxes_{name}": scores.get(name, 0.0) for name in ("ap", "ap50")}

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the confusion, with what was missed and what is background."""
        from foci.viz.figure.heatmap import heatmap

        table = evaluation.tables["confusion"]
        counts = [list(row[1:]) for row in table.rows]
        heatmap(
            counts,
            path,
            rows=[str(row[0]) for row in table.rows],
            columns=list(table.columns[1:]),
            texts=[[str(count) for count in row] for row in counts],
            row_axis="class",
            column_axis="predicted",
            scale="objects",
        )


class _Seen(NamedTuple):
    """A batch that the model has read: the numbers of its images, the batch, the output, and the answers."""

    numbers: list[int]
    batch: DetectionBatch
    output: DetectorOutput
    answers: list[Answer]


def _seen(model: nn.Module, examples: DetectionExamples, batch_size: int) -> Iterator[_Seen]:
    """Yield all images in their order, ``batch_size`` at once, with what the model says of them."""
    device = next(model.parameters()).device
    for start in range(0, len(examples.canvases), batch_size):
        numbers: Indices = np.arange(start, min(start + batch_size, len(examples.canvases)))
        batch = on_device(examples.batch(numbers, [1]), device)
        output = model(batch.images, batch.sizes)
        yield _Seen(numbers.tolist(), batch, output, answers_of(model, output, examples.canvases.originals[numbers]))


class Pointing:
    """How much of the attention of queries lies in the objects that they have found."""

    def __init__(self) -> None:
        self.inside: list[float] = []
        self.chance: list[float] = []

    def add(
        self,
        look: Look,
        seen: _Seen,
        row: int,
        found: Found,
        marked: Marked,
        original: Any,
        threshold: float,
    ) -> None:
        """Count the queries of an image whose class and box are right, by their attention in the last layer."""
        names = [name for name in seen.output.attentions if name.endswith("cross")]
        pairs = matched(found, marked, threshold=threshold)
        right = [
            (int(query), int(place))
            for query, place in zip(pairs.boxes, pairs.objects)
            if place >= 0 and marked.labels[place] == found.labels[query]
        ]
        if not right or not names:
            return
        weights = seen.output.attentions[max(names)].dense()[row]
        height, width = (int(side) for side in original)
        for query, place in right:
            shares = (marked.boxes[place] / [width, height, width, height]).tolist()
            self.inside.append(share_inside(look.map(weights[:, query]), look.box(shares)))
            left, top, right_edge, bottom = shares
            self.chance.append((right_edge - left) * (bottom - top))

    def metrics(self, notes: dict[str, str]) -> dict[str, float]:
        """Return the means; nothing where no object was found."""
        if not self.inside:
            return {}
        notes["attention_of"] = (
            f"of {len(self.inside):,} objects that were found: the share of their query's attention, in the last "
            "layer, in their box; by chance the share of the picture that the box covers"
        )
        return {
            "attention_inside": float(np.mean(self.inside)),
            "attention_inside_by_chance": float(np.mean(self.chance)),
        }


def _trained_on(image: MarkedImage) -> list[Mapping[str, Any]]:
    """Return the objects of an image that are no crowds."""
    return [one for one in image.objects if not one.get("crowd")]


def _spread(images: Sequence[MarkedImage]) -> Sequence[MarkedImage]:
    """Return some images, of all of the data."""
    return images[:: max(1, len(images) // _MEASURED)]


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


def _crop(name: str, size: tuple[int, int], objects: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write the part of an image in each box to a file, whose name is added to the object."""
    from PIL import Image

    picture = read_scaled(name, size)
    if isinstance(picture, Unreadable):  # it was decoded a moment ago
        raise DataError(f"{picture}")
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^\w.-]+", "_", os.path.splitext(name)[0]).strip("_.")[-100:]
    for number, one in enumerate(objects, start=1):
        left, top, right, bottom = one["box"]
        rows = slice(math.floor(top), max(math.ceil(bottom), math.floor(top) + 1))
        columns = slice(math.floor(left), max(math.ceil(right), math.floor(left) + 1))
        label = re.sub(r"[^\w-]+", "_", one["label"])
        path = folder / f"{stem}-{number}-{label}.png"
        Image.fromarray(np.ascontiguousarray(picture.pixels[rows, columns])).save(path)
        one["crop"] = str(path)
