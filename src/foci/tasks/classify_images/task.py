"""Classification of images by a small residual network, with its attention to channels and places as maps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foci.data import TokenBatches
from foci.data.images.drawn import PREFIX, find_scene
from foci.data.images.files import Images
from foci.data.splits import split
from foci.errors import ConfigError, DataError
from foci.metrics import labels as label_metrics
from foci.metrics.boxes import Box, area, points_at, share_inside
from foci.models.encoders.image_grid import as_shares
from foci.models.image_classifier import ImageClassifier, ImageClassifierOutput
from foci.printable import printable
from foci.tasks.classify_images.config import BUILT_IN, ClassifyImagesConfig, ClassifyImagesOptions
from foci.tasks.classify_images.reader import (
    ImageBatch,
    ImageExamples,
    LabeledImage,
    augmented,
    drawn_shapes,
    read_labeled_images,
)
from foci.tasks.frame.labels import (
    LABELS_FILE,
    draw_confusion,
    label_tables,
    labels_from,
    labels_text,
    log_labels,
    number_labels,
)
from foci.tasks.frame.task import Evaluation, Field, Log, Prediction, Progress, Record, Shard, Splits, Table, Task
from foci.training.objective import Batches, Loss
from foci.viz.regions import smooth
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

_VALID, _TEST = 200, 500
"""Numbers of drawn images for validation and evaluation."""
EVIDENCE = "evidence for the class"
"""The map of the class: what each region adds to its score."""


class Classes(NamedTuple):
    """The classes of a run."""

    labels: tuple[str, ...]

    def to_files(self) -> dict[str, str]:
        """Return them as JSON."""
        return {LABELS_FILE: labels_text(self.labels)}


class ClassifyImages(Task):
    """Classification of images as a task of the frame; see `foci.tasks.frame.task.Task`."""

    name: ClassVar[str] = "classify_images"
    Config: ClassVar[type[Any]] = ClassifyImagesConfig
    Options: ClassVar[type[Any]] = ClassifyImagesOptions
    EvaluateOptions: ClassVar[type[Any]] = ClassifyImagesOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("image", "image"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("label", "label"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    unit: ClassVar[str] = "images"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "accuracy": "higher",
        "macro_f1": "higher",
    }

    config: ClassifyImagesConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read and check the names of the images, and split them; they are decoded when they are batched."""
        data = self.config.data
        if data.path is None:
            return self._drawn(log)
        if data.drawn is not None:
            raise ConfigError("data: path and drawn are both set, expected one of them.")
        found = self._split(self._read(data.path, log))
        train = list(found.train)
        log_labels((one.label for one in train), "classes", log)
        first = train[0]
        log(
            f"{len(train):,} images to train on, {len(found.valid):,} to validate, {len(found.test):,} to "
            f"evaluate; the first is {printable(first.image)!r} → {printable(first.label)!r}"
        )
        return found

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read the names and classes of images in the form of the training data."""
        return [one._asdict() for path in paths for one in self._read(path)]

    def _read(self, path: str, log: Log | None = None) -> list[LabeledImage]:
        data = self.config.data
        return read_labeled_images(path, image=data.image, label=data.label, log=log)

    def _split(self, images: list[LabeledImage]) -> Splits:
        data = self.config.data
        folder = data.path if data.path is None or os.path.isdir(data.path) else os.path.dirname(data.path)
        named: dict[str, LabeledImage] = {}
        for one in images:  # by the names in the folder: moving it does not change the split
            drawn = one.image.startswith(PREFIX) or folder is None
            named.setdefault(one.image if drawn else os.path.relpath(one.image, folder or "."), one)
        chosen = split(
            named.items(),
            lambda one: one[0],
            lambda one: one[1].label,
            valid_share=0.0 if data.valid is not None else data.valid_share,
            test_share=0.0 if data.test is not None else data.test_share,
            seed=data.split_seed,
        )
        train, valid, test = ([one for _, one in some] for some in chosen)
        labels = sorted({one.label for one in train})
        if len(labels) < 2:
            raise DataError(
                f"{data.path}, line 1: all {len(train)} images are of the class {labels[0]!r}, expected at least two "
                "classes."
            )
        valid = valid if data.valid is None else self._read(data.valid)
        test = test if data.test is None else self._read(data.test)
        if not valid:
            raise DataError(
                f"{data.path}, line 1: of {len(images)} images none is left to validate. Give more of them, raise "
                f"data.valid_share = {data.valid_share}, or name data.valid."
            )
        for use, some in (("validate", valid), ("evaluate", test)):
            _numbers(some, labels, use)
        return Splits(train, valid, test)

    def _drawn(self, log: Log) -> Splits:
        data = self.config.data
        if data.drawn is None:
            log(f"no data is named: training on {BUILT_IN:,} drawn images (data.drawn)")
        sizes = {"train": data.drawn or BUILT_IN, "valid": _VALID, "test": _TEST}
        log(f"{sizes['train']:,} drawn images to train on, {_VALID} to validate, {_TEST} to evaluate")
        return Splits(*(drawn_shapes(size, split=split, seed=data.split_seed) for split, size in sizes.items()))

    def assets(self, splits: Splits, log: Log) -> Classes:
        """List the classes."""
        return Classes(tuple(sorted({one.label for one in splits.train})))

    def load_assets(self, read: Callable[[str], str]) -> Classes:
        """Read the classes."""
        return Classes(labels_from(read(LABELS_FILE)))

    def model(self, assets: Classes) -> nn.Module:
        """Build the model for these classes."""
        return self.config.model.build(len(assets.labels))

    def batches(self, splits: Splits, assets: Classes, shard: Shard, log: Log) -> Batches:
        """Decode and batch the training images; those that cannot be read are named and left out."""
        data = self.config.data
        return TokenBatches(
            self._examples(list(splits.train), assets, "train on", log),
            max_tokens=data.batch_size,
            seed=self.config.training.seed,
            workers=data.workers,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: Classes, log: Log) -> TokenBatches[ImageBatch]:
        """Decode and batch the validation images."""
        examples = self._examples(splits.valid, assets, "validate", log)
        return TokenBatches(examples, max_tokens=self.config.data.batch_size)

    def _examples(
        self, images: Sequence[LabeledImage], assets: Classes, use: str, log: Log | None = None
    ) -> ImageExamples:
        numbers = _numbers(images, assets.labels, use)
        loaded = self._load([one.image for one in images], log)
        if not len(loaded):
            raise DataError(f"none of the {len(images)} images to {use} can be read: {loaded.unreadable[0]}")
        return ImageExamples(loaded, numbers)

    def _load(self, names: Sequence[str], log: Log | None = None) -> Images:
        data = self.config.data
        return Images.load(names, data.image_size, max_pixels=data.max_pixels, log=log)

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: ImageBatch) -> Loss:
        """Return the cross-entropy of the class, summed over the images."""
        data = self.config.data
        images = augmented(batch.images, flip=data.flip, shift=data.shift) if model.training else batch.images
        logits = model(images).logits.float()
        right = (logits.argmax(dim=-1) == batch.labels).sum()
        return Loss(F.cross_entropy(logits, batch.labels, reduction="sum"), len(batch.labels), {"accuracy": right})

    def validate(self, model: nn.Module, held_out: TokenBatches[ImageBatch]) -> dict[str, float]:
        """Return nats per image, accuracy and macro F1."""
        loss, targets, predicted, classes = 0.0, [], [], 0
        device = next(model.parameters()).device
        for batch in held_out.epoch(0):
            logits: Tensor = model(batch.images.to(device)).logits.float()
            loss += float(F.cross_entropy(logits, batch.labels.to(device), reduction="sum"))
            targets += batch.labels.tolist()
            predicted += logits.argmax(dim=-1).tolist()
            classes = logits.shape[1]
        counts = label_metrics.confusion(targets, predicted, classes)
        return {
            "loss": loss / len(targets),
            "accuracy": label_metrics.accuracy(counts),
            "macro_f1": label_metrics.macro_f1(counts),
        }

    # ---- predictions

    def predict(
        self,
        model: nn.Module,
        assets: Classes,
        records: Sequence[Record],
        options: ClassifyImagesOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Classify; a trace has the maps of the class and of each block over the image, and the channels' weights."""
        found: list[Prediction] = []
        for start in range(0, len(records), options.batch_size):
            some = records[start : start + options.batch_size]
            loaded = self._load([record["image"] for record in some])
            reasons = {one.name: one.reason for one in loaded.unreadable}
            classified = _classified(model, loaded.pixels) if len(loaded) else None
            rows = {number: row for row, number in enumerate(loaded.kept)}
            for number, record in enumerate(some):
                if classified is None or number not in rows:
                    note = f"the image cannot be read, so nothing was predicted: {reasons[record['image']]}"
                    found.append(Prediction(record, "", None, {"notes": [note]}))
                    continue
                row = rows[number]
                shares = classified.probabilities[row]
                best = int(shares.argmax())
                traced = _trace(classified, row, loaded.pixels[row], assets.labels[best]) if trace else None
                details = {"probabilities": {label: float(share) for label, share in zip(assets.labels, shares)}}
                found.append(Prediction(record, assets.labels[best], float(shares[best]), details, traced))
            progress(len(some))
        return found

    def evaluate(
        self,
        model: nn.Module,
        assets: Classes,
        records: Sequence[Record],
        options: ClassifyImagesOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return accuracy, macro F1, nats per image, the confusion, and metrics of each class.

        For drawn images, whose shapes have known places, also how well each map falls on the shape.
        """
        numbers = _numbers([LabeledImage(one["image"], one["label"]) for one in records], assets.labels, "evaluate")
        loss, targets, predicted, skipped = 0.0, [], [], 0
        places = _Places()
        for start in range(0, len(records), options.batch_size):
            some = records[start : start + options.batch_size]
            loaded = self._load([record["image"] for record in some])
            skipped += len(loaded.unreadable)
            if len(loaded):
                classified = _classified(model, loaded.pixels)
                gold = [numbers[start + number] for number in loaded.kept]
                loss -= float(np.log(classified.probabilities[np.arange(len(gold)), gold].clip(1e-30)).sum())
                targets += gold
                predicted += classified.probabilities.argmax(axis=1).tolist()
                places.add(classified, [some[number]["image"] for number in loaded.kept], loaded.pixels.shape[1])
            progress(len(some))
        if not targets:
            raise DataError(f"evaluate: none of the {len(records)} images can be read.")
        counts = label_metrics.confusion(targets, predicted, len(assets.labels))
        metrics: dict[str, float | int] = {
            "images": len(targets),
            "unreadable": skipped,
            "accuracy": label_metrics.accuracy(counts),
            "macro_f1": label_metrics.macro_f1(counts),
            "loss": loss / len(targets),
        }
        tables = label_tables(assets.labels, counts, kind="class", unit="images")
        notes: dict[str, str] = {}
        if places.images == len(targets):
            metrics |= {"evidence_pointing": places.pointing(EVIDENCE), "evidence_inside": places.inside(EVIDENCE)}
            tables["maps"] = places.table()
            notes["maps"] = (
                "of weights above the smallest of the map; pointing: the largest lies in the shape's box; inside: the "
                f"share that lies in it, {places.area():.3f} by chance"
            )
        return Evaluation(metrics, notes, tables)

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the confusion."""
        draw_confusion(evaluation.tables["confusion"], path, kind="class", unit="images")


def _numbers(images: Sequence[LabeledImage], labels: Sequence[str], use: str) -> list[int]:
    return number_labels((one.label for one in images), labels, "an image", use)


class _Classified(NamedTuple):
    """A batch of images that was classified: probabilities, and maps over the image on one grid.

    ``maps (B, L, S)`` are shares of the regions of ``grid``, and ``names`` their L names. ``channels`` are the weights
    ``(B, D)`` of channels as they were applied, by the number of their block.
    """

    probabilities: Float[NDArray[np.float32], "B C"]
    names: tuple[str, ...]
    grid: tuple[int, int]
    maps: Float[Tensor, "B L S"]
    channels: dict[str, Float[Tensor, "B D"]]


def _classified(model: nn.Module, pixels: UInt8[NDArray[np.uint8], "B H W 3"]) -> _Classified:
    device = next(model.parameters()).device
    images = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).to(device)
    classified: ImageClassifierOutput = model(images)
    probabilities = classified.logits.float().softmax(dim=-1)
    classifier = cast(ImageClassifier, getattr(model, "module", model))
    coarse = classifier.encoder.grid(images.shape[2], images.shape[3])
    evidence = classifier.evidence(classified.regions, classified.logits.argmax(dim=-1)).clamp_min(0.0)
    maps = {EVIDENCE: Weights.from_tensor(evidence.reshape(len(images), 1, *coarse))}
    channels: dict[str, Tensor] = {}
    grid = coarse
    for name, handle in classified.attentions.items():
        block, _, kind = name.partition(".")
        if kind == "channel":
            channels[block] = handle.dense().flatten(1).float().cpu()
        else:
            maps[f"block {block}, places"] = handle
            grid = max(grid, (handle.shape[2], handle.shape[3]))
    shares = as_shares([*maps.values()], grid).float().cpu()
    return _Classified(probabilities.cpu().numpy(), tuple(maps), grid, shares, channels)


