"""Classification of images by a small residual network, with its attention to channels and places as maps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from foci.data.images.drawn import PREFIX, find_scene
from foci.data.images.files import Images, log_reduction, same_pixels
from foci.data.splits import Parts, file_key
from foci.encodings import AUTO
from foci.errors import ConfigError
from foci.metrics.boxes import area, points_at, share_inside
from foci.models.encoders.image_grid import as_shares
from foci.models.image_classifier import ImageClassifier, ImageClassifierOutput
from foci.probing.subject import Source
from foci.tasks.classify_images.config import (
    BUILT_IN,
    ClassifyImagesConfig,
    ClassifyImagesEvaluateOptions,
    ClassifyImagesOptions,
)
from foci.tasks.classify_images.reader import ImageExamples, LabeledImage, augmented, drawn_shapes, read_labeled_images
from foci.tasks.frame.assets import Assets, Labels
from foci.tasks.frame.class_folders import training_folder
from foci.tasks.frame.labels.task import Encoded, LabelTask, Scored
from foci.tasks.frame.probing.images import erasable_image
from foci.tasks.frame.task import Evaluation, Field, Log, Progress, Record, Splits, Table
from foci.training.objective import Loss
from foci.viz.regions import smooth
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

EVIDENCE = "evidence for the class"
"""The map of the class: what each region adds to its score."""


@dataclass(frozen=True)
class ClassifyImagesAssets(Assets):
    """The classes of a run."""

    labels: Labels


class ClassifyImages(LabelTask):
    """The image classification task."""

    name = "classify_images"
    Config = ClassifyImagesConfig
    Options = ClassifyImagesOptions
    EvaluateOptions = ClassifyImagesEvaluateOptions
    Assets = ClassifyImagesAssets
    Example = LabeledImage
    inputs = (Field("image", "image"),)
    targets = (Field("label", "label"),)
    noun = unit = "images"
    example = "an image"
    about = "content"
    builtin_sizes = (BUILT_IN, 200, 500)
    in_order = True

    config: ClassifyImagesConfig

    # ---- data

    def read_file(self, path: str, log: Log | None = None) -> list[LabeledImage]:
        """Read the names and classes of images; they are decoded when they are batched."""
        return read_labeled_images(path, columns=self.config.data.columns, log=log)

    def read_part(self, part: str, path: str, log: Log) -> list[LabeledImage]:
        """Read the images of a part; a folder may have one folder for each."""
        data = self.config.data
        if data.encoding != AUTO and all(os.path.isdir(one) for one in (data.path, data.valid, data.test) if one):
            raise ConfigError(
                f"data.encoding is {data.encoding!r}, but {data.path} is a folder of images, without text to decode. "
                "Leave data.encoding out."
            )
        return self.read_file(training_folder(path, log) if part == "train" else path, log)

    def split(self, examples: list[LabeledImage], log: Log) -> Parts:
        """Split the images, each once."""
        named: dict[str, LabeledImage] = {}
        for one in examples:
            named.setdefault(os.path.normpath(one.image), one)
        return super().split(list(named.values()), log)

    def key(self, example: LabeledImage) -> str:
        """Return the content of the image."""
        return file_key(example.image)

    def twins(self, examples: Sequence[LabeledImage]) -> list[str | None]:
        """Return the pixels of images that differ in their bytes alone."""
        return same_pixels([one.image for one in examples], max_pixels=self.config.data.max_pixels)

    def read_builtin(self, size: int, part: str) -> list[LabeledImage]:
        """Return drawn shapes, whose kind is the class."""
        return drawn_shapes(size, split=part, seed=self.config.data.split_seed)

    @property
    def batch_tokens(self) -> int:
        """Images of a batch: each counts as one token."""
        return self.config.data.batch_size

    # ---- model

    def assets(self, splits: Splits, log: Log) -> ClassifyImagesAssets:
        """List the classes, and log how much the images are reduced."""
        log_reduction([one.image for one in splits.train], self.config.data.image_size, log)
        return ClassifyImagesAssets(tuple(sorted({one.label for one in splits.train})))

    def model(self, assets: ClassifyImagesAssets) -> nn.Module:
        """Build the model for these classes."""
        return ImageClassifier(len(assets.labels), self.config.model)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Return the cross-entropy of the class; images are mirrored and moved at random in training."""
        images, labels = batch
        data = self.config.data
        images = augmented(images, flip=data.flip, shift=data.shift) if model.training else images
        return super().loss(model, (images, labels))

    # ---- examples and traces

    def encode(
        self, examples: Sequence[LabeledImage], labels: Sequence[int], assets: ClassifyImagesAssets, log: Log | None
    ) -> Encoded:
        """Decode the images."""
        data = self.config.data
        images = Images.load([one.image for one in examples], data.image_size, max_pixels=data.max_pixels, log=log)
        kept = np.array(images.kept, np.int64)
        missing = sorted({*range(len(examples))} - {*images.kept})
        unusable = dict(zip(missing, map(str, images.unreadable), strict=True))
        return Encoded(ImageExamples(images, labels), unusable=unusable, rows=lambda indices: kept[indices].tolist())

    maps = frozenset(("maps.0",))

    def erasable(
        self, encoded: Sequence[Any], trace: Trace, record: Record
    ) -> tuple[Sequence[Any], Mapping[str, Source]]:
        """Return the image and its regions."""
        values, regions = erasable_image(encoded[0], trace.axes["image"], record, lambda scene: [scene.shapes[0].box])
        return (values,), {"image": regions}

    def view(self, model: nn.Module, scored: Scored) -> ClassMaps:
        """Return the maps over the images of a batch."""
        return _maps(cast(ImageClassifier, getattr(model, "module", model)), scored.inputs[0], scored.output)

    def trace(self, view: ClassMaps, row: int, example: LabeledImage, label: str, probability: float) -> Trace:
        """Return the maps over the image, and the channels' weights of each block: as shares, and as applied."""
        axes = {
            "image": Axis.from_image(view.images[row].permute(1, 2, 0).numpy().copy(), view.grid),
            "maps": Axis.from_tokens(view.names, "maps"),
            "class": Axis.from_tokens([label], "class"),
        }
        handles = {"maps.0": Weights.from_tensor(view.maps[row : row + 1])}
        axes_of = {"maps.0": ("maps", "image")}
        applied = {}
        for block, weights in view.channels.items():
            key = f"channels of block {block}"
            axes[key] = Axis.numbered("channels", weights.shape[1], key)
            handles[key] = Weights.from_tensor((weights[row] / weights[row].sum().clamp_min(1e-12)).reshape(1, 1, -1))
            axes_of[key] = ("class", key)
            applied[key] = {"weight": weights[row : row + 1].numpy()}
        traced = Trace.from_handles(handles, axes, axes_of=axes_of, text=label, metadata={"probability": probability})
        attentions = {
            name: replace(attention, extras=applied.get(name, {})) for name, attention in traced.attentions.items()
        }
        return replace(traced, attentions=attentions)

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: ClassifyImagesAssets,
        records: Sequence[Record],
        options: ClassifyImagesEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return what every class is measured by; for drawn images also how well each map falls on the shape."""
        hits: dict[str, list[tuple[bool, float]]] = {}
        areas: list[float] = []

        def observe(view: ClassMaps, images: Sequence[LabeledImage]) -> None:
            size = view.images.shape[2]
            for row, one in enumerate(images):
                if one.image.startswith(PREFIX):
                    box = find_scene(one.image).shapes[0].box
                    areas.append(area(box))
                    for name, weights in zip(view.names, view.maps[row].numpy()):
                        spread = smooth(weights.reshape(view.grid), size, size)
                        hits.setdefault(name, []).append((points_at(spread, box), share_inside(spread, box)))

        evaluation = self.measure(model, assets, records, options, progress, observe)
        count = evaluation.metrics["images"]
        metrics = {**evaluation.metrics, "unreadable": len(records) - count}
        if len(areas) < count:
            return replace(evaluation, metrics=metrics)
        table = {name: [float(np.mean(column)) for column in zip(*each)] for name, each in hits.items()}
        metrics |= dict(zip(("evidence_pointing", "evidence_inside"), table[EVIDENCE]))
        rows = tuple((name, *row) for name, row in table.items())
        note = (
            "of weights above the smallest of the map; pointing: the largest lies in the shape's box; inside: the "
            f"share that lies in it, {np.mean(areas):.3f} by chance"
        )
        tables = {**evaluation.tables, "maps": Table(("map", "pointing", "inside"), rows)}
        return Evaluation(metrics, {**evaluation.notes, "maps": note}, tables)


class ClassMaps(NamedTuple):
    """A batch of images with maps over them on one grid.

    ``maps (B, L, S)`` are shares of the regions of ``grid``, and ``names`` their L names. ``channels`` are the weights
    ``(B, D)`` of channels as they were applied, by the number of their block.
    """

    images: UInt8[Tensor, "B 3 H W"]
    names: tuple[str, ...]
    grid: tuple[int, int]
    maps: Float[Tensor, "B L S"]
    channels: dict[str, Float[Tensor, "B D"]]


def _maps(model: ImageClassifier, images: Tensor, output: ImageClassifierOutput) -> ClassMaps:
    grid = coarse = model.encoder.grid(images.shape[2], images.shape[3])
    evidence = model.evidence(output.regions, output.logits.argmax(dim=-1)).clamp_min(0.0)
    maps = {EVIDENCE: Weights.from_tensor(evidence.reshape(len(images), 1, *coarse))}
    channels: dict[str, Tensor] = {}
    for name, handle in output.attentions.items():
        block, _, kind = name.partition(".")
        if kind == "channel":
            channels[block] = handle.dense().flatten(1).float().cpu()
        else:
            maps[f"block {block}, places"] = handle
            grid = max(grid, (handle.shape[2], handle.shape[3]))
    shares = as_shares([*maps.values()], grid).float().cpu()
    return ClassMaps(images, tuple(maps), grid, shares, channels)
