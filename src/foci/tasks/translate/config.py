"""Settings of translation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from foci.errors import ConfigError
from foci.files import FilePath
from foci.models.options.decoders import ATTENDING
from foci.names import SCORE_ALIASES, settled
from foci.settings import merge, settings
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import DATA_FLAGS, Columns, HeldOutData
from foci.tasks.frame.search_options import SearchOptions
from foci.tasks.frame.seq2seq_config import Seq2SeqModelConfig, seq2seq_tables
from foci.training.options import TrainingOptions

LANGUAGES = "en-zh"
"""Locales of the built-in phrases to train on without data."""


@settings
class DataConfig(HeldOutData):
    """The sentence pairs: two aligned files, one table or JSONL file, or built-in phrases."""

    path: FilePath | None = None
    """The source sentences, one per line; or one .tsv, .csv or .jsonl file with both sides (also .gz, .xz). Without
    data, built-in phrases are used."""
    target: FilePath | None = None
    """The translations of the source sentences, one per line."""
    columns: Columns | None = None
    """Columns (numbers from 0, or names) of both sides in a table, or their fields in a JSONL file. Default: source and
    target, src and tgt, or two codes of languages, in JSON also inside of translation; else the first two columns."""
    valid_target: FilePath | None = None
    """The translations of data.valid, one per line."""
    test_target: FilePath | None = None
    """The translations of data.test, one per line."""
    links: FilePath | None = None
    """Links of words for guidance: a line for each pair of the data, such as 0-0 1-2 (Pharaoh's form, source first,
    words between spaces counted from 0), as `foci align` writes it. Default: foci aligns the training pairs itself."""
    valid_share: Annotated[float, Gt(0), Lt(1)] = 0.02
    """Without data.valid: the share of the pairs that is held out to validate; of more than 2,000, 2,000 are used."""
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.02
    """Without data.test: the share of the pairs that is held out to evaluate, and never trained on; none of a stream.
    """
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many built-in phrases instead: dates, amounts, units and lists in two languages, made by CLDR."""
    languages: str | None = None
    """Two locales, such as en-zh: those of the built-in phrases, whose default that is, or of the files, where the
    second one chooses BLEU's tokenizer."""
    batch_tokens: Annotated[int, Ge(1)] = 4096
    """Tokens per batch, padding included. Default: 4096, or less for less data, so that an epoch has some hundreds of
    batches."""
    max_length: Annotated[int, Ge(1)] = 200
    """Pairs with a side of more tokens are left out and counted."""
    stream: bool = False
    """For files larger than memory: read the training pairs from disk in every epoch, one buffer at a time."""
    stream_buffer: Annotated[int, Ge(1)] = 50_000
    """Pairs of a stream that are held and shuffled at a time."""


@settings
class TokenizerConfig:
    """How text is split: learned from the training pairs and kept in the run."""

    kind: Literal["bpe", "unigram", "characters", "words"] = "bpe"
    """bpe and unigram learn subwords; all kinds work in any script."""
    size: Annotated[int, Ge(5), Le(1_000_000)] = 8000
    """Largest size of the vocabulary. Default: 8000, or less for less data."""
    shared: bool = False
    """One vocabulary for both sides; the models can then share their embeddings."""


@settings
class GuidanceConfig:
    """The loss that leads an attention to the source along links of words (Chen 2016, Garg 2019)."""

    weight: Annotated[float, Ge(0), Le(1000)] = 0.0
    """How much the loss that leads an attention along links of words counts beside that of the tokens; 0 is none."""
    attention: str | None = None
    """The attention to the source by its name, such as decoder.0.cross. Default: the only one, or of several that of
    the layer before the last."""
    head: Annotated[int, Ge(0)] = 0
    """The head, zero-based, of an attention that has several."""
    shift: bool = False
    """Lead the step after a token, whose state has read the token, instead of the step that predicts it."""
    aligner_steps: Annotated[int, Ge(10)] = 800
    """Without data.links: how many steps foci's own aligners of words are trained, one in each direction."""