def _trace(classified: _Classified, row: int, image: NDArray[np.uint8], label: str) -> Trace:
    """The maps over the image, and the channels' weights of each block: as shares, and as they were applied."""
    axes = {
        "image": Axis.from_image(np.array(image), classified.grid),
        "maps": Axis.from_tokens(classified.names, "maps"),
        "class": Axis.from_tokens([label], "class"),
    }
    handles = {"maps.0": Weights.from_tensor(classified.maps[row : row + 1])}
    axes_of = {"maps.0": ("maps", "image")}
    for block, weights in classified.channels.items():
        key = f"channels of block {block}"
        axes[key] = Axis.numbered("channels", weights.shape[1], key)
        handles[key] = Weights.from_tensor((weights[row] / weights[row].sum().clamp_min(1e-12)).reshape(1, 1, -1))
        axes_of[key] = ("class", key)
    share = float(classified.probabilities[row].max())
    traced = Trace.from_handles(handles, axes, axes_of=axes_of, text=label, metadata={"probability": share})
    applied = {
        f"channels of block {block}": {"weight": weights[row : row + 1].numpy()}
        for block, weights in classified.channels.items()
    }
    attentions = {
        name: replace(attention, extras=applied.get(name, {})) for name, attention in traced.attentions.items()
    }
    return replace(traced, attentions=attentions)


