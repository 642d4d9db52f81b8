"""Settings of sequence labeling."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le

from foci.files import FilePath
from foci.models.options.words import TAGGER_PRESETS, TaggerOptions
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import DATA_FLAGS, Columns, Names, WordData
from foci.tasks.frame.vocabulary_settings import VectorVocabularyConfig
from foci.training.options import TrainingOptions

BUILT_IN = 4000
"""How many built-in sentences are trained on where no data is named."""


@settings
class DataConfig(WordData):
    """The sentences: a file or folder, or built-in ones."""

    path: FilePath | None = None
    """A .jsonl file of texts with spans or of words with tags (spaCy, doccano, CLUENER, Hugging Face), a .conllu file,
    a file with one word per line and columns, or a folder with seq.in and seq.out (also .gz, .xz). Without data, built-
    in sentences are used."""
    tags: FilePath | None = None
    """A file with the tags of each line of path, which then has one sentence per line."""
    intents: FilePath | None = None
    """A file with the intent of each line of path; only together with tags."""
    columns: Columns = (0, -1)
    """Columns of the words and of the tags in a file with columns: zero-based, or from the end (-1 is the last one). In
    CoNLL-U the words have a column of their own, and that of the tags may be its name; upos is the default. In JSON,
    the fields of words and tags where both are texts."""
    tag_names: Names = ()
    """What the numbers of ner_tags and similar fields of JSON stand for, in their order; on the command line with
    commas between them."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many built-in sentences instead: dates, amounts, units and lists in carrier sentences."""
    language: str = "en"
    """The language of built-in sentences: any locale of CLDR, such as en, de, zh or ar."""
    max_words: Annotated[int, Ge(1)] = 250
    """Longer sentences are not trained on; they are counted."""
    batch_tokens: Annotated[int, Ge(1)] = 4096
    """Words per batch, padding included."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Sentences per batch."""


@settings
class TaggingConfig:
    """How spans become tags, and what is minimized."""

    scheme: Literal["BIO", "BIOES"] = "BIO"
    """The scheme that spans are predicted in, whichever one the files are in. Plain tags need none."""
    constrained: bool = True
    """Forbid the tag sequences that the scheme does not allow, in training and in predictions."""
    intent_weight: Annotated[float, Ge(0), Le(1000)] = 1.0
    """The weight of the intent's loss beside that of the tags."""


@settings
class TagVocabularyConfig(VectorVocabularyConfig):
    """Which words have a learned vector of their own: counted in the training sentences and kept in the run."""

    lowercase: bool = True
    """Whether "The" is "the"; the letters of a word are read as they are. I becomes i, in Turkish too."""


@settings
class ModelConfig(TaggerOptions):
    """Which model."""

    preset: Literal["tiny", "base"] = "base"
    """The sizes of the model by name."""


@settings
class TagConfig(TaskConfig):
    """All settings of a training."""

    presets = TAGGER_PRESETS
    flags = {
        **DATA_FLAGS,
        "tags": "data.tags",
        "intents": "data.intents",
        "language": "data.language",
        "words": "data.words",
        "encoder": "model.encoder",
        "output": "model.output",
        "preset": "model.preset",
        "vectors": "vocabulary.vectors",
    }
    demo = {
        "data": {"builtin": BUILT_IN},
        "model": {"preset": "tiny"},
        "training": {"max_steps": 600, "learning_rate": 4e-3, "schedule": "cosine", "warmup": 30, "eval_every": 150},
    }
    suited = ("training.schedule", "training.max_steps", "training.warmup")
    promise = Promise("f1", 0.99, 0.01)
    smallest = {
        "data": {"builtin": 60, "batch_size": 16},
        "vocabulary": {"min_count": 1},
        "model": {"preset": "tiny", "embedding_dim": 16, "hidden_dim": 16},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    tagging: TaggingConfig = TaggingConfig()
    vocabulary: TagVocabularyConfig = TagVocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingOptions = TrainingOptions(
        max_epochs=30,
        patience=10,
        learning_rate=3e-3,
        warmup=50,
        eval_every=200,
        metric_for_best_model="f1",
        greater_is_better=True,
    )


@settings
class SpanOptions:
    """Which spans are given."""

    threshold: Annotated[float, Ge(0), Le(1)] = 0.0
    """Leave out spans whose probability, given the sentence, is lower."""
    select: Literal["sequence", "probability"] = "sequence"
    """Which spans are given: those of the best tag sequence, or all that reach the threshold, of overlapping ones the
    most probable; the latter finds spans that a cautious tagger leaves out."""
    batch_tokens: Annotated[int, Ge(1)] = 8192
    """Words that are read at once, padding included."""


@settings
class TagOptions(SpanOptions):
    """How sentences are tagged."""

    n_best: Annotated[int, Ge(1)] = 1
    """How many tag sequences are given, best first, each with its probability."""


@settings
class TagEvaluateOptions(SpanOptions):
    """How tags are evaluated."""

    bins: Annotated[int, Ge(1)] = 10
    """Rows of the calibration table."""