@settings
class TranslateConfig(TaskConfig):
    """All settings of a training."""

    flags = {
        **DATA_FLAGS,
        "target": "data.target",
        "valid-target": "data.valid_target",
        "test-target": "data.test_target",
        "links": "data.links",
        "guidance": "guidance.weight",
        "languages": "data.languages",
        "model": "model.kind",
        "preset": "model.preset",
    }
    suited = ("data.batch_tokens", "tokenizer.size", "model.encoder.norm", "model.decoder.norm", "training.warmup")
    demo = {
        "data": {"builtin": 20_000, "batch_tokens": 512},
        "tokenizer": {"kind": "words", "size": 4000},
        "model": {
            "kind": "rnn",
            "encoder": {"embedding_dim": 64, "hidden_dim": 128, "dropout": 0.05},
            "decoder": {"embedding_dim": 64, "hidden_dim": 128, "dropout": 0.05, "input_feeding": False},
        },
        "label_smoothing": 0.0,
        "training": {
            "max_steps": 3200,
            "learning_rate": 4e-3,
            "schedule": "cosine",
            "warmup": 100,
            "eval_every": 1000,
        },
    }
    promise = Promise("exact", 0.985, 0.015)
    smallest = {
        "data": {"builtin": 40, "languages": "en-de", "batch_tokens": 300},
        "tokenizer": {"kind": "characters", "size": 60},
        "model": {
            "kind": "rnn",
            "encoder": {"embedding_dim": 8, "hidden_dim": 16},
            "decoder": {"embedding_dim": 8, "hidden_dim": 16, "input_feeding": False},
        },
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: Seq2SeqModelConfig = Seq2SeqModelConfig()
    guidance: GuidanceConfig = GuidanceConfig()
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Share of the target probability that is distributed over all words."""
    training: TrainingOptions = TrainingOptions(
        max_epochs=40, patience=8, learning_rate=2e-3, schedule="inverse_sqrt", warmup=1000, eval_every=500
    )

    def __post_init__(self) -> None:
        # Two vocabularies that happen to be of one size would share a table in which an id has two meanings.
        if self.model.share_embeddings and not self.tokenizer.shared:
            raise ConfigError(
                "model.share_embeddings is true, but each side has a vocabulary of its own. Set tokenizer.shared=true."
            )
        if not self.guidance.weight:
            return
        if self.data.stream:
            raise ConfigError(
                "guidance.weight is set with data.stream, expected pairs that are held in memory, as their links are. "
                "Leave one of them out."
            )
        variant = getattr(self.model.decoder, "variant", None)
        if variant in ("sutskever", "cho"):
            raise ConfigError(
                f"guidance.weight is {self.guidance.weight}, but the decoder's variant {variant!r} has no attention "
                f"to lead. Choose one that has ({', '.join(ATTENDING)}), or leave guidance out."
            )

    def unused(self) -> Iterator[tuple[str, str]]:
        """Yield what has no effect without guidance."""
        yield from super().unused()
        if not self.guidance.weight:
            names = ("guidance.attention", "guidance.head", "guidance.shift", "guidance.aligner_steps", "data.links")
            yield from ((name, "guidance.weight") for name in names)
        elif self.data.links is not None:
            yield "guidance.aligner_steps", "foci's own links (no data.links)"

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return lower learning rates for some parameters.

        A score of `general` contains every product of a query's and a key's numbers, so a step of Adam in all of W
        changes it a lot; at the others' rate the softmax soon saturates on one word. The same holds for the sigmoid
        that predicts the center of local-p (docs/translate.md).
        """
        implied = super().implied(tables)
        model = merge(cls, {"model": implied["model"]}, {"model": tables.get("model", {})})["model"]
        decoder, attention = (model.get(name, {}) for name in ("decoder", "attention"))
        if decoder.get("kind") != "recurrent" or decoder.get("variant", "luong") not in ("bahdanau", "luong"):
            return implied
        default = "general" if attention.get("num_heads") is None else "scaled_dot"
        score = settled(attention.get("score", default), SCORE_ALIASES)
        slow = ["score.weight"] if score == "general" else []
        slow += ["focus.layer.weight", "focus.vector"] if attention.get("focus") == "local_p" else []
        return {**implied, "training": {"lr_multipliers": dict.fromkeys(slow, 1 / 16)}}

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        return seq2seq_tables(model, "transformer", "tiny")


@settings
class TranslateEvaluateOptions(SearchOptions):
    """How translations are searched for and compared."""

    lowercase: bool = False
    """Compare without case."""
    tokenize: str | None = None
    """sacrebleu's tokenizer (13a, zh, char, ja-mecab, …). Default: by the language of the translations
    (data.languages), or else by the script of the references."""


@settings
class AlignOptions:
    """Which weights are read as an alignment of words, and how."""

    attention: str | None = None
    """The attention to the source by its name, such as decoder.0.cross. Default: the only one, or of several that of
    the layer before the last; with a run of the other direction the one that agrees most."""
    head: Annotated[int, Ge(0)] | None = None
    """The head, zero-based. Default: the mean of all; with a run of the other direction what agrees most."""
    shift: bool = False
    """Read the step after a word, whose state has read the word, instead of the step that predicts it."""
    method: Literal["weights", "gradient"] = "weights"
    """weights, or gradient: weights × gradient of the log-probability of the target, where that is above 0."""
    threshold: Annotated[float, Gt(0), Lt(1)] | None = None
    """Link all words whose weight is above this. Default: each target word to the source word of its largest weight."""
    batch_tokens: Annotated[int, Ge(1)] = 2048
    """Tokens per batch, padding included."""
