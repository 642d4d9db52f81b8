"""Summarization: trained on texts with their summaries; a summary may copy words of its text by their own letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from foci.data import TokenBatches, Tokenizer
from foci.data.batching import Batch, PairExamples, Sequences
from foci.data.copy_ids import CopyExamples, CopyIds, SourceRow
from foci.data.splits import text_key
from foci.layers.copying import copying_head
from foci.layers.coverage import coverage_loss
from foci.metrics.rouge import rouge
from foci.models.build import build_seq2seq
from foci.tasks.frame.assets import TokenizerAssets
from foci.tasks.frame.file_task import shortened
from foci.tasks.frame.prediction_loop import by_length
from foci.tasks.frame.seq2seq_task import Seq2SeqTask
from foci.tasks.frame.task import Evaluation, Field, Log, NamedAxes, Progress, Record, Shard, Splits, token_axes
from foci.tasks.summarize.builtin import docstrings
from foci.tasks.summarize.config import (
    SummarizeConfig,
    SummarizeEvaluateOptions,
    SummarizeOptions,
)
from foci.tasks.summarize.metrics import compared_by, evaluate_summaries
from foci.tasks.summarize.reader import SummarizedText, read_summaries
from foci.training.objective import Batches, Loss

_VALIDATED_TOKENS = 8192
"""Source tokens that are summarized at once in a validation."""


class _HeldOut(NamedTuple):
    """Validation texts: in batches for the loss, and some of them to be summarized."""

    batches: TokenBatches[Batch]
    assets: TokenizerAssets
    rows: list[SourceRow]
    targets: list[str]


class Summarize(Seq2SeqTask):
    """The summarization task."""

    name: ClassVar[str] = "summarize"
    Config: ClassVar[type[Any]] = SummarizeConfig
    Options: ClassVar[type[Any]] = SummarizeOptions
    EvaluateOptions: ClassVar[type[Any]] = SummarizeEvaluateOptions
    Assets: ClassVar[type[Any]] = TokenizerAssets
    inputs: ClassVar[tuple[Field, ...]] = (Field("source", "document"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("target", "sentence"),)
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {**Seq2SeqTask.metrics, "rouge1": "higher"}
    resumable: ClassVar[tuple[str, ...]] = ("coverage.weight", "coverage.start")
    noun: ClassVar[str] = "texts"
    produces: ClassVar[str] = "summary"
    builtin_sizes: ClassVar[tuple[int, int, int]] = (1_000_000, 0, 0)  # all docstrings

    config: SummarizeConfig
    _step = 0

    # ---- data

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read two aligned files, or files in the form of the training data."""
        if self.config.data.target is not None and len(paths) == 2:
            return [one._asdict() for one in read_summaries(paths[0], paths[1])]
        return super().read_records(paths)

    def read_file(self, path: str, log: Log | None = None) -> list[SummarizedText]:
        """Read a table or JSONL file."""
        data = self.config.data
        return read_summaries(path, columns=data.columns, references=data.references)

    def read_part(self, part: str, path: str, log: Log) -> list[SummarizedText]:
        """Read the texts of a part: two aligned files, or one with both sides."""
        data = self.config.data
        target = {"train": data.target, "valid": data.valid_target, "test": data.test_target}[part]
        return self.read_file(path, log) if target is None else read_summaries(path, target)

    def key(self, example: SummarizedText) -> str:
        """Return the text: equal ones are never in two parts."""
        return text_key(example.source)

    def show(self, example: SummarizedText) -> str:
        """Return the text and its summary."""
        return shortened(example.source, example.target)

    def sizes(self, builtin: int) -> tuple[int, int, int]:
        """Return how many docstrings each part has at most."""
        return builtin, builtin, builtin

    def read_builtin(self, size: int, part: str) -> list[SummarizedText]:
        """Return docstrings of the standard library, summarized by their first lines."""
        return docstrings(part, size)

    def assets(self, splits: Splits, log: Log) -> TokenizerAssets:
        """Train the tokenizer on the training texts and summaries."""
        kind, size = self.config.tokenizer.kind, self.config.tokenizer.size
        texts = [self.plain(text) for one in splits.train for text in (one.source, one.target)]
        made = TokenizerAssets(Tokenizer.train(texts, kind, size))
        log(f"a vocabulary of {len(made.tokenizer):,} tokens ({kind}{made.tokenizer.note})")
        return made

    def model(self, assets: TokenizerAssets) -> nn.Module:
        """Build the model for this vocabulary."""
        return build_seq2seq(len(assets.tokenizer), len(assets.tokenizer), self.config.model)

    def named_axes(self, assets: TokenizerAssets) -> NamedAxes:
        """Return which rows of the weights are tokens."""
        tokens = assets.tokenizer.labels(range(len(assets.tokenizer)))
        context = {"decoder.context_embedding.weight": (tokens,)}
        return token_axes("encoder", tokens) | token_axes("decoder", tokens) | context

    def batches(self, splits: Splits, assets: TokenizerAssets, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training texts."""
        data = self.config.data
        examples = self._examples(list(splits.train), assets, log)
        longest = int(examples.lengths.max())
        return TokenBatches(examples, **self.batching(shard, max(data.batch_tokens, longest), data.batch_size))

    def held_out(self, splits: Splits, assets: TokenizerAssets, log: Log) -> _HeldOut:
        """Encode and batch the validation texts."""
        texts: list[SummarizedText] = list(splits.valid)
        examples = self._examples(texts, assets, log, "validation texts")
        longest = max(self.config.data.batch_tokens, int(examples.lengths.max()))
        decoded = texts[: self.config.data.valid_decoded]
        rows = self.encode_sources(assets, [one._asdict() for one in decoded])
        return _HeldOut(TokenBatches(examples, max_tokens=longest), assets, rows, [one.target for one in decoded])

    def encode_sources(self, assets: TokenizerAssets, records: Sequence[Record]) -> list[SourceRow]:
        """Return the ids of texts, of their first tokens."""
        return self.source_rows(assets, [record["source"] for record in records], self.config.data.max_source)

    def _examples(
        self, texts: Sequence[SummarizedText], assets: TokenizerAssets, log: Log | None = None, what: str = "texts"
    ) -> PairExamples:
        """Encode texts with their summaries, cut to their greatest lengths."""
        data, tokenizer = self.config.data, assets.tokenizer
        rows = self.encode_sources(assets, [one._asdict() for one in texts])
        plain = [self.plain(one.target) for one in texts]
        encoded = CopyIds(tokenizer, tokenizer).targets(plain, rows) if self.copies else tokenizer.encode_many(plain)
        targets, long = [], 0
        for target in encoded:
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
        if self.copies:
            return CopyExamples(rows, targets, len(tokenizer))
        sides = ([row.ids for row in rows], targets)
        return PairExamples(*(Sequences(side, len(tokenizer)) for side in sides))

    # ---- loss and metrics

    def begin_step(self, step: int) -> None:
        """Remember the step, which decides whether the coverage loss counts."""
        self._step = step

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the cross-entropy, summed over the target tokens, and the coverage loss in its phase."""
        learned = self.learn(model, batch, self.config.label_smoothing)
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
        options = SummarizeOptions(beam_size=1, max_length=self.config.data.max_target)
        scores, words = [], compared_by(self.splitter)
        for numbers in by_length([len(row.ids) for row in held_out.rows], _VALIDATED_TOKENS):
            for number, found in zip(numbers, self.search(model, held_out.rows, numbers, options)):
                text = self.decode(held_out.assets, held_out.rows, number, found[0].tokens)
                scores.append(rouge(words(text), words(held_out.targets[number]))["rouge1"].f)
        return {**self.nats(model, held_out.batches), "rouge1": 100 * sum(scores) / max(len(scores), 1)}

    # ---- predictions

    def limited(self, options: SummarizeOptions) -> SummarizeOptions:
        """Return the options with the greatest length of a summary."""
        if options.max_length is not None:
            return options
        return replace(options, max_length=max(self.config.data.max_target, options.min_length))

    def notes(self, assets: TokenizerAssets, record: Record, sources: list[SourceRow], number: int) -> list[str]:
        """Return the note on a text that was not read to its end."""
        row = sources[number]
        read = len(row.ids)
        return [f"the text has {read + row.cut:,} tokens; the first {read:,} were read (data.max_source)"] * (
            row.cut > 0
        )

    def evaluate(
        self,
        model: nn.Module,
        assets: TokenizerAssets,
        records: Sequence[Record],
        options: SummarizeEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return ROUGE beside the lead and oracle baselines, novel and copied n-grams, and perplexity."""
        words = compared_by(self.splitter, options.stem)
        words("a")  # a missing package is reported before the long work
        predictions = self.predict(model, assets, records, options, False, progress)
        produced = [one.output for one in predictions]
        found = evaluate_summaries(records, produced, words, lead=options.lead, extract=options.extract)
        texts = [SummarizedText(record["source"], record["target"]) for record in records]
        examples = self._examples(texts, assets)
        longest = max(options.batch_tokens, int(examples.lengths.max()))
        batches: TokenBatches[Batch] = TokenBatches(examples, max_tokens=longest)
        likelihood = self.likelihood(model, assets, batches, [self.plain(one.target) for one in texts], examples.target)
        unit = "words, without case; characters where a script has no spaces"
        unit = unit if self.splitter.rule in ("auto", "unicode") else f"words by {self.splitter.rule} (data.words)"
        cut = sum(one.cut > 0 for one in self.encode_sources(assets, records))
        return Evaluation(
            {**found.metrics, **likelihood.to_metrics(), "texts_cut": cut},
            {
                **likelihood.notes(),
                "rouge_of": f"F1 in per cent of {unit}{', stemmed' if options.stem else ''}; against the target, and, "
                "with several references, max (the reference with the highest ROUGE-1) and mean",
                "baselines": f"lead: the first {options.lead} of the sentences; oracle: at most {options.extract}, "
                "chosen greedily knowing the references",
            },
            found.tables,
        )
