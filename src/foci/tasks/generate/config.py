"""Settings of text generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field

from foci.encodings import AUTO, Encoding
from foci.errors import ConfigError
from foci.files import FilePath
from foci.models.options.decoders import (
    LANGUAGE_MODEL_PRESETS,
    HistoryDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)
from foci.scripts import NormalForm
from foci.settings import Texts, settings
from foci.tasks.frame.config import Promise, TaskConfig, preset_by_kind
from foci.tasks.frame.data_settings import refuse_unused
from foci.training.options import TrainingOptions


@settings
class DataConfig:
    """The text: a file, a folder of files, or JSONL; without any, the Python language reference."""

    path: FilePath | None = None
    """A text file, a .jsonl file, or a folder of either (also .gz, .xz). Without data, the language reference that
    comes with Python is used."""
    columns: str = "text"
    """The field of a JSONL file that holds the text; each line is a document."""
    pattern: str = "*"
    """Which files of a folder are read, such as *.txt."""
    encoding: Encoding = AUTO
    """The encoding of the files. auto reads UTF-8, and UTF-16 and UTF-32 by their marks or zero bytes; others, such as
    gb18030 or cp1252, have to be named."""
    normalize: NormalForm = "nfc"
    """The normal form of all text where it enters: nfc (é is one character, however it is written),
    nfkc (also ﬁ is fi, and letters of full or half width are one), or none."""
    valid: FilePath | None = None
    """Held-out text in the same form, which decides which checkpoint is the best one."""
    test: FilePath | None = None
    """Held-out text in the same form, which `foci evaluate` uses."""
    valid_share: Annotated[float, Gt(0), Lt(1)] = 0.05
    """Without data.valid: the share of the documents, or of the passages of a single text, that validates."""
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.05
    """Without data.test: the share that is held out to evaluate, and never trained on."""
    split_seed: Annotated[int, Ge(0)] = 0
    """Another number holds other documents or passages out. Which ones depends on it and on their own text alone."""
    max_valid_characters: Annotated[int, Ge(1)] = 1_000_000
    """Characters of each held-out part that are used at most; what is held out beyond them is counted."""
    max_characters: Annotated[int, Ge(1)] | None = None
    """Characters that are read of each document; by default all."""
    context: Annotated[int, Ge(2), Le(1_000_000)] = 128
    """Tokens that the model reads at most before it predicts the next one."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Windows of that many tokens per step, over all processes."""
    stream: bool = False
    """For text larger than memory: read it from disk in every epoch, one buffer at a time."""
    stream_buffer: Annotated[int, Ge(1)] = 256
    """Pieces of about 64 kB of a stream that are held and shuffled at a time."""
    workers: Annotated[int, Ge(0)] = 0
    """Processes that prepare the batches of a stream ahead of time."""

    def __post_init__(self) -> None:
        refuse_unused(self, ("columns", "pattern", "encoding"))


@settings
class TokenizerConfig:
    """How text is split: learned from the training text and kept in the run."""

    kind: Literal["characters", "bpe", "unigram", "bytes", "words"] = "characters"
    """bpe and unigram learn subwords; they and bytes spell every text, characters and words only what was seen."""
    size: Annotated[int, Ge(5), Le(1_000_000)] = 8000
    """Largest size of the vocabulary."""


@settings
class TransformerModel(TransformerDecoderOptions):
    """A Transformer."""

    preset: Literal["tiny", "small", "gpt2"] = "tiny"
    """The sizes of the model by name."""


@settings
class RecurrentModel(RecurrentDecoderOptions):
    """An LSTM."""

    preset: Literal["tiny", "small"] = "tiny"
    """The sizes of the model by name."""


@settings
class HistoryModel(HistoryDecoderOptions):
    """An LSTM with attention over its own history."""

    preset: Literal["tiny", "small"] = "tiny"
    """The sizes of the model by name."""


