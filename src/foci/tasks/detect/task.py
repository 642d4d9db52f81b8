"""Object detection: boxes around the objects of an image with their classes, and where each was looked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

from pydantic import AfterValidator
from torch import nn

from foci.data import TokenBatches
from foci.data.images.canvases import Canvases, canvas_for
from foci.data.images.drawn import SIDE
from foci.data.images.files import Unreadable, read_scaled, same_pixels, sizes_of
from foci.data.splits import Parts, file_key
from foci.errors import ConfigError, DataError
from foci.metrics.calibration import Odds, fit_odds
from foci.metrics.detection import Found, Marked, average_precision
from foci.models.detector import Detector
from foci.printable import printable
from foci.tasks.detect.answers import Outcomes, Seen, details_of, given, read_all, said
from foci.tasks.detect.augment import augmented
from foci.tasks.detect.baseline import mean_boxes
from foci.tasks.detect.batches import DetectionBatch, DetectionExamples, marked_objects
from foci.tasks.detect.config import BUILT_IN, DetectConfig, DetectEvaluateOptions, DetectOptions
from foci.tasks.detect.crops import write_crops
from foci.tasks.detect.forms import BoxesForm, CocoForm
from foci.tasks.detect.looks import Objects, Shown, trace_of
from foci.tasks.detect.marked import MarkedImage
from foci.tasks.detect.measured import Measured
from foci.tasks.detect.reader import ReadImages, drawn_objects, read_marked_images
from foci.tasks.detect.set_loss import set_loss
from foci.tasks.detect.suits import spread, suited, trained_on
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.file_task import FileTask, log_labels, shortened
from foci.tasks.frame.prediction_loop import predict_in_batches
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
)
from foci.training.objective import Batches, Loss
from foci.viz.trace import Trace

_SHARP = 1024
"""The longest side of the picture of a trace."""


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
        return suited(list(splits.train), self.config)

    # ---- model

    def assets(self, splits: Splits, log: Log) -> DetectAssets:
        """List the classes, and choose the canvas by the proportions of the images."""
        labels = tuple(sorted({one["label"] for image in splits.train for one in trained_on(image)}))
        found = (sizes_of(one.image) for one in spread(list(splits.train)))
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
                trained = trained_on(image)
                boxes.append([[edge / side for edge, side in zip(one["box"], (width, height) * 2)] for one in trained])
                labels.append([one["label"] for one in trained])
        return mean_boxes(boxes, labels) if any(labels) else {}

    def batches(self, splits: Splits, assets: DetectAssets, shard: Shard, log: Log) -> Batches:
        """Decode and batch the training images."""
        train: list[MarkedImage] = list(splits.train)
        queries = self.config.model.num_queries
        if cut := sum(max(0, len(trained_on(image)) - queries) for image in train):
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
        for seen in read_all(model, held_out.examples, self.config.data.batch_size):
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

        def answer(seen: Seen) -> Iterator[Prediction]:
            for row, number in enumerate(seen.numbers):
                record = records[canvases.kept[number]]
                found = seen.answers[row].best(self.odds)
                height, width = canvases.originals[number].tolist()
                objects = details_of(found, assets.labels, options.threshold)
                if options.crops is not None:
                    write_crops(str(record["image"]), (height, width), objects, Path(options.crops))
                output = said(one["label"] for one in objects)
                name = str(record["image"])
                look = self._trace(seen, row, found, assets, options.threshold, canvases, name) if trace else None
                details = {"objects": objects, "size": [width, height]}
                yield Prediction(record, output, float(found.scores.max()), details, look)

        seen = read_all(model, examples, options.batch_size)
        return predict_in_batches(
            records,
            seen,
            answer,
            progress,
            unusable=unusable,
            numbers=lambda one: [canvases.kept[number] for number in one.numbers],
        )

    def _trace(
        self, seen: Seen, row: int, found: Found, assets: DetectAssets, least: float, canvases: Canvases, name: str
    ) -> Trace:
        """Return what the given boxes were found by, over the image of this name."""
        number = seen.numbers[row]
        height, width = canvases.originals[number].tolist()
        queries = given(found, least)
        objects = Objects(
            queries,
            [f"{assets.labels[int(found.labels[one])]} {found.scores[one]:.2f}" for one in queries],
            [(found.boxes[one] / [width, height, width, height]).tolist() for one in queries],
        )
        shown = Shown.of(assets.canvas, seen.output.grids, canvases.size(number))
        sides = (min(height, _SHARP), min(width, _SHARP))
        sharp = read_scaled(name, sides, max_pixels=self.config.data.max_pixels)
        picture = canvases.picture(number) if isinstance(sharp, Unreadable) else sharp.pixels
        text = said(assets.labels[int(found.labels[one])] for one in queries)
        return trace_of(shown, seen.output.attentions, row, objects, picture, text)

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
        if options.mistakes is not None:
            from foci.viz.figure.canvas import check_path

            check_path("mistakes", options.mistakes)
        images = [MarkedImage(str(record["image"]), list(record["objects"])) for record in records]
        held_out = self._held_out(images, assets)
        canvases = held_out.examples.canvases
        progress(len(canvases.unreadable))
        measured = Measured(self.odds, options.threshold)
        total = count = 0.0
        for seen in read_all(model, held_out.examples, options.batch_size):
            one = set_loss(seen.output, seen.batch.targets, self.config.model.loss)
            total, count = total + float(one.total), count + one.count
            measured.add(seen, [held_out.marked[number] for number in seen.numbers], assets.canvas)
            progress(len(seen.numbers))
        queries, known = self.config.model.num_queries, {*assets.labels}
        counts = {
            "unreadable": len(canvases.unreadable),
            "beyond_queries": sum(max(0, int((~one.crowd).sum()) - queries) for one in held_out.marked),
        }
        evaluation = measured.evaluation(assets.labels, {**counts, "loss": total / count}, self._always(assets))
        notes = {**evaluation.notes, **self.calibration_note()}
        if unknown := sum(one["label"] not in known for image in images for one in image.objects):
            notes["unknown_labels"] = f"{unknown:,} objects have classes that were not trained, and are left out"
        if options.mistakes is not None:
            names = [images[number].image for number in canvases.kept]
            measured.draw(options.mistakes, assets.labels, canvases, names)
        return replace(evaluation, notes=notes)

    def _always(self, assets: DetectAssets) -> tuple[int, list[Any]] | None:
        """Return what is compared with: the number of the most frequent class, and its mean boxes."""
        if self.baselines.keys() != self.baseline_types.keys() or self.baselines["label"] not in assets.labels:
            return None
        return assets.labels.index(self.baselines["label"]), list(self.baselines["boxes"])

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
