"""Translation: trained on sentence pairs; each generated word has its attention weights over the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
from torch import Tensor, nn

from foci.data import (
    PAD,
    UNK,
    Pair,
    PairExamples,
    Sequences,
    StreamBatches,
    TokenBatches,
    Tokenizer,
    open_corpus,
)
from foci.data.batching import Batch
from foci.data.copy_ids import CopyExamples, CopyIds, SourceRow
from foci.data.pairs import Corpus, check, read_pairs
from foci.data.splits import place_of, split_by_content
from foci.decoding import Hypothesis
from foci.errors import ConfigError, DataError
from foci.layers.token_loss import Targets, TokenLoss
from foci.metrics import overlap
from foci.printable import printable
from foci.tasks.frame.alignment import padded, source_rows, trace_of
from foci.tasks.frame.notes import unknown_note
from foci.tasks.frame.prediction_loop import by_length
from foci.tasks.frame.search_options import SearchOptions
from foci.tasks.frame.searching import quantized, search
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
from foci.tasks.translate.config import (
    LANGUAGES,
    DataConfig,
    TranslateConfig,
    TranslateEvaluateOptions,
)
from foci.training.objective import Batches, Loss

_BUILT_IN = 20_000
"""How many built-in phrases are trained on where no data is named."""
_VALIDATED = 2000
"""How many of the pairs that were held out are validated with, at most."""


class Tokenizers(NamedTuple):
    """One for each side; the same one twice where they are shared."""

    source: Tokenizer
    target: Tokenizer

    def to_files(self) -> dict[str, str]:
        """Return both as JSON."""
        return {f"{side}.tokenizer.json": tokenizer.to_text() for side, tokenizer in self._asdict().items()}


class Translate(Task):
    """The translation task; see `foci.tasks.frame.task.Task`."""

    name: ClassVar[str] = "translate"
    Config: ClassVar[type[Any]] = TranslateConfig
    Options: ClassVar[type[Any]] = SearchOptions
    EvaluateOptions: ClassVar[type[Any]] = TranslateEvaluateOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("source", "sentence"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("target", "sentence"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {"loss": "lower", "perplexity": "lower"}

    config: TranslateConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read and check the sentence pairs."""
        data = self.config.data
        _check_data(data)
        if data.path is None:
            return self._phrases(log)
        corpus = open_corpus(data.path, data.target, columns=data.columns)
        valid = None if data.valid is None else read_pairs(self._open(data.valid, data.valid_target), log)
        test = None if data.test is None else read_pairs(self._open(data.test, data.test_target), log)
        if data.stream:
            count = check(corpus, log)
            valid, test = valid or [], test or []
            log(
                f"{count:,} pairs are streamed from {data.path}, {len(valid):,} held out to validate, {len(test):,} "
                "to evaluate"
            )
            return Splits(corpus, valid, test)
        pairs = read_pairs(corpus, log)
        train, valid, test = self._hold_out(pairs, valid, test)
        log(
            f"{len(train):,} pairs to train on, {len(valid):,} held out to validate, {len(test):,} to evaluate; the "
            f"first is {_quoted(pairs[0].source)} → {_quoted(pairs[0].target)}"
        )
        return Splits(train, valid, test)

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read two aligned files, or one TSV or JSONL file."""
        if len(paths) > 2:
            raise ConfigError(f"got {len(paths)} files, expected a file of sources and one of targets, or one of both.")
        return [pair._asdict() for pair in read_pairs(self._open(*paths))]

    def _open(self, source: str, target: str | None = None) -> Corpus:
        return open_corpus(source, target, columns=None if target is not None else self.config.data.columns)

    def _hold_out(
        self, pairs: list[Pair], valid: list[Pair] | None, test: list[Pair] | None
    ) -> tuple[list[Pair], list[Pair], list[Pair]]:
        """Hold out what no file gives; pairs with equal sources are never in two parts."""
        data = self.config.data
        if len(pairs) < 2 and valid is None:
            raise DataError(f"{data.path}, line 1: the only sentence pair, expected at least two: some are held out.")
        held = split_by_content(
            pairs,
            lambda pair: pair.source,
            valid_share=data.valid_share if valid is None else 0.0,
            test_share=data.test_share if test is None else 0.0,
            seed=data.split_seed,
        )
        train, valid = held.train, held.valid if valid is None else valid
        if not valid or not train:
            use = "train on" if valid else "validate"
            raise DataError(
                f"{data.path}, line 1: of {len(pairs)} sentence pairs none is left to {use} (those of one source "
                f"stay together). Give more of them, change data.valid_share = {data.valid_share} or data.test_share = "
                f"{data.test_share}, or name data.valid."
            )
        return train, valid, held.test if test is None else test

    def _phrases(self, log: Log) -> Splits:
        from foci.data.builtin.phrasebook import phrasebook

        data, seed = self.config.data, self.config.training.seed
        if data.builtin is None:
            log(f"no data is named: training on built-in phrases (data.languages = {data.languages or LANGUAGES})")
        source, dash, target = (data.languages or LANGUAGES).partition("-")
        if not dash:
            raise ConfigError(f"data.languages is {data.languages!r}, expected two locales, as in en-zh.")
        made = data.builtin or _BUILT_IN
        train, valid, test = (
            phrasebook(source, target, split=split, size=size, seed=seed)
            for split, size in (("train", made), ("valid", min(500, made)), ("test", min(300, made)))
        )
        log(f"{len(train):,} phrases to train on, {len(valid):,} to validate, {len(test):,} to evaluate")
        return Splits(train, valid, test)

    def assets(self, splits: Splits, log: Log) -> Tokenizers:
        """Train the tokenizers on the training pairs."""
        kind, size = self.config.tokenizer.kind, self.config.tokenizer.size
        if self.config.tokenizer.shared:
            both = Tokenizer.train(_Side(splits.train, 0, 1), kind, size)
            made = Tokenizers(both, both)
        else:
            made = Tokenizers(*(Tokenizer.train(_Side(splits.train, column), kind, size) for column in (0, 1)))
        log(f"vocabularies of {len(made.source):,} and {len(made.target):,} tokens ({kind})")
        return made

    def load_assets(self, read: Callable[[str], str]) -> Tokenizers:
        """Read both tokenizers."""
        names = [f"{side}.tokenizer.json" for side in Tokenizers._fields]
        return Tokenizers(*(Tokenizer.from_text(read(name), name) for name in names))

    def model(self, assets: Tokenizers) -> nn.Module:
        """Build the model for these vocabularies."""
        return self.config.model.build(len(assets.source), len(assets.target))

    def named_axes(self, assets: Tokenizers) -> NamedAxes:
        """Return which rows of the weights are tokens."""
        encoder, decoder = (side.labels(range(len(side))) for side in assets)
        return token_axes("encoder", encoder) | token_axes("decoder", decoder)

    def batches(self, splits: Splits, assets: Tokenizers, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training pairs."""
        data = self.config.data
        options: dict[str, Any] = {
            "max_tokens": data.batch_tokens,
            "seed": self.config.training.seed,
            **shard._asdict(),
        }
        if data.stream:
            encode = PairEncoder(assets, data.max_length, self._copies)
            return StreamBatches(splits.train, encode, buffer=data.stream_buffer, workers=data.workers, **options)
        examples = self._examples(splits.train, assets, log)
        return TokenBatches(examples, workers=data.workers, **options)

    def held_out(self, splits: Splits, assets: Tokenizers, log: Log) -> TokenBatches[Batch]:
        """Encode and batch the validation pairs."""
        data, pairs = self.config.data, splits.valid
        if data.valid is None and len(pairs) > _VALIDATED:
            pairs = sorted(pairs, key=lambda pair: place_of(pair.source, data.split_seed))[:_VALIDATED]
        return TokenBatches(self._examples(pairs, assets, log), max_tokens=data.batch_tokens)

    @property
    def _copies(self) -> bool:
        return bool(self.config.model.resolved.get("copy"))

    def _examples(self, pairs: Iterable[Pair], assets: Tokenizers, log: Log) -> PairExamples | CopyExamples:
        longest = self.config.data.max_length
        pairs = list(pairs)
        examples = PairEncoder(assets, longest, self._copies)(pairs)
        left = len(examples.source)
        if left == 0:
            raise DataError(f"no sentence pair has at most data.max_length = {longest} tokens on both sides. Raise it.")
        if left < len(pairs):
            log(f"{len(pairs) - left:,} of {len(pairs):,} pairs have a side of more than {longest} tokens: left out")
        return examples

    # ---- loss

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the label-smoothed cross-entropy, summed over the target tokens."""
        wanted = Targets(batch.target[:, 1:], self.config.label_smoothing, PAD)
        learned: TokenLoss = model(batch.source, batch.source_valid, batch.target[:, :-1], wanted)
        known = batch.target_valid[:, 1:]
        return Loss(learned.loss + _attention_loss(learned, known), known.sum())

    def validate(self, model: nn.Module, held_out: TokenBatches[Batch]) -> dict[str, float]:
        """Return nats per token, without label smoothing, and their exponential."""
        total, count = 0.0, 0
        device = next(model.parameters()).device
        for batch in held_out.epoch(0):
            batch = batch.to(device)
            wanted = Targets(batch.target[:, 1:], padding=PAD)
            learned: TokenLoss = model(batch.source, batch.source_valid, batch.target[:, :-1], wanted)
            total += float(learned.loss)
            count += int(batch.target_valid[:, 1:].sum())
        loss = total / max(count, 1)
        return {"loss": loss, "perplexity": float(np.exp(min(loss, 700.0)))}

    # ---- predictions

    def predict(
        self,
        model: nn.Module,
        assets: Tokenizers,
        records: Sequence[Record],
        options: SearchOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Translate; a trace has the weights of every attention for every produced token."""
        model = quantized(model) if options.int8 else model
        rows = source_rows(*assets, [record["source"] for record in records], copies=self._copies)
        prefix = None if options.prefix is None else assets.target.encode(options.prefix).ids
        found: dict[int, Prediction] = {}
        for indices in by_length([len(row.ids) for row in rows], options.batch_tokens):
            source, valid = padded(model, [rows[i] for i in indices])
            for i, hypotheses in zip(indices, search(model, source, valid, options, prefix)):
                made = [self._prediction(model, assets, records[i], rows[i], one, trace) for one in hypotheses]
                found[i] = replace(made[0], alternatives=tuple(made[1:]))
            progress(len(indices))
        return [found[i] for i in range(len(records))]

    def _prediction(
        self,
        model: nn.Module,
        assets: Tokenizers,
        record: Record,
        row: SourceRow,
        hypothesis: Hypothesis,
        trace: bool,
    ) -> Prediction:
        text = assets.target.decode(hypothesis.tokens, row.own)
        details: dict[str, Any] = {"log_prob": hypothesis.log_prob, "finished": hypothesis.finished}
        notes = [] if hypothesis.finished else ["the translation was cut at its greatest length (max_length)"]
        if UNK in row.ids:
            notes.append(self._unknown(assets.source, record["source"]))
        if notes:
            details["notes"] = notes
        traced = trace_of(model, *assets, row, hypothesis, text) if trace else None
        return Prediction(record, text, hypothesis.score, details, traced)

    def _unknown(self, tokenizer: Tokenizer, text: str) -> str:
        """The note on a text with tokens that the run does not know."""
        data = self.config.data
        encoding = tokenizer.encode(text)
        unknown = [
            text[slice(*where)].strip() for number, where in zip(encoding.ids, encoding.offsets) if number == UNK
        ]
        built_in = f"built-in phrases ({data.languages or LANGUAGES}: dates, amounts, units and lists)"
        return unknown_note("tokens", unknown, len(encoding.ids), tokenizer.pieces, data.path or built_in)

    def evaluate(
        self,
        model: nn.Module,
        assets: Tokenizers,
        records: Sequence[Record],
        options: TranslateEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return BLEU and chrF by sacrebleu, with their signatures, exact matches, and perplexity."""
        if options.tokenize is not None:
            overlap.check_tokenizer(options.tokenize)  # before the long work
        predictions = self.predict(model, assets, records, options, False, progress)
        return self.compare(model, assets, records, predictions, options)

    def compare(
        self,
        model: nn.Module,
        assets: Tokenizers,
        records: Sequence[Record],
        predictions: Sequence[Prediction],
        options: TranslateEvaluateOptions,
    ) -> Evaluation:
        """Return the metrics of existing predictions."""
        produced, wanted = [one.output for one in predictions], [record["target"] for record in records]
        tokenize = options.tokenize or overlap.tokenizer_for(wanted)
        bleu = overlap.bleu(produced, wanted, tokenize=tokenize, lowercase=options.lowercase)
        chrf = overlap.chrf(produced, wanted, lowercase=options.lowercase)
        pairs = [Pair(record["source"], record["target"]) for record in records]
        examples = PairEncoder(assets, None, self._copies)(pairs)
        longest = int(examples.lengths.max())
        batches: TokenBatches[Batch] = TokenBatches(examples, max_tokens=max(options.batch_tokens, longest))
        return Evaluation(
            {
                "sentences": len(records),
                "bleu": bleu.score,
                "chrf": chrf.score,
                "exact": overlap.exact_matches(produced, wanted),
                "perplexity": self.validate(model, batches)["perplexity"],
            },
            {"bleu_signature": bleu.signature, "chrf_signature": chrf.signature},
        )


class _Side:
    """One side, or both, of sentence pairs, which may be too many to hold."""

    def __init__(self, pairs: Iterable[Pair], *columns: int) -> None:
        self.pairs, self.columns = pairs, columns

    def __iter__(self) -> Iterator[str]:
        return (pair[column] for column in self.columns for pair in self.pairs)


class PairEncoder:
    """Sentence pairs to ids; pairs with a side of more than ``longest`` tokens, or without a source, are left out.

    With ``longest`` None all pairs are kept.
    """

    def __init__(self, assets: Tokenizers, longest: int | None, copies: bool = False) -> None:
        self.assets, self.longest, self.copies = assets, longest, copies

    def __call__(self, pairs: Sequence[Pair]) -> PairExamples | CopyExamples:
        """Return what is left of these pairs, which may be nothing."""
        if self.copies:
            return self._copied(pairs)
        examples = PairExamples.encode(pairs, *self.assets)
        if self.longest is None:
            return examples
        fits = np.flatnonzero((examples.lengths.max(axis=1) <= self.longest) & (examples.source.lengths > 0))
        if len(fits) == len(pairs):
            return examples
        sides = zip((examples.source, examples.target), self.assets)
        return PairExamples(*(Sequences((side[int(i)] for i in fits), len(tokenizer)) for side, tokenizer in sides))

    def _copied(self, pairs: Sequence[Pair]) -> CopyExamples:
        ids = CopyIds(*self.assets)
        rows = list(ids.sources(pair.source for pair in pairs))
        targets = list(ids.targets((pair.target for pair in pairs), rows))
        fits = [
            self.longest is None or (max(len(row.ids), len(target) + 2) <= self.longest and len(row.ids) > 0)
            for row, target in zip(rows, targets)
        ]
        kept = [number for number, fit in enumerate(fits) if fit]
        return CopyExamples([rows[i] for i in kept], [targets[i] for i in kept], len(self.assets.target))


def _check_data(data: DataConfig) -> None:
    if data.languages is not None and data.path is not None:
        raise ConfigError("data: languages and path are both set, expected one of them.")
    if data.path is None:
        for name in ("target", "valid", "valid_target", "test", "test_target"):
            if getattr(data, name) is not None:
                raise ConfigError(f"data.{name} is set, but data.path is not. Name the source sentences (--data).")
        if data.stream:
            raise ConfigError("data.stream is for files, but data.path is not set. Name a file, or leave it out.")
    if data.valid_share + data.test_share >= 1:
        raise ConfigError(
            f"data.valid_share is {data.valid_share} and data.test_share is {data.test_share}, expected less than 1 "
            "together: nothing would be left to train on."
        )
    if data.stream and data.valid is None:
        raise ConfigError(
            "data.stream is set, but data.valid is not: a stream is not held in memory, so no part of it can be "
            "held out. Name held-out pairs in files of their own."
        )
    if data.stream and data.max_length > data.batch_tokens:
        raise ConfigError(
            f"data.max_length is {data.max_length}, more than data.batch_tokens = {data.batch_tokens}: a pair of a "
            "stream may then fit in no batch. Lower the one or raise the other."
        )


def _attention_loss(learned: TokenLoss, known: Tensor) -> Tensor | float:
    """Return the REINFORCE term of sampled attention, with the log-probabilities of the words as reward."""
    sampled = [weights for weights in learned.attentions.values() if weights.log_prob is not None]
    if not sampled:
        return 0.0
    reward = learned.log_probs
    advantage = (reward - reward.sum() / known.sum().clamp_min(1)) * known
    return -sum((advantage * cast("Tensor", weights.log_prob)).sum() for weights in sampled)


def _quoted(text: str) -> str:
    return repr(printable(text if len(text) <= 60 else f"{text[:59]}…"))