ModelConfig = Annotated[TransformerModel | RecurrentModel | HistoryModel, Field(discriminator="kind")]


@settings
class GenerateConfig(TaskConfig):
    """All settings of a training."""

    flags = {
        "data": "data.path",
        "columns": "data.columns",
        "pattern": "data.pattern",
        "encoding": "data.encoding",
        "valid": "data.valid",
        "test": "data.test",
        "context": "data.context",
        "tokenizer": "tokenizer.kind",
        "model": "model.kind",
        "preset": "model.preset",
    }
    demo = {
        "data": {"context": 64},
        "training": {"max_steps": 1000, "learning_rate": 0.015, "eval_every": 500},
    }
    promise = Promise("bits_per_byte", 1.63, 0.06)
    smallest = {
        "data": {"max_characters": 200, "context": 19, "batch_size": 4, "test_share": 0.2},
        "model": {"model_dim": 16, "num_heads": 2, "hidden_dim": 24, "num_layers": 2},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = TransformerModel()
    training: TrainingOptions = TrainingOptions(
        max_steps=2000,
        optimizer="muon",
        learning_rate=0.01,
        betas=(0.9, 0.98),
        schedule="linear",
        warmup=50,
        eval_every=500,
    )

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        return preset_by_kind(model, LANGUAGE_MODEL_PRESETS, "transformer", "tiny")


@settings
class ContextOptions:
    """How much of the past each token is predicted from."""

    context: Annotated[int, Ge(2)] | None = None
    """Tokens that are read at most before the next one is predicted; by default those of the training."""
    stride: Annotated[int, Ge(1)] | None = None
    """Where the text is longer than the context: how far apart windows begin. Fewer are exacter and slower. Default:
    half the context."""

    def sizes(self, longest: int | None, trained: int) -> tuple[int, int]:
        """Return context and stride for a model that was trained with a context of this size.

        Raises:
            ConfigError: they do not fit the model, or each other.
        """
        context = trained if self.context is None else self.context
        stride = max(1, context // 2) if self.stride is None else self.stride
        if longest is not None and context > longest:
            raise ConfigError(f"context is {context}, expected at most the model's {longest} learned positions.")
        if stride >= context:
            raise ConfigError(f"stride is {stride}, expected less than the context of {context}.")
        return context, stride


@settings
class GenerateOptions(ContextOptions):
    """How text is generated."""

    max_new_tokens: Annotated[int, Ge(1)] = 200
    """Tokens that are produced at most."""
    temperature: Annotated[float, Ge(0), Le(1000)] = 0.8
    """1 draws from the model's distribution, less prefers the likely, 0 takes the likeliest token."""
    top_k: Annotated[int, Ge(1)] | None = None
    """Draw among this many likeliest tokens."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Draw among the fewest tokens whose probabilities add up to this."""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """Draw among the tokens that have at least this share of the likeliest token's probability."""
    repetition_penalty: Annotated[float, Gt(0), Le(1000)] = 1.0
    """Above 1 makes tokens that occur in the prompt or were produced already less likely."""
    stop: Texts = ()
    """The text ends before the first of these strings; several times."""
    n_best: Annotated[int, Ge(1)] = 1
    """How many texts are generated for each prompt."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the sampling; the same prompt and seed give the same text."""
    beam_size: Annotated[int, Ge(1)] = 1
    """Above 1: search for the likeliest text with this many hypotheses, instead of sampling."""
    length_penalty: Annotated[float, Ge(0), Le(100)] = 0.0
    """Of a beam search; above 0 favors longer texts."""
    score: bool = False
    """Produce nothing: give the log-probability of each token of the text."""

    def __post_init__(self) -> None:
        if self.beam_size > 1 and self.n_best > self.beam_size:
            raise ConfigError(f"n_best is {self.n_best}, expected at most beam_size={self.beam_size}. Raise beam_size.")
        if any(not text for text in self.stop):
            raise ConfigError("stop holds an empty text, expected strings of one character at least.")