class _Places:
    """How well maps fall on shapes whose places are known."""

    def __init__(self) -> None:
        self.images = 0
        self._hits: dict[str, list[tuple[bool, float]]] = {}
        self._areas: list[float] = []

    def add(self, classified: _Classified, names: Sequence[str], size: int) -> None:
        """Count the maps of drawn images."""
        for row, name in enumerate(names):
            if not name.startswith(PREFIX):
                continue
            self.images += 1
            box: Box = find_scene(name).shapes[0].box
            self._areas.append(area(box))
            for called, weights in zip(classified.names, classified.maps[row].numpy()):
                spread = smooth(weights.reshape(classified.grid), size, size)
                hit = points_at(spread, box), share_inside(spread, box)
                self._hits.setdefault(called, []).append(hit)

    def pointing(self, name: str) -> float:
        """Return the share of images in which the largest weight of a map lies on the shape."""
        return float(np.mean([hit for hit, _ in self._hits[name]]))

    def inside(self, name: str) -> float:
        """Return the mean share of a map's weights on the shape."""
        return float(np.mean([inside for _, inside in self._hits[name]]))

    def area(self) -> float:
        """Return the mean share of the image that the shape's box covers."""
        return float(np.mean(self._areas))

    def table(self) -> Table:
        """Return a row for each map."""
        rows = tuple((name, self.pointing(name), self.inside(name)) for name in self._hits)
        return Table(("map", "pointing", "inside"), rows)
