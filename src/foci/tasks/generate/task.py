"""Text generation: a language model trained on plain text; each produced token shows what it read of its past."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
from torch import nn

from foci.data import PAD, StreamBatches, Tokenizer
from foci.errors import ConfigError, DataError
from foci.layers.token_loss import Targets, TokenLoss
from foci.metrics.likelihood import Likelihood, TextSize
from foci.models.language_model import LanguageModel, build_language_model
from foci.tasks.frame.assets import TokenizerAssets
from foci.tasks.frame.data_settings import shares_of
from foci.tasks.frame.probing.traces import TracedPass
from foci.tasks.frame.task import (
    Evaluation,
    Field,
    Log,
    NamedAxes,
    Prediction,
    Progress,
    Record,
    Shard,
    Splits,
    Task,
    token_axes,
)
from foci.tasks.generate.config import ContextOptions, DataConfig, GenerateConfig, GenerateOptions
from foci.tasks.generate.continuation import Prompt, log_probs, quoted
from foci.tasks.generate.passages import StreamedText, hold_out, passage_keys
from foci.tasks.generate.reader import TextDocument, TextFiles, TextPiece, python_reference
from foci.tasks.generate.windows import (
    Ids,
    PieceEncoder,
    TextBatch,
    WindowBatches,
    chunks,
    encode_documents,
    encode_text,
    size_of,
)
from foci.training.objective import Batches, Loss

PROBED = 20
"""Tokens that are produced at most where it is asked what they hang on."""


class HeldOut(NamedTuple):
    """The held-out documents as ids, and their size."""

    ids: list[Ids]
    size: TextSize


class Generate(Task):
    """The text generation task."""

    name: ClassVar[str] = "generate"
    Config: ClassVar[type[Any]] = GenerateConfig
    Options: ClassVar[type[Any]] = GenerateOptions
    EvaluateOptions: ClassVar[type[Any]] = ContextOptions
    Assets: ClassVar[type[Any]] = TokenizerAssets
    inputs: ClassVar[tuple[Field, ...]] = (Field("text", "document", required=False),)
    targets: ClassVar[tuple[Field, ...]] = ()
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    counted: ClassVar[str] = "passages"
    lines: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "perplexity": "lower",
        "bits_per_byte": "lower",
    }

    config: GenerateConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read the text, and hold out documents, or passages of a single one."""
        data = self.config.data
        _check_data(data)
        if data.stream:
            return self._stream(log)
        if data.path is None:
            log("no data is named: training on the language reference that comes with Python")
            documents = python_reference(data.max_characters)
        else:
            documents = self._files(data.path).documents()
        train, valid, test = documents, [], []
        if data.valid is None or (data.test is None and data.test_share > 0):
            _check_several(data, documents)
            found = hold_out(documents, shares_of(data), data.max_valid_characters, data.path)
            train, valid, test = found.train, found.valid, found.test
            _log_left_out(log, found.shared, found.unused)
        valid, test = self._named(valid, test)
        log(
            f"{_characters(train):,} characters in {_documents(train)} to train on, {_held(valid, test)}; the first is "
            f"{quoted(train[0].text)}"
        )
        return Splits(train, valid, test)

    def _named(self, *parts: list[TextDocument]) -> list[list[TextDocument]]:
        """Return the texts to validate and to evaluate with, of files where they are named."""
        paths = (self.config.data.valid, self.config.data.test)
        return [part if path is None else self._files(path).documents() for path, part in zip(paths, parts)]

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read documents from files, folders or JSONL."""
        return [one._asdict() for path in paths for one in self._files(path).documents()]

    def contents(self, example: Any) -> list[str]:
        """Return a key of each passage."""
        return passage_keys(example["text"] if isinstance(example, Mapping) else example.text)

    def _files(self, path: str) -> TextFiles:
        data = self.config.data
        return TextFiles(
            path,
            field=data.columns,
            pattern=data.pattern,
            max_characters=data.max_characters,
            normalize=data.normalize,
        )

    def _stream(self, log: Log) -> Splits:
        """Read everything once, to check and measure it; keep what is held out."""
        data = self.config.data
        files = self._files(cast("str", data.path))
        streamed = StreamedText(files, shares_of(data), data.max_valid_characters)
        valid, test = self._named(streamed.valid, streamed.test)
        first = next(iter(streamed), None)
        if first is None and not streamed.valid and not streamed.test:
            raise files.no_text()
        if first is None or not valid:
            raise DataError(
                f"{data.path}, line 1: {streamed.characters} characters in passages to train on, {_held(valid, test)}, "
                "expected some of each. Use more text, or name data.valid and data.test."
            )
        _log_left_out(log, 0, streamed.unused)
        log(
            f"{streamed.characters:,} characters are streamed from {data.path}, except what stands in held-out text "
            f"too; {_held(valid, test)}; the first is {quoted(first.text)}"
        )
        return Splits(streamed, valid, test)

    def assets(self, splits: Splits, log: Log) -> TokenizerAssets:
        """Train the tokenizer on the training text."""
        kind, size = self.config.tokenizer.kind, self.config.tokenizer.size
        made = Tokenizer.train(_Chunks(splits.train), kind, size)
        log(f"a vocabulary of {len(made):,} tokens ({kind}{made.note})")
        return TokenizerAssets(made)

    def model(self, assets: TokenizerAssets) -> nn.Module:
        """Build the model for this vocabulary and context."""
        return build_language_model(len(assets.tokenizer), self.config.data.context, self.config.model)

    def named_axes(self, assets: TokenizerAssets) -> NamedAxes:
        """Return which rows of the weights are tokens."""
        return token_axes("decoder", assets.tokenizer.labels(range(len(assets.tokenizer))))

    def batches(self, splits: Splits, assets: TokenizerAssets, shard: Shard, log: Log) -> Batches:
        """Encode the training text, and cut it into windows."""
        data, seed = self.config.data, self.config.training.seed
        if data.stream:
            return StreamBatches(
                splits.train,
                PieceEncoder(assets.tokenizer, data.context),
                buffer=data.stream_buffer,
                max_tokens=data.batch_size * (data.context + 1),
                seed=seed,
                workers=data.workers,
                **shard._asdict(),
            )
        ids = encode_documents(assets.tokenizer, list(splits.train))
        return WindowBatches(ids, context=data.context, batch_size=data.batch_size, seed=seed, **shard._asdict())

    def held_out(self, splits: Splits, assets: TokenizerAssets, log: Log) -> HeldOut:
        """Encode the validation text."""
        return _encoded(assets.tokenizer, [one.text for one in splits.valid])

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: TextBatch) -> Loss:
        """Return the cross-entropy, summed over the tokens."""
        targets = batch.tokens[:, 1:]
        learned: TokenLoss = model(batch.tokens[:, :-1], Targets(targets, padding=PAD))
        return Loss(learned.loss, (targets != PAD).sum())

    def validate(self, model: nn.Module, held_out: HeldOut) -> dict[str, float]:
        """Return the metrics of the held-out text, in windows side by side: fast, and a little too high."""
        context = self.config.data.context
        found = _likelihood(model, held_out, context, context, lambda done: None)
        return {"loss": found.nats, "perplexity": found.perplexity, "bits_per_byte": found.bits_per_byte}

    def evaluate(
        self,
        model: nn.Module,
        assets: TokenizerAssets,
        records: Sequence[Record],
        options: ContextOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return nats, perplexity and bits per byte of all tokens, each predicted from a context."""
        context, stride = options.sizes(cast("LanguageModel", model).max_length, self.config.data.context)
        held_out = _encoded(assets.tokenizer, [record["text"] for record in records])
        found = _likelihood(model, held_out, context, stride, progress)
        metrics: dict[str, float | int] = {
            "documents": len(records),
            "characters": found.text.characters,
            "tokens": found.tokens,
            "nats": found.nats,
            **found.to_metrics(),
        }
        notes = {"context": f"each token is predicted from {context - stride} to {context - 1} tokens before it"}
        return Evaluation(metrics, {**notes, **found.notes()})

    # ---- predictions

    def examples(self, records: Sequence[Record], count: int) -> list[Record]:
        """Return the beginnings of lines in the held-out text, as prompts."""
        lines = [line for record in records for line in record["text"].splitlines() if len(line.split()) > 3]
        some = lines[:: max(1, len(lines) // count)][:count] or [record["text"][:40] for record in records[:count]]
        return [{"text": " ".join(line.split()[:3])} for line in some]

    def predict(
        self,
        model: nn.Module,
        assets: TokenizerAssets,
        records: Sequence[Record],
        options: GenerateOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Continue the texts, or score them; a trace has what each produced token read."""
        found = []
        for record in records:
            prompt = self._prompt(model, assets, record, options)
            found.append(prompt.scored(trace) if options.score else prompt.continued(trace))
            progress(1)
        return found

    def traced_pass(self, model: nn.Module, assets: TokenizerAssets, record: Record) -> TracedPass:
        """Return how the model reads a text that it continues by the likeliest tokens, `PROBED` of them at most."""
        return self._prompt(model, assets, record, GenerateOptions(max_new_tokens=PROBED, temperature=0)).traced_pass()

    def stream(
        self, model: nn.Module, assets: TokenizerAssets, record: Record, options: GenerateOptions
    ) -> Generator[str, None, Prediction] | None:
        """Return the pieces of a text as they are produced; None where it is known at the end only."""
        if options.beam_size > 1 or options.n_best > 1 or options.score:
            return None
        return self._prompt(model, assets, record, options).pieces()

    def _prompt(self, model: nn.Module, assets: TokenizerAssets, record: Record, options: GenerateOptions) -> Prompt:
        trained = self.config.data.context
        return Prompt(cast("LanguageModel", model), assets.tokenizer, record, options, trained)


def _likelihood(model: nn.Module, held_out: HeldOut, context: int, stride: int, progress: Progress) -> Likelihood:
    total, tokens = 0.0, 0
    for ids in held_out.ids:
        total += float(log_probs(cast("LanguageModel", model), ids, context, stride).sum(dtype=np.float64))
        tokens += len(ids)
        progress(1)
    return Likelihood(total, tokens, held_out.size)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> HeldOut:
    return HeldOut([encode_text(tokenizer, text) for text in texts], size_of(tokenizer, texts))


class _Chunks:
    """The texts of documents or pieces, in chunks that a tokenizer is trained on one at a time."""

    def __init__(self, texts: Iterable[TextDocument | TextPiece]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[str]:
        return (chunk for one in self.texts for chunk in chunks(one.text))


def _check_data(data: DataConfig) -> None:
    if data.path is None:
        for name in ("valid", "test", "stream"):
            if getattr(data, name):
                raise ConfigError(f"data.{name} is set, but data.path is not. Name the text to train on (--data).")


def _check_several(data: DataConfig, documents: Sequence[TextDocument]) -> None:
    """Raise where whole documents are held out, and there is only one: a single JSON object."""
    path = str(data.path)
    if len(documents) == 1 and path.lower().removesuffix(".gz").removesuffix(".xz").endswith((".jsonl", ".json")):
        raise DataError(
            f"{data.path}, line 1: the only document, expected at least two: some are held out. Write a single "
            "text to a .txt file, of which passages are held out."
        )


def _log_left_out(log: Log, shared: int, unused: int) -> None:
    if shared:
        log(f"{shared:,} characters stand in held-out text too and are left out: overlapping documents or passages")
    if unused:
        log(f"{unused:,} characters are held out but not used (data.max_valid_characters); lower data.valid_share")


def _held(valid: Sequence[TextDocument], test: Sequence[TextDocument]) -> str:
    return f"{_characters(valid):,} to validate, {_characters(test):,} to evaluate"


def _characters(texts: Sequence[TextDocument]) -> int:
    return sum(len(one.text) for one in texts)


def _documents(texts: Sequence[TextDocument]) -> str:
    return "1 document" if len(texts) == 1 else f"{len(texts):,} documents"
