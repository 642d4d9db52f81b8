"""Summarization: trained on texts with their summaries; a summary may copy words of its text by their own letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

from foci.data import PAD, TokenBatches, Tokenizer
from foci.data.batching import Batch, PairExamples, Sequences
from foci.data.copy_ids import CopyExamples, CopyIds, SourceRow
from foci.data.splits import split
from foci.decoding import Hypothesis
from foci.errors import ConfigError, DataError
from foci.layers.copying import copying_head
from foci.layers.coverage import coverage_loss
from foci.layers.token_loss import Targets, TokenLoss
from foci.metrics.rouge import rouge, words_of
from foci.printable import printable
from foci.scripts import begins_spaceless
from foci.tasks.frame.alignment import padded, source_rows, trace_of
from foci.tasks.frame.prediction_loop import by_length
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
from foci.tasks.summarize.builtin import docstrings
from foci.tasks.summarize.config import (
    DataConfig,
    SummarizeConfig,
    SummarizeEvaluateOptions,
    SummarizeOptions,
)
from foci.tasks.summarize.metrics import evaluate_summaries, word_splitter
from foci.tasks.summarize.reader import Summary, read_summaries
from foci.training.objective import Batches, Loss

_VALIDATED_TOKENS = 8192
"""Source tokens that are summarized at once in a validation."""


class SharedTokenizer(NamedTuple):
    """The tokenizer of both sides."""

    tokenizer: Tokenizer

    def to_files(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"tokenizer.json": self.tokenizer.to_text()}


class _HeldOut(NamedTuple):
    """Validation texts: in batches for the loss, and some of them to be summarized."""

    batches: TokenBatches[Batch]
    tokenizer: Tokenizer
    rows: list[SourceRow]
    targets: list[str]


class Summarize(Task):
    """The summarization task; see `foci.tasks.frame.task.Task`."""

    name: ClassVar[str] = "summarize"
    Config: ClassVar[type[Any]] = SummarizeConfig
    Options: ClassVar[type[Any]] = SummarizeOptions
    EvaluateOptions: ClassVar[type[Any]] = SummarizeEvaluateOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("source", "document"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("target", "sentence"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "perplexity": "lower",
        "rouge1": "higher",
    }
    resumable: ClassVar[tuple[str, ...]] = ("coverage.weight", "coverage.start")

    config: SummarizeConfig
    _step = 0

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read, check and split the texts."""
        data = self.config.data
        _check_data(data)
        if data.path is None:
            return self._built_in(log)
        texts = self._read(data.path, data.target, log)
        found = self._split(texts)
        if data.valid is not None:
            found = found._replace(valid=self._read(data.valid, data.valid_target, log))
        if data.test is not None:
            found = found._replace(test=self._read(data.test, data.test_target, log))
        train, valid, test = (list(split) for split in found)
        if not valid or not train:
            use = "train on" if valid else "validate"
            raise DataError(
                f"{data.path}, line 1: of {len(texts)} texts none is left to {use}. Give more of them, change "
                f"data.valid_share = {data.valid_share}, or name data.valid."
            )
        log(
            f"{len(train):,} texts to train on, {len(valid):,} to validate, {len(test):,} to evaluate; the first is "
            f"{_quoted(texts[0].source)} → {_quoted(texts[0].target)}"
        )
        return Splits(train, valid, [one._asdict() for one in test])

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read two aligned files, or files in the form of the training data."""
        if self.config.data.target is not None and len(paths) == 2:
            return [one._asdict() for one in read_summaries(paths[0], paths[1])]
        return [one._asdict() for path in paths for one in self._read(path, None)]

    def _read(self, source: str, target: str | None, log: Log | None = None) -> list[Summary]:
        data = self.config.data
        if target is not None:
            return read_summaries(source, target, log=log)
        return read_summaries(source, columns=data.columns, references=data.references, log=log)

    def _split(self, texts: list[Summary]) -> Splits:
        """Hold some texts out; equal texts are never in two splits."""
        data = self.config.data
        found = split(
            texts,
            lambda one: one.source,
            valid_share=0.0 if data.valid is not None else data.valid_share,
            test_share=0.0 if data.test is not None else data.test_share,
            seed=data.split_seed,
        )
        return Splits(*found)

    def _built_in(self, log: Log) -> Splits:
        size = self.config.data.builtin
        if size is None:
            log("no data is named: training on docstrings of the standard library (data.builtin)")
        train, valid, test = (docstrings(split, size) for split in ("train", "valid", "test"))
        log(f"{len(train):,} docstrings to train on, {len(valid):,} to validate, {len(test):,} to evaluate")
        return Splits(train, valid, [one._asdict() for one in test])

    def assets(self, splits: Splits, log: Log) -> SharedTokenizer:
        """Train the tokenizer on the training texts and summaries."""
        kind, size = self.config.tokenizer.kind, self.config.tokenizer.size
        texts = [self._plain(text) for one in splits.train for text in (one.source, one.target)]
        made = SharedTokenizer(Tokenizer.train(texts, kind, size))
        log(f"a vocabulary of {len(made.tokenizer):,} tokens ({kind})")
        return made

    def load_assets(self, read: Callable[[str], str]) -> SharedTokenizer:
        """Read the tokenizer."""
        return SharedTokenizer(Tokenizer.from_text(read("tokenizer.json"), "tokenizer.json"))

    def _plain(self, text: str) -> str:
        """Return the text as it is tokenized: single spaces, and a space before the first word as before all others.

        So a word has one id, wherever it is; scripts without spaces have none before the first word either.
        """
        joined = " ".join(text.split())
        if self.config.tokenizer.lowercase:
            joined = joined.lower()
        return joined if begins_spaceless(joined) else f" {joined}"

    def model(self, assets: SharedTokenizer) -> nn.Module:
        """Build the model for this vocabulary."""
        return self.config.model.build(len(assets.tokenizer), len(assets.tokenizer))

    def named_axes(self, assets: SharedTokenizer) -> NamedAxes:
        """Return which rows of the weights are tokens."""
        tokens = assets.tokenizer.labels(range(len(assets.tokenizer)))
        context = {"decoder.context_embedding.weight": (tokens,)}
        return token_axes("encoder", tokens) | token_axes("decoder", tokens) | context

    @property
    def _copies(self) -> bool:
        return bool(self.config.model.resolved.get("copy"))

    def batches(self, splits: Splits, assets: SharedTokenizer, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training texts."""
        data = self.config.data
        examples: PairExamples | CopyExamples = self._examples(list(splits.train), assets, log)
        return TokenBatches(
            examples,
            max_tokens=max(data.batch_tokens, int(examples.lengths.max())),
            max_examples=data.batch_size,
            seed=self.config.training.seed,
            workers=data.workers,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: SharedTokenizer, log: Log) -> _HeldOut:
        """Encode and batch the validation texts."""
        texts: list[Summary] = list(splits.valid)
        examples = self._examples(texts, assets, log, "validation texts")
        batches: TokenBatches[Batch] = TokenBatches(
            examples, max_tokens=max(self.config.data.batch_tokens, int(examples.lengths.max()))
        )
        some = texts[: self.config.data.valid_decoded]
        rows = self._rows(assets, [one.source for one in some])
        return _HeldOut(batches, assets.tokenizer, rows, [one.target for one in some])

    def _rows(self, assets: SharedTokenizer, texts: Sequence[str]) -> list[SourceRow]:
        plain = [self._plain(text) for text in texts]
        one = assets.tokenizer
        return source_rows(one, one, plain, copies=self._copies, longest=self.config.data.max_source)

    def _examples(
        self, texts: Sequence[Summary], assets: SharedTokenizer, log: Log | None = None, what: str = "texts"
    ) -> PairExamples | CopyExamples:
        """Encode texts with their summaries, cut to their greatest lengths."""
        data, tokenizer = self.config.data, assets.tokenizer
        rows = self._rows(assets, [one.source for one in texts])
        plain = [self._plain(one.target) for one in texts]
        whole = CopyIds(tokenizer, tokenizer).targets(plain, rows) if self._copies else tokenizer.encode_many(plain)
        targets, long = [], 0
        for target in whole:
            long += len(target) > data.max_target
            targets.append(target[: data.max_target])
        cut = sum(row.cut > 0 for row in rows)
        if log is not None and cut:
            lost = sum(row.cut for row in rows)
            log(
                f"{cut:,} of {len(rows):,} {what} have more than data.max_source = {data.max_source} tokens: the "
                f"{lost:,} beyond are not read"
            )
        if log is not None and long:
            log(f"{long:,} summaries of {what} are cut to data.max_target = {data.max_target} tokens")
        if self._copies:
            return CopyExamples(rows, targets, len(tokenizer))
        sides = ([row.ids for row in rows], targets)
        return PairExamples(*(Sequences(side, len(tokenizer)) for side in sides))

    # ---- loss

    def begin_step(self, step: int) -> None:
        """Remember the step, which decides whether the coverage loss counts."""
        self._step = step

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the cross-entropy, summed over the target tokens, and the coverage loss in its phase."""
        wanted = Targets(batch.target[:, 1:], self.config.label_smoothing, PAD)
        learned: TokenLoss = model(batch.source, batch.source_valid, batch.target[:, :-1], wanted)
        known = batch.target_valid[:, 1:]
        coverage = self.config.coverage
        if not coverage.weight:
            return Loss(learned.loss, known.sum())
        repeated: Tensor | float = 0.0
        if self._step >= coverage.start:
            crossing = [weights for name, weights in learned.attentions.items() if name.endswith("cross")]
            repeated = (coverage_loss(copying_head(crossing[-1])) * known).sum()
        metric = repeated.detach() if isinstance(repeated, Tensor) else repeated
        return Loss(learned.loss + coverage.weight * repeated, known.sum(), {"coverage": metric})

    def validate(self, model: nn.Module, held_out: _HeldOut) -> dict[str, float]:
        """Return nats per token, their exponential, and ROUGE-1 of greedy summaries of the first texts."""
        total, count = 0.0, 0
        device = next(model.parameters()).device
        for batch in held_out.batches.epoch(0):
            batch = batch.to(device)
            wanted = Targets(batch.target[:, 1:], padding=PAD)
            learned: TokenLoss = model(batch.source, batch.source_valid, batch.target[:, :-1], wanted)
            total += float(learned.loss)
            count += int(batch.target_valid[:, 1:].sum())
        options = SummarizeOptions(beam=1, max_length=self.config.data.max_target)
        scores = []
        for indices in by_length([len(row.ids) for row in held_out.rows], _VALIDATED_TOKENS):
            rows = [held_out.rows[i] for i in indices]
            for i, row, found in zip(indices, rows, search(model, *padded(model, rows), options, unknown=False)):
                text = held_out.tokenizer.decode(found[0].tokens, row.own)
                scores.append(rouge(words_of(text), words_of(held_out.targets[i]))["rouge1"].f)
        loss = total / max(count, 1)
        return {
            "loss": loss,
            "perplexity": float(np.exp(min(loss, 700.0))),
            "rouge1": 100 * sum(scores) / max(len(scores), 1),
        }

    # ---- predictions

    def predict(
        self,
        model: nn.Module,
        assets: SharedTokenizer,
        records: Sequence[Record],
        options: SummarizeOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Summarize; a trace has the attention of every produced token, and what was copied from where."""
        model = quantized(model) if options.int8 else model
        if options.max_length is None:
            options = replace(options, max_length=max(self.config.data.max_target, options.min_length))
        rows = self._rows(assets, [record["source"] for record in records])
        prefix = None if options.prefix is None else assets.tokenizer.encode(self._plain(options.prefix)).ids
        found: dict[int, Prediction] = {}
        for indices in by_length([len(row.ids) for row in rows], options.batch_tokens):
            some = [rows[i] for i in indices]
            for i, row, hypotheses in zip(
                indices, some, search(model, *padded(model, some), options, prefix, unknown=False)
            ):
                made = [self._prediction(model, assets, records[i], row, one, trace) for one in hypotheses]
                found[i] = replace(made[0], alternatives=tuple(made[1:]))
            progress(len(indices))
        return [found[i] for i in range(len(records))]

    def _prediction(
        self,
        model: nn.Module,
        assets: SharedTokenizer,
        record: Record,
        row: SourceRow,
        hypothesis: Hypothesis,
        trace: bool,
    ) -> Prediction:
        tokenizer = assets.tokenizer
        text = tokenizer.decode(hypothesis.tokens, row.own).strip()
        details: dict[str, Any] = {"log_prob": hypothesis.log_prob, "finished": hypothesis.finished}
        notes = [] if hypothesis.finished else ["the summary was cut at its greatest length (max_length)"]
        if row.cut:
            notes.append(
                f"the text has {len(row.ids) + row.cut:,} tokens; the first {len(row.ids):,} were read "
                "(data.max_source)"
            )
        if notes:
            details["notes"] = notes
        traced = trace_of(model, tokenizer, tokenizer, row, hypothesis, text) if trace else None
        return Prediction(record, text, hypothesis.score, details, traced)

    def evaluate(
        self,
        model: nn.Module,
        assets: SharedTokenizer,
        records: Sequence[Record],
        options: SummarizeEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return ROUGE beside the lead and oracle baselines, novel and copied n-grams, and perplexity."""
        words = word_splitter(options.segmenter, options.stem)
        words("a")  # a missing package is reported before the long work
        predictions = self.predict(model, assets, records, options, False, progress)
        produced = [one.output for one in predictions]
        found = evaluate_summaries(records, produced, words, lead=options.lead, extract=options.extract)
        texts = [Summary(record["source"], record["target"]) for record in records]
        examples = self._examples(texts, assets)
        longest = max(options.batch_tokens, int(examples.lengths.max()))
        batches: TokenBatches[Batch] = TokenBatches(examples, max_tokens=longest)
        perplexity = self.validate(model, _HeldOut(batches, assets.tokenizer, [], []))["perplexity"]
        unit = options.segmenter or "words, without case; characters where a script has no spaces"
        cut = sum(one.cut > 0 for one in self._rows(assets, [record["source"] for record in records]))
        return Evaluation(
            {**found.metrics, "perplexity": perplexity, "texts_cut": cut},
            {
                "rouge_of": f"F1 in per cent of {unit}{', stemmed' if options.stem else ''}; against the target, and, "
                "with several references, max (the reference with the highest ROUGE-1) and mean",
                "baselines": f"lead: the first {options.lead} of the sentences; oracle: at most {options.extract}, "
                "chosen greedily knowing the references",
            },
            found.tables,
        )


def _check_data(data: DataConfig) -> None:
    if data.path is None:
        for name in ("target", "valid", "valid_target", "test", "test_target"):
            if getattr(data, name) is not None:
                raise ConfigError(f"data.{name} is set, but data.path is not. Name the texts (--data).")


def _words(text: str) -> str:
    return " ".join(text.split())


def _quoted(text: str) -> str:
    return repr(printable(text if len(text) <= 60 else f"{text[:59]}…"))
