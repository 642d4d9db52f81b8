"""Textual entailment: whether a premise entails a hypothesis, contradicts it, or neither; probabilities by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from foci.data import TokenBatches
from foci.data.vocabulary import Vocabulary
from foci.data.words import words_of
from foci.errors import ConfigError, DataError
from foci.metrics import labels as label_metrics
from foci.models.entailer import EntailerOutput
from foci.printable import printable
from foci.tasks.entail.baseline import EntailLexicon, HypothesisBayes
from foci.tasks.entail.builtin import hypernym_pairs
from foci.tasks.entail.config import BUILT_IN, EntailConfig, EntailOptions
from foci.tasks.entail.reader import LabeledPairs, PairBatch, SentencePair, read_entailment, split_pairs
from foci.tasks.frame.labels import draw_confusion, label_tables, log_labels, number_labels
from foci.tasks.frame.notes import unknown_note
from foci.tasks.frame.prediction_loop import by_length
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
)
from foci.tasks.frame.vocabulary import take_vectors
from foci.training.objective import Batches, Loss
from foci.viz.trace import Axis, Trace

_VALID, _TEST = 150, 600
"""How many built-in pairs are validated and evaluated with."""
NOTHING = "∅"
"""What stands for a premise that is not read, and for the word that has no counterpart."""
_BUCKETS = 100
"""Ids of unknown words: equal unknown words match, different ones rarely do."""


class Entail(Task):
    """Textual entailment as a task of the frame; see `foci.tasks.frame.task.Task`."""

    name: ClassVar[str] = "entail"
    Config: ClassVar[type[Any]] = EntailConfig
    Options: ClassVar[type[Any]] = EntailOptions
    EvaluateOptions: ClassVar[type[Any]] = EntailOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("premise", "sentence"), Field("hypothesis", "sentence"))
    targets: ClassVar[tuple[Field, ...]] = (Field("label", "label"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    unit: ClassVar[str] = "pairs"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "accuracy": "higher",
        "macro_f1": "higher",
    }

    config: EntailConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read, check and split the pairs."""
        data = self.config.data
        if data.path is not None and data.hypernyms is not None:
            raise ConfigError("data: path and hypernyms are both set, expected one of them.")
        if data.path is None:
            return self._built_in(log)
        found = self._read(data.path, log)
        pairs = found.get("", []) + found.get("train", [])
        valid = found.get("valid") if data.valid is None else _all(self._read(data.valid, log))
        test = found.get("test") if data.test is None else _all(self._read(data.test, log))
        train, *held = split_pairs(
            pairs,
            valid_share=0.0 if valid is not None else data.valid_share,
            test_share=0.0 if test is not None else data.test_share,
            seed=data.split_seed,
        )
        valid, test = (one if given is None else given for one, given in zip(held, (valid, test)))
        self._check(train, valid, test, len(pairs))
        log_labels((pair.label for pair in train), "labels", log)
        log(
            f"{len(train):,} pairs to train on, {len(valid):,} to validate, {len(test):,} to evaluate; the first is "
            f"{_quoted(pairs[0])}"
        )
        return Splits(train, valid, test)

    def _check(
        self, train: list[SentencePair], valid: list[SentencePair], test: list[SentencePair], total: int
    ) -> None:
        data = self.config.data
        for use, some in (("train on", train), ("validate", valid)):
            if not some:
                raise DataError(
                    f"{data.path}, line 1: of {total} pairs none is left to {use}. Give more of them, change "
                    f"data.valid_share = {data.valid_share}, or name data.valid."
                )
        labels = sorted({pair.label for pair in train})
        if len(labels) < 2:
            raise DataError(
                f"{data.path}, line 1: all {len(train)} pairs to train on have the label {labels[0]!r}, expected at "
                "least two labels."
            )
        for use, some in (("validate", valid), ("evaluate", test)):
            _numbers(some, labels, use)

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read pairs in the form of the training data; of a file with splits the pairs for tests, if it has any."""
        found: list[SentencePair] = []
        for path in paths:
            splits = self._read(path)
            found += splits.get("test") or _all(splits)
        return [pair._asdict() for pair in found]

    def _read(self, path: str, log: Log | None = None) -> dict[str, list[SentencePair]]:
        data = self.config.data
        found = read_entailment(
            path,
            premise=data.premise,
            hypothesis=data.hypothesis,
            label=data.label,
            split=data.split,
            names=data.labels,
            log=log,
        )
        if found.unlabeled and log is not None:
            log(f"{found.unlabeled:,} pairs of {path} have no agreed label (“-”) and are left out")
        return found.splits

    def _built_in(self, log: Log) -> Splits:
        data = self.config.data
        if data.hypernyms is None:
            log(f"no data is named: training on {BUILT_IN:,} built-in pairs (data.hypernyms)")
        sizes = {"train": data.hypernyms or BUILT_IN, "valid": _VALID, "test": _TEST}
        made = {split: hypernym_pairs(size, language=data.language, split=split) for split, size in sizes.items()}
        log(f"{sizes['train']:,} built-in pairs to train on, {_VALID} to validate, {_TEST} to evaluate")
        return Splits(*made.values())

    def assets(self, splits: Splits, log: Log) -> EntailLexicon:
        """Count words, list the labels, and count what the hypotheses alone tell."""
        pairs: list[SentencePair] = list(splits.train)
        hypotheses = [words_of(pair.hypothesis) for pair in pairs]
        sentences = [*hypotheses, *(words_of(pair.premise) for pair in pairs)]
        counted = self.config.vocabulary.count_with_vectors(sentences, _BUCKETS)
        labels = tuple(sorted({pair.label for pair in pairs}))
        names = ", ".join(printable(label) for label in labels)
        log(f"{len(labels)} labels in this order: {names}; {counted.trained - 1:,} words with a learned vector")
        baseline = HypothesisBayes.count(zip(hypotheses, (pair.label for pair in pairs)))
        return EntailLexicon(*counted, labels, baseline)

    def load_assets(self, read: Callable[[str], str]) -> EntailLexicon:
        """Read what `assets` has counted."""
        return EntailLexicon.from_files(read)

    def model(self, assets: EntailLexicon) -> nn.Module:
        """Build the model for these words and labels."""
        return self.config.model.build(len(assets.vocabulary), assets.trained, assets.vector_dim, len(assets.labels))

    def initialize(self, model: nn.Module, assets: EntailLexicon, log: Log) -> None:
        """Take over the word vectors of a file, if one is named."""
        if (path := self.config.vocabulary.vectors) is not None:
            weight = model.get_parameter("inputs.vectors.weight")
            take_vectors(weight, path, assets.vocabulary, log, assets.trained)

    def named_axes(self, assets: EntailLexicon) -> NamedAxes:
        """Return which rows of the weights are words, and which are labels."""
        words = assets.vocabulary.names
        return {
            "inputs.embedding.weight": ([*words[: assets.trained], "<unknown>"],),
            "inputs.vectors.weight": (words,),
            "output.weight": (assets.labels,),
            "output.bias": (assets.labels,),
        }

    def batches(self, splits: Splits, assets: EntailLexicon, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training pairs."""
        data = self.config.data
        pairs: list[SentencePair] = list(splits.train)
        longer = sum(max(len(words_of(text)) for text in pair[:2]) > data.max_words for pair in pairs)
        if longer:
            log(f"{longer:,} pairs have a sentence of more than {data.max_words} words; the rest of it is not read")
        return TokenBatches(
            self._examples(pairs, assets, "train on"),
            max_tokens=data.max_tokens,
            max_examples=data.max_pairs,
            seed=self.config.training.seed,
            workers=data.workers,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: EntailLexicon, log: Log) -> TokenBatches[PairBatch]:
        """Encode and batch the validation pairs."""
        examples = self._examples(splits.valid, assets, "validate")
        return TokenBatches(examples, max_tokens=max(self.config.data.max_tokens, int(examples.lengths.max())))

    def _examples(self, pairs: Sequence[SentencePair], assets: EntailLexicon, use: str) -> LabeledPairs:
        words = [self._words(pair.premise, pair.hypothesis) for pair in pairs]
        premises, hypotheses = ([pair[side] for pair in words] for side in range(2))
        return LabeledPairs(premises, hypotheses, _numbers(pairs, assets.labels, use), assets.vocabulary)

    def _words(self, premise: str, hypothesis: str) -> tuple[list[str], list[str]]:
        """Return the words that are read of a pair."""
        data = self.config.data
        first = [NOTHING] if data.hypothesis_only else words_of(premise)
        return first[: data.max_words], words_of(hypothesis)[: data.max_words]

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        """Return the cross-entropy of the label, summed over the pairs."""
        logits = model(batch.premise, batch.hypothesis).logits.float()
        right = (logits.argmax(dim=-1) == batch.labels).sum()
        return Loss(F.cross_entropy(logits, batch.labels, reduction="sum"), len(batch.labels), {"accuracy": right})

    def validate(self, model: nn.Module, held_out: TokenBatches[PairBatch]) -> dict[str, float]:
        """Return nats per pair, accuracy and macro F1."""
        loss, counts = _confusion(model, held_out)
        return {"loss": loss, "accuracy": label_metrics.accuracy(counts), "macro_f1": label_metrics.macro_f1(counts)}

    # ---- predictions

    def predict(
        self,
        model: nn.Module,
        assets: EntailLexicon,
        records: Sequence[Record],
        options: EntailOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Label pairs; a trace has the weights of the words of both sentences."""
        words = [self._words(record["premise"], record["hypothesis"]) for record in records]
        premises, hypotheses = ([pair[side] for pair in words] for side in range(2))
        examples = LabeledPairs(premises, hypotheses, [0] * len(words), assets.vocabulary)
        device, null = next(model.parameters()).device, getattr(model, "null", None) is not None
        found: dict[int, Prediction] = {}
        for indices in by_length(examples.lengths.max(axis=1, initial=0).tolist(), options.batch_tokens):
            widths = examples.lengths[indices].max(axis=0).tolist()
            batch = examples.batch(np.array(indices), widths)
            entailed: EntailerOutput = model(batch.premise.to(device), batch.hypothesis.to(device))
            probabilities = entailed.logits.float().softmax(dim=-1).cpu().tolist()
            for row, i in enumerate(indices):
                shares = dict(zip(assets.labels, probabilities[row]))
                label = max(shares, key=lambda name: shares[name])
                details: dict[str, Any] = {"probabilities": shares}
                if notes := self._notes(assets.vocabulary, records[i], words[i]):
                    details["notes"] = notes
                traced = _trace(entailed, row, words[i], null, label, shares[label]) if trace else None
                found[i] = Prediction(records[i], label, shares[label], details, traced)
            progress(len(indices))
        return [found[i] for i in range(len(records))]

    def _notes(self, vocabulary: Vocabulary, record: Record, words: tuple[list[str], list[str]]) -> list[str]:
        """Return messages about what was not read, and about words that are not known."""
        data = self.config.data
        notes = []
        if data.hypothesis_only:
            notes.append("this run is a baseline that does not read the premise (data.hypothesis_only)")
        for name, read in zip(("premise", "hypothesis"), words):
            total = len(words_of(record[name]))
            if len(read) < total and not (data.hypothesis_only and name == "premise"):
                notes.append(f"only the first {len(read)} of {total} words of the {name} were read (data.max_words)")
        given = [word for side in words for word in side if word != NOTHING]
        unknown = [word for word in given if word not in vocabulary]
        if 2 * len(unknown) > len(given):
            origin = data.path or "built-in pairs (data.hypernyms)"
            notes.append(unknown_note("words", unknown, len(given), vocabulary.words, origin))
        return notes

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: EntailLexicon,
        records: Sequence[Record],
        options: EntailOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return accuracy, macro F1, nats per pair, the confusion, each label, and two baselines.

        The baselines are those of the training pairs: the most frequent label, and naive Bayes over the words of the
        hypothesis.
        """
        pairs = [SentencePair(record["premise"], record["hypothesis"], record["label"]) for record in records]
        examples = self._examples(pairs, assets, "evaluate")
        longest = int(examples.lengths.max())
        batches: TokenBatches[PairBatch] = TokenBatches(examples, max_tokens=max(options.batch_tokens, longest))
        loss, counts = _confusion(model, batches)
        progress(len(records))
        most, baseline = self.config.data.max_words, assets.baseline
        metrics: dict[str, float | int] = {
            "pairs": len(pairs),
            "accuracy": label_metrics.accuracy(counts),
            "macro_f1": label_metrics.macro_f1(counts),
            "loss": loss,
            "majority": _mean(pair.label == baseline.majority for pair in pairs),
            "hypothesis_bayes": _mean(baseline.predict(words_of(pair.hypothesis)) == pair.label for pair in pairs),
            "truncated": sum(max(len(words_of(text)) for text in pair[:2]) > most for pair in pairs),
        }
        notes = {
            "majority_label": baseline.majority,
            "baselines": "accuracy of the most frequent label (majority) and of naive Bayes over the words of the "
            "hypothesis alone (hypothesis_bayes), both counted in the training pairs",
        }
        if self.config.data.hypothesis_only:
            notes["hypothesis_only"] = "this run is a baseline that does not read the premise"
        return Evaluation(metrics, notes, label_tables(assets.labels, counts, kind="label", unit="pairs"))

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the confusion."""
        draw_confusion(evaluation.tables["confusion"], path, kind="label", unit="pairs")


def _all(splits: Mapping[str, list[SentencePair]]) -> list[SentencePair]:
    return [pair for pairs in splits.values() for pair in pairs]


def _mean(values: Iterable[bool]) -> float:
    return float(np.mean([float(value) for value in values]))


def _numbers(pairs: Iterable[SentencePair], labels: Sequence[str], use: str) -> list[int]:
    fix = "data.labels gives labels other names."
    return number_labels((pair.label for pair in pairs), labels, "a pair", use, fix)


def _confusion(model: nn.Module, batches: TokenBatches[PairBatch]) -> tuple[float, NDArray[np.int64]]:
    """Return nats per pair, and the confusion."""
    total, classes = 0.0, 0
    targets: list[int] = []
    predicted: list[int] = []
    device = next(model.parameters()).device
    for batch in batches.epoch(0):
        premise, hypothesis, labels = (tensor.to(device) for tensor in batch)
        logits = model(premise, hypothesis).logits.float()
        total += float(F.cross_entropy(logits, labels, reduction="sum"))
        targets += labels.tolist()
        predicted += logits.argmax(dim=-1).tolist()
        classes = logits.shape[1]
    return total / len(targets), label_metrics.confusion(targets, predicted, classes)


def _trace(
    entailed: EntailerOutput, row: int, words: tuple[list[str], list[str]], null: bool, label: str, share: float
) -> Trace:
    """Return what the words of each sentence, or the hypothesis as a whole, attended to in the other one."""
    premise, hypothesis = ([NOTHING, *side] if null else side for side in words)
    axes = {
        "premise": Axis.from_tokens(premise, "premise"),
        "hypothesis": Axis.from_tokens(hypothesis, "hypothesis"),
        "label": Axis.from_tokens([label], "label"),
    }
    whole = "premise" in entailed.attentions and entailed.attentions["premise"].shape[1] == 1 < len(hypothesis)
    sides = {"premise": ("label" if whole else "hypothesis", "premise"), "hypothesis": ("premise", "hypothesis")}
    return Trace.from_handles(
        entailed.attentions,
        axes,
        axes_of={name: sides[name] for name in entailed.attentions},
        row=row,
        text=label,
        metadata={"probability": share},
    )


def _quoted(pair: SentencePair) -> str:
    premise, hypothesis = (text if len(text) <= 60 else f"{text[:59]}…" for text in pair[:2])
    return f"{printable(premise)!r} / {printable(hypothesis)!r} → {printable(pair.label)!r}"
