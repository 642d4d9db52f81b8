"""What a training of a translator can be told, and the sentence pairs it is told of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from foci.data import Pair, check, open_corpus
from foci.errors import ConfigError, DataError
from foci.models import seq2seq_conv, seq2seq_rnn, transformer
from foci.tasks import config as configs
from foci.tasks.runs import Say
from foci.training import TrainingOptions


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The sentence pairs: two aligned files, one TSV or JSONL file, or the built-in phrasebook."""

    source: str | None = None
    """The source sentences, one a line; or a TSV or JSONL file with both sides. May be .gz or .xz."""
    target: str | None = None
    """Their translations, one a line."""
    fields: tuple[int | str, int | str] | None = None
    """Columns (from 0) or names of both sides in a TSV or JSONL file."""
    valid_source: str | None = None
    """The same for the held-out pairs, which decide which checkpoint is the best one."""
    valid_target: str | None = None
    """Their translations."""
    valid_share: float = 0.02
    """Without such files: the share of the pairs that is held out, at most 2,000 pairs."""
    phrasebook: str | None = None
    """Two locales, such as en-zh: dates, amounts, units and lists in both languages, made by CLDR, no file needed."""
    phrasebook_size: int = 20_000
    """How many pairs of the phrasebook are made for training."""
    max_tokens: int = 4096
    """Tokens in a batch, padding included."""
    max_length: int = 200
    """Pairs with a side of more tokens are left out; how many there are is told, unless they are streamed."""
    workers: int = 0
    """Processes that make batches ahead of time."""
    stream: bool = False
    """For files larger than memory: read the training pairs from disk, a buffer at a time, in every epoch anew."""
    stream_buffer: int = 50_000
    """How many pairs of a stream are held, and shuffled, at a time."""


@dataclass(frozen=True, kw_only=True)
class TokeniserConfig:
    """How text is cut: learned from the training pairs and kept in the run."""

    kind: Literal["bpe", "unigram", "characters", "words"] = "bpe"
    """bpe and unigram learn subwords; all of them work in any script."""
    size: int = 8000
    """Entries of the vocabulary at most."""
    shared: bool = False
    """One vocabulary for both sides; the models can then share their embeddings."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(configs.ModelChoice):
    """Which model: a kind, a preset of sizes, and any option of the model's class."""

    models = {  # noqa: RUF012 (a ClassVar, as the base has it)
        "transformer": (transformer.Transformer, transformer.PRESETS),
        "rnn": (seq2seq_rnn.RecurrentSeq2Seq, seq2seq_rnn.PRESETS),
        "conv": (seq2seq_conv.ConvSeq2Seq, seq2seq_conv.PRESETS),
    }

    kind: str = "transformer"
    preset: str = "tiny"


@dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """Everything about a training of a translator."""

    task: Literal["translate"] = "translate"
    data: DataConfig = field(default_factory=DataConfig)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    label_smoothing: float = 0.1
    """Share of the target probability that is spread over all words."""
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            max_epochs=40, patience=8, learning_rate=2e-3, schedule="inverse_sqrt", warmup=1000, valid_every=500
        )
    )

    @classmethod
    def from_table(cls, table: Mapping[str, Any], origin: str, path: str) -> TranslateConfig:
        """What is not set of the training comes from the defaults above."""
        names = ("task", "data", "tokeniser", "model", "label_smoothing", "training")
        configs.check_names(table, names, origin, path)
        configs.check_task(table, "translate", origin)
        defaults = cls()
        smoothing = table.get("label_smoothing", defaults.label_smoothing)
        if not isinstance(smoothing, int | float) or not 0 <= smoothing < 1:
            raise ConfigError(f"{origin}: label_smoothing is {smoothing!r}, expected a number from 0 to below 1.")
        model = ModelConfig.from_table(table.get("model", {}), origin, "model")
        training = replace(defaults.training, rates=_rates(model))
        return cls(
            data=configs.build(DataConfig, table.get("data", {}), origin, "data"),
            tokeniser=configs.build(TokeniserConfig, table.get("tokeniser", {}), origin, "tokeniser"),
            model=model,
            label_smoothing=float(smoothing),
            training=configs.training_options(training, table.get("training", {}), origin),
        )


_SLOW = 1 / 16


def _rates(model: ModelConfig) -> dict[str, float]:
    """Which parameters learn slower than the others.

    Every product of a query's and a key's numbers is in a score of `general`, so an even step of Adam in all of W
    moves it far; at the others' rate the softmax is soon stuck on one word. So is the sigmoid that says where local-p
    looks (docs/translate.md).
    """
    options = model.resolved
    if model.kind != "rnn" or options.get("decoder", "luong") not in ("bahdanau", "luong"):
        return {}
    slow = ["score.weight"] if options.get("score", "general") == "general" else []
    slow += ["focus.layer.weight", "focus.vector"] if options.get("focus") == "local_p" else []
    return dict.fromkeys(slow, _SLOW)


class Corpora(NamedTuple):
    """Sentence pairs to learn from, and others to judge by."""

    train: Iterable[Pair]
    """A list, or a reader that goes through the files again and again."""
    valid: Sequence[Pair]


def read_corpora(data: DataConfig, seed: int, say: Say) -> Corpora:
    """Read and check everything before any training starts."""
    if data.stream and data.phrasebook is not None:
        raise ConfigError("data.stream is for files; a phrasebook is made in memory. Leave one of them out.")
    if data.phrasebook is not None:
        from foci.data.phrasebook import phrasebook

        if data.source is not None:
            raise ConfigError("data: phrasebook and source are both set, expected one of them.")
        source, dash, target = data.phrasebook.partition("-")
        if not dash:
            raise ConfigError(f"data.phrasebook is {data.phrasebook!r}, expected two locales, as in en-zh.")
        train = phrasebook(source, target, split="train", size=data.phrasebook_size, seed=seed)
        return Corpora(train, phrasebook(source, target, split="valid", size=500, seed=seed))
    if data.source is None:
        raise ConfigError("data.source is not set. Name your sentences (--source, --target), or data.phrasebook=en-zh.")
    if data.stream and data.valid_source is None:
        raise ConfigError(
            "data.stream is set, but not data.valid_source: a stream is not held in memory, so no part of it can be "
            "held out. Name held-out pairs in files of their own."
        )
    if data.stream and data.max_length > data.max_tokens:
        raise ConfigError(
            f"data.max_length is {data.max_length}, more than data.max_tokens = {data.max_tokens}: a pair of a stream "
            "may then fit in no batch, which would be seen only when it comes. Lower the one or raise the other."
        )
    reader = open_corpus(data.source, data.target, fields=data.fields)
    check(reader)
    valid = None
    if data.valid_source is not None:
        held_out_reader = open_corpus(data.valid_source, data.valid_target, fields=data.fields)
        check(held_out_reader)
        valid = list(held_out_reader)
        if data.stream:
            return Corpora(reader, valid)
    train = list(reader)
    if valid is not None:
        return Corpora(train, valid)
    held_out = min(2000, max(1, round(data.valid_share * len(train))))
    if len(train) < 2:
        raise DataError(f"{data.source}: one sentence pair is too few: some are held out to judge by.")
    say(f"no data.valid_source: {held_out} of {len(train)} pairs are held out to judge by")
    order = np.random.default_rng(seed).permutation(len(train))
    return Corpora([train[i] for i in order[held_out:]], [train[i] for i in order[:held_out]])
