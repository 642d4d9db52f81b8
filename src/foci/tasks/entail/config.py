"""Settings of entailment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import Field

from foci.files import FilePath
from foci.models.options.words import ENTAILER_PRESETS, ConditionalEntailerOptions, DecomposableEntailerOptions
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig, preset_by_kind
from foci.tasks.frame.data_settings import DATA_FLAGS, ThreeColumns, WordData
from foci.tasks.frame.labels.options import LabelOptions
from foci.tasks.frame.vocabulary_settings import VectorVocabularyConfig
from foci.training.options import TrainingOptions

SPLIT = "SemEval_set"
"""SICK's column of splits."""
BUILT_IN = 6000
"""How many built-in pairs are trained on where no data is named."""


@settings
class DataConfig(WordData):
    """The pairs: a table, JSON lines, or built-in ones."""

    path: FilePath | None = None
    """A .tsv or .txt file (tabs), a .csv or a .jsonl file (also .gz, .xz), SNLI's, SICK's and OCNLI's included. Without
    data, built-in pairs are used (builtin)."""
    builtin: Annotated[int, Ge(3)] | None = None
    """Train on this many built-in pairs instead of a file: scenes in which words are replaced by what they are kinds
    of."""
    columns: ThreeColumns | None = None
    """Columns (by their names, or by their zero-based numbers) or fields of premise, hypothesis and label. Default:
    those of the common data sets, such as premise, sentence1 and sentence_A, or label and gold_label."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What labels of the files are called in foci, such as {"0" = "entailment"}; others keep their names."""
    split: str = SPLIT
    """Column or field that says which rows are for training, validation (dev, trial) and test, if the file has it."""
    language: str = "en"
    """The language of built-in pairs: en or zh."""
    hypothesis_only: bool = False
    """Train a baseline that does not read the premise: what the hypothesis alone tells about the label."""
    max_words: Annotated[int, Ge(1)] = 100
    """Only this many words of a sentence are read; sentences with more are counted."""
    batch_tokens: Annotated[int, Ge(1)] = 4096
    """Words per batch, padding included."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Pairs per batch."""


@settings
class ConditionalModel(ConditionalEntailerOptions):
    """A reader of both sentences, one after the other."""

    preset: Literal["tiny", "base", "rocktaschel"] = "base"
    """The sizes of the model by name."""


@settings
class DecomposableModel(DecomposableEntailerOptions):
    """A model that compares the words of both sentences."""

    preset: Literal["tiny", "base", "parikh"] = "base"
    """The sizes of the model by name."""


ModelConfig = Annotated[ConditionalModel | DecomposableModel, Field(discriminator="kind")]


@settings
class EntailConfig(TaskConfig):
    """All settings of a training."""

    flags = {
        **DATA_FLAGS,
        "language": "data.language",
        "hypothesis-only": "data.hypothesis_only",
        "model": "model.kind",
        "preset": "model.preset",
        "vectors": "vocabulary.vectors",
    }
    demo = {
        "data": {"builtin": BUILT_IN},
        "model": {
            "kind": "decomposable",
            "preset": "tiny",
            "difference": True,
            "product": True,
            "exact_match": True,
        },
        "training": {"max_steps": 1500, "learning_rate": 3e-3, "schedule": "cosine", "warmup": 50, "eval_every": 300},
    }
    promise = Promise("accuracy", 0.99, 0.01)
    smallest = {
        "data": {"builtin": 24, "batch_size": 24},
        "vocabulary": {"min_count": 1},
        "model": {"preset": "tiny", "embedding_dim": 16, "hidden_dim": 16, "attention": "two_way", "dropout": 0.0},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    vocabulary: VectorVocabularyConfig = VectorVocabularyConfig()
    model: ModelConfig = ConditionalModel()
    training: TrainingOptions = TrainingOptions(
        max_epochs=20, patience=8, warmup=50, eval_every=200, metric_for_best_model="calibrated_loss"
    )

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        return preset_by_kind(model, ENTAILER_PRESETS, "conditional", "base")


@settings
class EntailEvaluateOptions:
    """How labels are evaluated."""

    batch_tokens: Annotated[int, Ge(1)] = 8192
    """Words that are read at once, padding included."""


@settings
class EntailOptions(EntailEvaluateOptions, LabelOptions):
    """How pairs are labeled."""
