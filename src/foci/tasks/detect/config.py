"""Settings of object detection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field

from foci.files import MAX_PIXELS, FilePath
from foci.models.options.detection import (
    DETECTOR_PRESETS,
    ConditionalAttentionOptions,
    CrossEntropyLossOptions,
    DeformableAttentionOptions,
    DetectorOptions,
    FocalLossOptions,
    MapOptions,
    PlainAttentionOptions,
    SmallMapOptions,
)
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig, kind_of
from foci.tasks.frame.data_settings import DATA_FLAGS, HeldOutData, OneOf, SixColumns
from foci.training.options import TrainingOptions

COLUMNS: tuple[OneOf, OneOf, OneOf, OneOf, OneOf, OneOf] = (
    ("image", "filename", "file_name", "path"),
    ("label", "class", "name"),
    ("left", "xmin", "x1"),
    ("top", "ymin", "y1"),
    ("right", "xmax", "x2"),
    ("bottom", "ymax", "y2"),
)
"""The columns of image, class and box: the first of these names that a table has."""
CrossAttentionOptions = PlainAttentionOptions | ConditionalAttentionOptions | DeformableAttentionOptions
BUILT_IN = 8000
"""Number of drawn scenes to train on without data."""


@settings
class DataConfig(HeldOutData):
    """Images with boxes around their objects: COCO, Pascal VOC, YOLO, JSONL or CSV, or drawn scenes."""

    path: FilePath | None = None
    """A COCO .json file; a folder of Pascal VOC, YOLO or COCO, with its parts where it has them; data.yaml; a .jsonl
    file with image and objects (label and box) in each line; or a .csv or .tsv file with a box in each row. Without
    data, drawn scenes are used (builtin)."""
    images: FilePath | None = None
    """The folder of the images. Default: the one near the annotations that has them."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many drawn scenes instead: one to five shapes on a noisy canvas."""
    valid_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Where the data has no such part: the share of the images that is held out to validate."""
    columns: SixColumns = COLUMNS
    """Of a table: the columns of image, label, left, top, right and bottom, by their names or by numbers from 0."""
    corners: Literal["auto", 0, 1] = "auto"
    """Of Pascal VOC: 1 if corners are pixels counted from 1, as it is specified, 0 if they are edges counted from 0.
    auto: as the boxes tell that touch an edge of their image."""
    image_size: Annotated[int, Ge(8)] | None = None
    """The longer side of images in pixels, to which they are scaled. Default: by the sizes of the objects."""
    max_pixels: Annotated[int, Ge(1)] = MAX_PIXELS
    """Images with more pixels are left out before they are decoded."""
    flips: Literal["none", "horizontal", "both"] = "horizontal"
    """Mirror images at random in training: left and right, or also top and bottom."""
    crop: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Cut off up to this share of the width and of the height at random in training."""
    scale: Annotated[float, Ge(0), Le(4)] = 0.25
    """Make images larger and smaller at random in training, by a factor of up to 1 + scale."""
    color: Annotated[float, Ge(0), Le(1)] = 0.2
    """Change contrast and the brightness of each color at random in training, by up to this share."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Images per batch."""


@settings
class ModelConfig(DetectorOptions):
    """Which model."""

    preset: Literal["tiny", "base", "deep"] = "base"
    """The sizes of the model by name; deep has a stage more, for objects of more than a hundred pixels."""
    encoder: Annotated[MapOptions, Field(discriminator="kind")] = SmallMapOptions()
    """The network that turns an image into a map."""
    attention: Annotated[CrossAttentionOptions, Field(discriminator="kind")] = DeformableAttentionOptions()
    """The attention from queries to the map."""
    loss: Annotated[FocalLossOptions | CrossEntropyLossOptions, Field(discriminator="kind")] = FocalLossOptions()
    """The loss, which also says what an answer is: a sigmoid per class, or a softmax with "no object"."""


@settings
class DetectConfig(TaskConfig):
    """All settings of a training."""

    presets = DETECTOR_PRESETS
    flags = {
        **DATA_FLAGS,
        "images": "data.images",
        "size": "data.image_size",
        "encoder": "model.encoder.kind",
        "attention": "model.attention.kind",
        "preset": "model.preset",
    }
    suited = (
        *("data.image_size", "model.num_queries", "model.encoder.stages"),
        *("training.schedule", "training.max_steps", "training.warmup"),
    )
    demo = {
        "data": {"builtin": BUILT_IN, "image_size": 64, "scale": 0.0, "color": 0.0},
        "model": {"num_queries": 16},
        "training": {"max_steps": 2200, "learning_rate": 3e-3, "schedule": "cosine", "warmup": 65, "eval_every": 550},
    }
    promise = Promise("ap50", 0.95, 0.05)
    smallest = {
        "data": {"builtin": 24, "image_size": 32, "batch_size": 8, "flips": "none", "scale": 0.0, "color": 0.0},
        "model": {"preset": "tiny", "num_queries": 6, "encoder": {"stages": (8, 16)}},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.01, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingOptions = TrainingOptions(
        max_epochs=60,
        patience=10,
        optimizer="adamw",
        learning_rate=2e-3,
        weight_decay=1e-4,
        warmup=65,
        eval_every=250,
        metric_for_best_model="ap",
        greater_is_better=True,
    )

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the preset; another kind of encoder has its own sizes."""
        kind, preset = kind_of(model, "encoder", "small"), super().model_preset(model)
        return preset if kind == "small" else {**preset, "encoder": {"kind": kind}}

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return what follows from data with parts, beside the preset."""
        if tables.get("data", {}).get("path") is None:
            return super().implied(tables)
        from foci.tasks.detect.reader import implied_parts  # which imports torch

        return super().implied(tables) | implied_parts(tables)


@settings
class DetectEvaluateOptions:
    """How boxes are evaluated."""

    threshold: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Boxes of at least this probability count in the confusion; average precision takes all."""
    mistakes: FilePath | None = None
    """Draw the worst mistakes beside the truth to this .png, .svg or .pdf file."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Images that are read at once."""


@settings
class DetectOptions:
    """Which boxes are given."""

    threshold: Annotated[float, Ge(0), Le(1)] = 0.5
    """Boxes of at least this probability are given; 0 gives one for each query."""
    crops: FilePath | None = None
    """Write the part of the picture in each box to a file of its own in this folder."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Images that are read at once."""
