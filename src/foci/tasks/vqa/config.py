"""Settings of visual question answering."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le, Lt

from foci.files import MAX_PIXELS, FilePath
from foci.models.options.images import IMAGE_ANSWERER_PRESETS, ImageAnswererOptions
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import DATA_FLAGS, ThreeColumns, WordData
from foci.tasks.frame.labels.options import LabelOptions
from foci.tasks.frame.vocabulary_settings import BucketVocabularyConfig
from foci.training.options import TrainingOptions

BUILT_IN = 3000
"""Number of drawn scenes to train on without data."""


@settings
class DataConfig(WordData):
    """The questions: a JSONL, TSV or CSV file, or questions about drawn scenes."""

    path: FilePath | None = None
    """A .jsonl, .tsv or .csv file (also .gz, .xz) of image, question and answer; images are named relative to its
    folder. Without data, questions about drawn scenes are used (builtin)."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on questions about this many drawn scenes instead of a file: two or three colored shapes on a noisy
    canvas."""
    valid_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Without data.valid: the share of the images whose questions are held out to validate."""
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Without data.test: the share of the images whose questions are held out to evaluate, and never trained on."""
    columns: ThreeColumns = ("image", "question", "answer")
    """Columns (by their names, or by their zero-based numbers) or fields of image, question and answer."""
    language: Literal["en", "zh"] = "en"
    """The language of questions about drawn scenes."""
    image_size: Annotated[int, Ge(4)] = 48
    """Height and width that images are scaled to fit into."""
    max_pixels: Annotated[int, Ge(1)] = MAX_PIXELS
    """Images with more pixels are left out before they are decoded."""
    max_words: Annotated[int, Ge(1)] = 50
    """Only this many words of a question are read."""
    max_answers: Annotated[int, Ge(2)] = 1000
    """Only questions with one of this many most frequent answers are trained on; the others are counted."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Images per batch, each with up to 16 of its questions."""


@settings
class VqaVocabularyConfig(BucketVocabularyConfig):
    """The words with their own vector: counted in the training questions and kept in the run."""

    size: Annotated[int, Ge(1), Le(10_000_000)] = 10_000
    buckets: Annotated[int, Ge(1), Le(10_000_000)] = 50


@settings
class ModelConfig(ImageAnswererOptions):
    """Which model."""

    preset: Literal["tiny", "base", "yang"] = "base"
    """The sizes of the model by name."""


@settings
class VqaConfig(TaskConfig):
    """All settings of a training."""

    presets = IMAGE_ANSWERER_PRESETS
    flags = {
        **DATA_FLAGS,
        "language": "data.language",
        "size": "data.image_size",
        "hops": "model.num_hops",
        "preset": "model.preset",
    }
    demo = {
        "data": {"builtin": BUILT_IN},
        "model": {"preset": "tiny", "fusion": "product", "encoder": {"hidden_dim": 64}},
        "training": {
            "max_steps": 1800,
            "optimizer": "muon",  # with adam, which step finds the shapes hangs on the seed
            "learning_rate": 0.01,
            "schedule": "cosine",
            "warmup": 50,
            "eval_every": 300,
        },
    }
    promise = Promise("accuracy", 0.97, 0.03)
    smallest = {
        "data": {"builtin": 12, "image_size": 16, "batch_size": 4},
        "vocabulary": {"min_count": 1, "buckets": 10},
        "model": {"preset": "tiny", "hidden_dim": 16, "encoder": {"hidden_dim": 8, "num_stages": 2}},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    vocabulary: VqaVocabularyConfig = VqaVocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingOptions = TrainingOptions(
        max_epochs=20, patience=8, warmup=50, eval_every=200, metric_for_best_model="calibrated_loss"
    )


@settings
class VqaEvaluateOptions:
    """How answers are evaluated."""

    batch_size: Annotated[int, Ge(1)] = 32
    """Images whose questions are answered at once."""


@settings
class VqaOptions(VqaEvaluateOptions, LabelOptions):
    """How questions are answered."""
