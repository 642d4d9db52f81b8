"""Any number of labels per example, for tasks that else give each input one: a sigmoid and a loss for each label.

A label that is a tuple has several names, or none. Which of the two a run does follows from its training data
(``data.multi_label``), and is kept in its configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from foci.data.batching import Indices
from foci.errors import ConfigError, DataError
from foci.metrics.multi_label import LabelCounts
from foci.printable import printable
from foci.tasks.frame.baselines import most_frequent
from foci.tasks.frame.file_task import shortened
from foci.tasks.frame.labels.task import Encoded, LabelTask, Scored, score_batch
from foci.tasks.frame.notes import left_out
from foci.tasks.frame.prediction_loop import predict_in_batches
from foci.tasks.frame.scores import UNTRAINED, Scores, calibration_table
from foci.tasks.frame.task import Evaluation, Log, Prediction, Progress, Record, Splits, Table
from foci.training.objective import Loss

THRESHOLD = 0.5
"""The probability from which on a label is given."""
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class MultiLabelTask(LabelTask):
    """A task whose examples have one label, or any number of them: ``data.multi_label`` is auto, true or false."""

    baseline_types: ClassVar[Mapping[str, Any]] = {**LabelTask.baseline_types, "labels": list[str]}

    @property
    def multi_label(self) -> bool:
        """Whether the run gives any number of labels."""
        return self.config.data.multi_label is True

    def labels_of(self, example: Any) -> tuple[str, ...]:
        """Return the labels of an example."""
        return (example[-1],) if isinstance(example[-1], str) else tuple(example[-1])

    def show(self, example: Any) -> str:
        """Return the input and its labels."""
        return shortened(*example[:-1], ", ".join(self.labels_of(example)))

    def settle_labels(self, train: Sequence[Any], log: Log) -> None:
        """Replace ``data.multi_label = auto`` by what the training examples have, and log it."""
        data = self.config.data
        several = sum(len(self.labels_of(one)) > 1 for one in train)
        without = sum(not self.labels_of(one) for one in train)
        if data.multi_label == "auto":
            data = replace(data, multi_label=several > 0)
            self.config = replace(self.config, data=data)
        if data.multi_label:
            log(
                f"{several:,} of {len(train):,} {self.unit} have several labels, {without:,} none: each label gets a "
                f"probability of its own (data.multi_label = true)"
            )
        elif several or without:
            raise DataError(
                f"{data.path}, line 1: {several:,} {self.unit} have several labels and {without:,} none, expected one "
                "each. Set data.multi_label=true, or correct them."
            )

    def number_labels(self, examples: Iterable[Any], labels: Sequence[str], use: str) -> list[Any]:
        """Return the number of the label of each example; of several labels 1 for each that it has, else 0."""
        examples = list(examples)
        if not self.multi_label:
            for one in examples:
                if len(self.labels_of(one)) != 1:
                    raise DataError(
                        f"{self.example} to {use} has {len(self.labels_of(one))} labels, but this run gives one each "
                        "(data.multi_label = false). Train with data that has several."
                    )
            return super().number_labels([_with_label(one, *self.labels_of(one)) for one in examples], labels, use)
        flat = [_with_label(one, label) for one in examples for label in self.labels_of(one)]
        numbers = iter(super().number_labels(flat, labels, use))
        rows = np.zeros((len(examples), len(labels)), np.int64)
        for row, one in zip(rows, examples):
            row[[next(numbers) for _ in self.labels_of(one)]] = 1
        return list(rows)

    def count_baselines(self, splits: Splits) -> dict[str, Any]:
        """Return the most frequent label, or the most frequent set of labels."""
        if not self.multi_label:
            return super().count_baselines(splits)
        return {"labels": list(most_frequent(tuple(sorted(self.labels_of(one))) for one in splits.train))}

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Return the binary cross-entropy, the mean over all labels, summed over the examples."""
        if not self.multi_label:
            return super().loss(model, batch)
        *inputs, labels = batch
        logits = model(*inputs).logits.float()
        right = ((logits > 0) == labels.bool()).all(dim=-1).sum()
        nats = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum") / labels.shape[1]
        return Loss(nats, len(labels), {"accuracy": right})

    def validate(self, model: nn.Module, held_out: Encoded) -> dict[str, float]:
        """Return nats per label, their temperature, the share with exactly the right labels, and macro F1."""
        if not self.multi_label:
            return super().validate(model, held_out)
        measured = _Measured(score_batch(model, held_out, one) for one in self.validation_order(held_out))
        exact = measured.counts(THRESHOLD).metrics()
        return {**measured.scores.fit(), **{name: exact[name] for name in ("accuracy", "macro_f1")}}

    def chance(self, held_out: Encoded) -> float:
        """Return the nats of equal probabilities: of two for each label."""
        return math.log(2) if self.multi_label else super().chance(held_out)

    def empty_details(self, assets: Any) -> dict[str, Any]:
        """Return no labels and no probabilities."""
        return {**({"labels": []} if self.multi_label else {}), **super().empty_details(assets)}

    def predict(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, trace: bool, progress: Progress
    ) -> list[Prediction]:
        """Return all labels of each record that are likely enough; the score is the probability of exactly these."""
        if not self.multi_label:
            _refuse_threshold(options)
            return super().predict(model, assets, records, options, trace, progress)
        if options.top_k > 1:
            raise ConfigError(
                f"top_k is {options.top_k}, but this run gives all labels that are likely enough, with the "
                "probabilities of all. Set threshold for more or fewer of them."
            )
        threshold = THRESHOLD if options.threshold is None else options.threshold
        examples = [self.Example(*(record[one.name] for one in self.inputs), "") for record in records]
        encoded = self.encode(examples, [UNTRAINED] * len(examples), assets, None)
        batches = encoded.in_order(options.batch_size) if self.in_order else encoded.by_length(options.batch_tokens)

        def answer(indices: Indices) -> Iterator[Prediction]:
            scored = score_batch(model, encoded, indices)
            view = self.view(model, scored) if trace else None
            rows = (scored.output.logits.float().cpu() / self.temperature()).sigmoid().numpy()
            for row, number in zip(range(len(rows)), scored.numbers):
                given = rows[row] >= threshold
                labels = [label for label, is_given in zip(assets.labels, given) if is_given]
                score = float(np.where(given, rows[row], 1 - rows[row]).prod())
                notes = self.notes(examples[number], assets)
                if not labels:
                    notes = [*notes, f"no label has a probability of {threshold} or more"]
                details: dict[str, Any] = {
                    "labels": labels,
                    "probabilities": dict(zip(assets.labels, rows[row].tolist())),
                }
                text = ", ".join(labels)
                traced = self.trace(view, row, examples[number], text, score) if trace else None
                yield Prediction(records[number], text, score, details | ({"notes": notes} if notes else {}), traced)

        return predict_in_batches(records, batches, answer, progress, unusable=encoded.unusable, numbers=encoded.rows)

    def evaluate(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, progress: Progress
    ) -> Evaluation:
        """Return exact matches, micro and macro F1, nats per label, F1 of each, and metrics by threshold."""
        if not self.multi_label:
            _refuse_threshold(options)
            return super().evaluate(model, assets, records, options, progress)
        examples = [self.Example(*(record[name] for name in self.Example._fields)) for record in records]
        encoded = self._encoded(examples, assets, "evaluate")
        progress(len(encoded.unusable))

        def batches() -> Iterator[Scored]:
            for indices in encoded.shuffled(options.batch_tokens):
                yield score_batch(model, encoded, indices)
                progress(len(indices))

        measured = _Measured(batches(), self.temperature())
        threshold = THRESHOLD if options.threshold is None else options.threshold
        counts = measured.counts(threshold)
        metrics: dict[str, float | int] = {self.unit: counts.examples}
        if encoded.truncated is not None:
            metrics["truncated"] = encoded.truncated
        metrics |= counts.metrics() | measured.scores.metrics()
        guessed = measured.if_always(assets.labels, self.baselines.get("labels"))
        metrics |= guessed.metrics
        notes = {
            "threshold": f"labels with a probability of {threshold} or more are given; accuracy counts {self.unit} "
            "with exactly the right ones, loss is nats per label",
            **guessed.notes,
            **self.calibration_note(),
            **measured.scores.notes(),
            **left_out(assets.labels, (counts.right + counts.predicted).tolist(), "label"),
        }
        f1 = [None if np.isnan(value) else float(value) for value in counts.f1()]
        each = zip(assets.labels, map(int, counts.right), map(int, counts.predicted), map(int, counts.both), f1)
        return Evaluation(
            metrics,
            notes,
            {
                "labels": Table(("label", self.unit, "predicted", "right", "f1"), tuple(each)),
                "thresholds": measured.by_threshold(),
                "calibration": calibration_table(measured.scores.bins(), "labels"),
            },
        )

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the confusion, which several labels per example do not have."""
        if self.multi_label:
            raise ConfigError("an evaluation with several labels per example has no confusion to draw.")
        super().draw(evaluation, path)

    def expected(self, record: Record) -> str:
        """Return the labels of a record as a prediction gives them."""
        label = record[self.Example._fields[-1]]
        return label if isinstance(label, str) else ", ".join(sorted(label))


class _Measured:
    """The probabilities of all labels of some examples, and which of them are right.

    Args:
        batches: what was scored.
        temperature: what the scores are divided by.
    """

    def __init__(self, batches: Iterable[Scored], temperature: float = 1.0) -> None:
        logits, labels = zip(*((one.output.logits.float().cpu(), one.labels) for one in batches))
        every, right = torch.cat(logits), torch.cat(labels)
        self.probabilities, self.right = (every / temperature).sigmoid().numpy(), right.numpy() > 0
        # A sigmoid is a softmax of the score and of 0: each label of each example is a choice of two.
        self.scores = Scores(temperature)
        self.scores.add(torch.stack([torch.zeros_like(every), every], dim=-1).flatten(0, 1), right.flatten())

    def counts(self, threshold: float) -> LabelCounts:
        """Count labels, given those of at least this probability."""
        return LabelCounts.from_rows(self.right, self.probabilities >= threshold)

    def if_always(self, labels: Sequence[str], given: Sequence[str] | None) -> Evaluation:
        """Return what always giving the same labels reaches; nothing where none are known, in runs of before."""
        if given is None:
            return Evaluation({}, {}, {})
        rows = np.tile(np.isin(labels, given), (len(self.right), 1))
        found = LabelCounts.from_rows(self.right, rows).metrics()
        metrics = {"majority": found["accuracy"], "majority_micro_f1": found["micro_f1"]}
        shown = ", ".join(map(printable, given)) or "none"
        return Evaluation(metrics, {"baselines": f"majority: always the most frequent labels together: {shown}"}, {})

    def by_threshold(self) -> Table:
        """Return the metrics for some thresholds."""
        measured = {threshold: self.counts(threshold).metrics() for threshold in _THRESHOLDS}
        names = tuple(measured[THRESHOLD])
        rows = tuple((threshold, *(values[name] for name in names)) for threshold, values in measured.items())
        return Table(("threshold", *names), rows)


def _with_label(example: Any, label: str) -> Any:
    return example._replace(**{example._fields[-1]: label})


def _refuse_threshold(options: Any) -> None:
    if options.threshold is not None:
        raise ConfigError(
            f"threshold is {options.threshold}, but this run gives one label each (data.multi_label = false), so it "
            "has no effect. Leave it out."
        )
