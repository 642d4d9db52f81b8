"""Settings of image classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt

from foci.files import MAX_PIXELS, FilePath
from foci.models.options.images import IMAGE_CLASSIFIER_PRESETS, ImageClassifierOptions
from foci.settings import settings
from foci.tasks.frame.class_folders import implied_parts
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import DATA_FLAGS, Columns, HeldOutData
from foci.tasks.frame.labels.options import LabelOptions
from foci.training.options import TrainingOptions

BUILT_IN = 4000
"""Number of drawn images to train on without data."""


@settings
class DataConfig(HeldOutData):
    """The images: a folder of classes, a CSV, TSV or JSONL file, or drawn ones."""

    path: FilePath | None = None
    """A folder with one folder of images per class, or with such folders in train, val and test; or a .csv, .tsv or
    .jsonl file that names images, relative to its folder. Without data, drawn images are used (builtin)."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many drawn images instead of a file: one shape on a noisy canvas, whose kind is the class."""
    valid_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Without data.valid: the share of the images that is held out to validate."""
    columns: Columns = ("image", "label")
    """Columns (by their names, or by their zero-based numbers) or fields of the image's file and its class."""
    image_size: Annotated[int, Ge(4)] = 32
    """Height and width that images are scaled to fit into."""
    max_pixels: Annotated[int, Ge(1)] = MAX_PIXELS
    """Images with more pixels are left out before they are decoded."""
    flip: bool = False
    """Mirror images at random in training, left and right."""
    shift: Annotated[int, Ge(0)] = 0
    """Move images at random in training, by up to this many pixels."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Images per batch."""


@settings
class ModelConfig(ImageClassifierOptions):
    """Which model."""

    preset: Literal["tiny", "base", "deep"] = "base"
    """The sizes of the model by name."""


@settings
class ClassifyImagesConfig(TaskConfig):
    """All settings of a training."""

    presets = IMAGE_CLASSIFIER_PRESETS
    flags = {
        **DATA_FLAGS,
        "size": "data.image_size",
        "attention": "model.block_attention",
        "preset": "model.preset",
    }
    demo = {
        "data": {"builtin": BUILT_IN},
        "model": {"preset": "tiny", "block_attention": "cbam"},
        "training": {"max_steps": 600, "learning_rate": 5e-3, "schedule": "cosine", "warmup": 30, "eval_every": 150},
    }
    promise = Promise("accuracy", 0.975, 0.025)
    smallest = {
        "data": {"builtin": 60, "image_size": 16, "batch_size": 20},
        "model": {"preset": "tiny", "hidden_dim": 16, "block_attention": "cbam", "num_stages": 2, "stride": 2},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingOptions = TrainingOptions(
        max_epochs=20, patience=8, warmup=50, eval_every=100, metric_for_best_model="calibrated_loss"
    )

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return what follows from a folder with parts, beside the preset."""
        return super().implied(tables) | implied_parts(tables)


@settings
class ClassifyImagesEvaluateOptions:
    """How classes are evaluated."""

    batch_size: Annotated[int, Ge(1)] = 64
    """Images that are classified at once."""


@settings
class ClassifyImagesOptions(ClassifyImagesEvaluateOptions, LabelOptions):
    """How images are classified."""
