"""Settings of summarization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from foci.files import FilePath
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import DATA_FLAGS, Columns, WordData
from foci.tasks.frame.search_options import SearchOptions
from foci.tasks.frame.seq2seq_config import Seq2SeqModelConfig, seq2seq_tables
from foci.training.options import TrainingOptions


@settings
class DataConfig(WordData):
    """Texts with their summaries: two aligned files, one table or JSONL file, or built-in docstrings."""

    path: FilePath | None = None
    """The texts, one per line; or one .csv, .tsv or .jsonl file with texts and summaries (also .gz, .xz). Without
    data, the docstrings of Python's standard library are used."""
    target: FilePath | None = None
    """The summaries of the texts, one per line."""
    columns: Columns | None = None
    """Columns (names, or numbers from 0) of text and summary in a table, or their fields in a JSONL file, where the
    summary may be a list of references. Default: source and target."""
    references: tuple[int | str, ...] = ()
    """Columns or fields of further references, which only the evaluation uses."""
    valid_target: FilePath | None = None
    """The summaries of data.valid, one per line."""
    test_target: FilePath | None = None
    """The summaries of data.test, one per line."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on at most this many docstrings of the standard library instead, summarized by their first lines."""
    max_source: Annotated[int, Ge(1)] = 400
    """Only the first tokens of longer texts are read, this many; such texts are counted."""
    max_target: Annotated[int, Ge(1)] = 100
    """Longer summaries are cut to this many tokens in training; they are counted."""
    valid_decoded: Annotated[int, Ge(1)] = 200
    """How many validation texts are summarized, greedily, for the metric rouge1."""
    batch_tokens: Annotated[int, Ge(1)] = 8192
    """Tokens per batch, padding included."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Texts per batch."""


@settings
class TokenizerConfig:
    """How text is split: learned from the training texts and summaries, one vocabulary for both, kept in the run."""

    kind: Literal["bpe", "unigram", "characters", "words"] = "words"
    """With words, what is not in the vocabulary can be copied; all kinds work in any script."""
    size: Annotated[int, Ge(5), Le(1_000_000)] = 10_000
    """Largest size of the vocabulary."""
    lowercase: bool = False
    """Read and write small letters only. I becomes i, in Turkish too."""


@settings
class CoverageConfig:
    """The loss of attending again to what was attended to before (See 2017)."""

    weight: Annotated[float, Ge(0), Le(1000)] = 0.0
    """How much it counts beside the loss of the words; 0 is none. It may change when a run is resumed."""
    start: Annotated[int, Ge(0)] = 0
    """The first step that has this loss, for a last phase of the training."""


@settings
class SummarizeConfig(TaskConfig):
    """All settings of a training."""

    flags = {
        **DATA_FLAGS,
        "target": "data.target",
        "valid-target": "data.valid_target",
        "test-target": "data.test_target",
        "model": "model.kind",
        "preset": "model.preset",
    }
    demo = {
        "data": {"builtin": 4000, "max_source": 60, "max_target": 24, "batch_size": 32, "valid_decoded": 100},
        "tokenizer": {"size": 2500, "lowercase": True},
        "model": {
            "encoder": {"embedding_dim": 96, "hidden_dim": 128},
            "decoder": {"embedding_dim": 96, "hidden_dim": 128, "input_feeding": False},
        },
        "training": {
            "max_steps": 900,
            "learning_rate": 4e-3,
            "schedule": "cosine",
            "warmup": 50,
            "eval_every": 150,
            "metric_for_best_model": "rouge1",
        },
    }
    promise = Promise("rouge1", 26.0, 2.5)
    smallest = {
        "data": {
            "builtin": 40,
            "max_source": 24,
            "max_target": 8,
            "batch_tokens": 300,
            "batch_size": 12,
            "valid_decoded": 3,
        },
        "tokenizer": {"size": 120},
        "model": {
            "encoder": {"embedding_dim": 8, "hidden_dim": 16},
            "decoder": {"embedding_dim": 8, "hidden_dim": 16, "input_feeding": False},
        },
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: Seq2SeqModelConfig = Seq2SeqModelConfig()
    coverage: CoverageConfig = CoverageConfig()
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the target probability that is distributed over all words."""
    training: TrainingOptions = TrainingOptions(
        max_epochs=30, patience=6, learning_rate=2e-3, schedule="inverse_sqrt", warmup=200, eval_every=250
    )

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        return seq2seq_tables(model, "rnn", "pointer")


@settings
class SummarizeOptions(SearchOptions):
    """How summaries are searched for."""

    no_repeat_ngram: Annotated[int, Ge(0)] = 3
    min_length: Annotated[int, Ge(0)] = 1
    """Shortest summary in tokens."""
    max_length: Annotated[int, Ge(1)] | None = None
    """Longest summary in tokens; Default: data.max_target of the run."""
    batch_tokens: Annotated[int, Ge(1)] = 8192


@settings
class SummarizeEvaluateOptions(SummarizeOptions):
    """How summaries are searched for and compared."""

    stem: bool = False
    """Compare English words without their endings, by Porter's rules; needs nltk."""
    lead: Annotated[int, Gt(0)] = 1
    """Number of sentences of the baseline that takes the first ones."""
    extract: Annotated[int, Gt(0)] = 1
    """Largest number of sentences of the baseline that knows the references and takes the best ones."""
