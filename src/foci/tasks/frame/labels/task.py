"""The base of tasks that give each input one label: a class, an answer, the relation of two sentences.

It owns reading, batching, loss, validation, predictions, evaluation and the picture of the confusion. A task supplies
how its files are read and split, its assets and its model, how examples are encoded, and how the weights of one of them
become a trace.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foci.data.batching import Examples, Indices, TokenBatches, plan_batches
from foci.data.splits import Parts
from foci.errors import DataError
from foci.metrics import labels as label_metrics
from foci.metrics.calibration import fit_share
from foci.printable import printable
from foci.probing.subject import Source
from foci.tasks.frame.baselines import most_frequent
from foci.tasks.frame.file_task import LOGGED_LABELS, FileTask, log_labels, shortened
from foci.tasks.frame.notes import left_out
from foci.tasks.frame.prediction_loop import by_length, predict_in_batches
from foci.tasks.frame.probing.traces import TracedPass, text_sources
from foci.tasks.frame.scores import UNTRAINED, Scores, calibration_table
from foci.tasks.frame.task import Evaluation, Log, Prediction, Progress, Record, Shard, Splits, Table
from foci.training.objective import Batches, Loss
from foci.viz.trace import Trace


@dataclass(frozen=True)
class Encoded:
    """Examples as tensors. A batch is the model's inputs and, at last, the numbers of the labels."""

    examples: Examples[tuple[Tensor, ...]]
    truncated: int | None = None
    """How many of them have a text of which only the first words are read; None if that is not counted."""
    unusable: Mapping[int, str] = field(default_factory=dict)
    """Which of the given examples are left out, by number, and why."""
    rows: Callable[[Indices], list[int]] = np.ndarray.tolist
    """Returns which of the given examples the rows of a batch are."""
    classes: int = 0
    """Number of labels that were trained."""
    vote: Float[NDArray[np.float32], "N C"] | None = None
    """The scores of a linear classifier that votes beside the network, by the numbers of the given examples."""

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """``(example, tensor)``, as in `foci.data.batching.Examples`."""
        return self.examples.lengths

    def batch(self, indices: Indices) -> tuple[Tensor, ...]:
        """Return these examples, padded to the longest of them."""
        return self.examples.batch(indices, self.lengths[indices].max(axis=0).tolist())

    def in_order(self, batch_size: int) -> Iterator[Indices]:
        """Yield the numbers of the examples in their order, ``batch_size`` at once."""
        numbers = np.arange(len(self.lengths))
        return (numbers[start : start + batch_size] for start in range(0, len(numbers), batch_size))

    def by_length(self, batch_tokens: int) -> Iterator[Indices]:
        """Yield the numbers of examples of about equal length, the longest first."""
        return map(np.array, by_length(self.lengths.max(axis=1, initial=0).tolist(), batch_tokens))

    def shuffled(self, batch_tokens: int) -> list[Indices]:
        """Return the numbers of examples of about equal length, in random order: the batches of `TokenBatches`."""
        return plan_batches(self.lengths, max(batch_tokens, int(self.lengths.max(initial=1))))


class Scored(NamedTuple):
    """A batch that the model has read: the numbers of its examples, its inputs, and the model's output."""

    numbers: list[int]
    inputs: tuple[Tensor, ...]
    labels: Tensor
    output: Any


class LabelTask(FileTask):
    """A task that gives each input one of the labels of its training examples.

    An example is a named tuple of the input fields and, at last, the label; the assets have ``labels``.
    """

    Example: ClassVar[type[Any]]
    """The named tuple of an example."""
    example: ClassVar[str]
    """What an example is called in messages: "a document"."""
    kind: ClassVar[str] = "class"
    """What a label is called."""
    baseline_types: ClassVar[Mapping[str, Any]] = {"majority": str}
    compared_note: ClassVar[str] = ""
    """What the further baselines of an evaluation are."""
    unknown_label_hint: ClassVar[str] = ""
    """How to fix a label that the training data does not have."""
    in_order: ClassVar[bool] = False
    """Whether inputs are read in their order, ``batch_size`` at once, and not by their length."""
    open_labels: ClassVar[bool] = False
    """Whether a held-out label that was not trained counts as wrong, rather than being a mistake of the data."""
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "calibrated_loss": "lower",
        "accuracy": "higher",
        "macro_f1": "higher",
    }

    maps: ClassVar[frozenset[str]] = frozenset()
    """Attentions of a trace whose rows are maps of their own, such as those of hops."""
    token_inputs: ClassVar[Mapping[str, int]] = {}
    """Of the axes of a trace that are words, which of the model's inputs has their ids."""

    # ---- what a task supplies

    @abstractmethod
    def encode(self, examples: Sequence[Any], labels: Sequence[int], assets: Any, log: Log | None) -> Encoded:
        """Return examples as tensors; ``labels`` has the number of the label of each."""

    @abstractmethod
    def trace(self, view: Any, row: int, example: Any, label: str, probability: float) -> Trace:
        """Return the attention weights of a row of a batch, given what `view` returned for the batch."""

    def view(self, model: nn.Module, scored: Scored) -> Any:
        """Return what the traces of a batch are made of; the model's output by default."""
        return scored.output

    def notes(self, example: Any, assets: Any) -> list[str]:
        """Return messages about a prediction: what was not read, what is not known."""
        return []

    def probabilities(self, labels: Sequence[str], row: Float[NDArray[np.float32], " C"]) -> dict[str, float]:
        """Return the probabilities of a prediction that are reported, by label."""
        return dict(zip(labels, row.tolist()))

    def labels_of(self, example: Any) -> tuple[str, ...]:
        """Return the labels of an example."""
        return (example[-1],)

    def voter(self, assets: Any) -> str | None:
        """Return the name of the linear classifier whose scores are added to the network's, by the best share."""
        return None

    def linear_scores(
        self, examples: Sequence[Any], assets: Any, names: Sequence[str] | None = None
    ) -> dict[str, Float[NDArray[np.float32], "N C"]]:
        """Return the scores that linear classifiers give, by their names: of these, or of all; none by default."""
        return {}

    def _with_vote(self, encoded: Encoded, examples: Sequence[Any], assets: Any) -> Encoded:
        """Add the scores of the classifier that votes."""
        voter = self.voter(assets)
        return encoded if voter is None else replace(encoded, vote=self.linear_scores(examples, assets, [voter])[voter])

    def number_labels(self, examples: Iterable[Any], labels: Sequence[str], use: str) -> list[int]:
        """Return the number of the label of each example.

        Args:
            examples: the examples.
            labels: those of the training examples, in their order.
            use: what the examples are for: "train on", "validate" or "evaluate".

        Raises:
            DataError: a label that the training examples do not have, where `open_labels` is not set.
        """
        number = {label: place for place, label in enumerate(labels)}
        if self.open_labels:
            return [number.get(example[-1], UNTRAINED) for example in examples]
        for example in examples:
            if example[-1] not in number:
                raise DataError(
                    f"{self.example} to {use} has the label {example[-1]!r}, which the training data does not have: "
                    f"{', '.join(labels[:LOGGED_LABELS])}. {self.unknown_label_hint}".rstrip()
                )
        return [number[example[-1]] for example in examples]

    # ---- data

    def split_by_content(self, examples: list[Any], log: Log, **shares: Any) -> Parts:
        """Split; a held-out example whose label no other part of the data has is left out, counted and logged."""
        train, *held = super().split_by_content(examples, log, **shares)
        trained = {label for one in train for label in self.labels_of(one)}
        unknown = sorted({label for part in held for one in part for label in self.labels_of(one)} - trained)
        if not unknown or self.open_labels:
            return Parts(train, *held)
        known = [[one for one in part if trained.issuperset(self.labels_of(one))] for part in held]
        count = sum(map(len, held)) - sum(map(len, known))
        names = ", ".join(repr(printable(label)) for label in unknown[:LOGGED_LABELS])
        log(
            f"{count:,} held-out {self.unit} are left out: none of the {self.unit} to train on has their {self.kind} "
            f"({names}{', …' if len(unknown) > LOGGED_LABELS else ''})"
        )
        return Parts(train, *known)

    def read(self, log: Log) -> Splits:
        """Read, check and split the examples, and log their labels."""
        splits = super().read(log)
        data, train = self.config.data, list(splits.train)
        if data.path is None:
            return splits
        labels = sorted({label for example in train for label in self.labels_of(example)})
        if len(labels) < 2:
            raise DataError(
                f"{data.path}, line 1: all {len(train)} {self.unit} to train on have the {self.kind} {labels[0]!r}, "
                "expected at least two different ones."
            )
        for use, part in (("validate", splits.valid), ("evaluate", splits.test)):
            self.number_labels(part, labels, use)
        log_labels(
            (label for one in train for label in self.labels_of(one)),
            self.kind + ("es" if self.kind.endswith("s") else "s"),
            log,
        )
        return splits

    def count_baselines(self, splits: Splits) -> dict[str, Any]:
        """Return the most frequent label."""
        labels = [self.labels_of(one) for one in splits.train]
        return {"majority": most_frequent(one for (one,) in labels)} if all(len(one) == 1 for one in labels) else {}

    def compared(self, examples: Sequence[Any]) -> dict[str, float]:
        """Return the accuracy of each baseline; examples are those that the network has read."""
        if "majority" not in self.baselines:
            return {}
        return {"majority": sum(one[-1] == self.baselines["majority"] for one in examples) / len(examples)}

    def show(self, example: Any) -> str:
        """Return the input and its label."""
        return shortened(*example)

    def batches(self, splits: Splits, assets: Any, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training examples."""
        data = self.config.data
        encoded = self._encoded(splits.train, assets, "train on", log)
        if encoded.truncated:
            log(
                f"{encoded.truncated:,} {self.unit} have a text of more than {data.max_words} words; the rest of it is "
                "not read (data.max_words)"
            )
        return TokenBatches(encoded.examples, **self.batching(shard, self.batch_tokens, data.batch_size))

    @property
    def batch_tokens(self) -> int:
        """Largest number of tokens of a training batch."""
        tokens: int = self.config.data.batch_tokens
        return tokens

    def held_out(self, splits: Splits, assets: Any, log: Log) -> Encoded:
        """Encode the validation examples."""
        return self._encoded(splits.valid, assets, "validate", log)

    def _encoded(self, examples: Iterable[Any], assets: Any, use: str, log: Log | None = None) -> Encoded:
        examples = list(examples)
        encoded = self.encode(examples, self.number_labels(examples, assets.labels, use), assets, log)
        encoded = replace(encoded, classes=len(assets.labels))
        if use != "train on":
            encoded = self._with_vote(encoded, examples, assets)
        if len(encoded.unusable) == len(examples):
            raise DataError(
                f"none of the {len(examples)} {self.unit} to {use} can be read: {next(iter(encoded.unusable.values()))}"
            )
        return encoded

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Return the cross-entropy of the label, summed over the examples."""
        *inputs, labels = batch
        logits = model(*inputs).logits.float()
        right = (logits.argmax(dim=-1) == labels).sum()
        return Loss(F.cross_entropy(logits, labels, reduction="sum"), len(labels), {"accuracy": right})

    def validate(self, model: nn.Module, held_out: Encoded) -> dict[str, float]:
        """Return nats per example, the temperature that lowers them most, and metrics of the confusion."""
        found = []
        for indices in self.validation_order(held_out):
            scored = score_batch(model, held_out, indices)
            found.append((scored.numbers, scored.output.logits.float().cpu(), scored.labels))
        mixture = {}
        if held_out.vote is not None:
            linear = held_out.vote[[number for numbers, _, _ in found for number in numbers]]
            network = torch.cat([logits for _, logits, _ in found]).numpy()
            mixture = {"linear": fit_share(network, linear, torch.cat([labels for _, _, labels in found]).numpy())}
        scores = Scores()
        for numbers, logits, labels in found:
            scores.add(_mixed(logits, numbers, held_out, mixture), labels)
        weights = {f"mixture/{name}": value for name, value in mixture.items()}
        return {**scores.fit(), **self._accuracies(scores, held_out.classes), **weights}

    def chance(self, held_out: Encoded) -> float:
        """Return the nats of equal probabilities."""
        return math.log(held_out.classes)

    def _accuracies(self, scores: Scores, classes: int) -> dict[str, float]:
        values = {
            "accuracy": sum(scores.right) / len(scores.targets),
            "macro_f1": label_metrics.macro_f1(_confusion(scores, classes)),
        }
        return {name: value for name, value in values.items() if name in self.metrics}

    def validation_order(self, held_out: Encoded) -> Iterable[Indices]:
        """Return which validation examples are scored together."""
        return held_out.shuffled(self.batch_tokens)

    # ---- predictions

    def empty_details(self, assets: Any) -> dict[str, Any]:
        """Return no probabilities."""
        return {"probabilities": {}}

    def predict(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, trace: bool, progress: Progress
    ) -> list[Prediction]:
        """Return the likeliest labels of each record, and the probabilities of all; see `Task.predict`."""
        examples = [self.Example(*(record[one.name] for one in self.inputs), "") for record in records]
        encoded = self.encode(examples, [UNTRAINED] * len(examples), assets, None)
        encoded = self._with_vote(encoded, examples, assets)
        batches = encoded.in_order(options.batch_size) if self.in_order else encoded.by_length(options.batch_tokens)

        def answer(indices: Indices) -> Iterator[Prediction]:
            scored = score_batch(model, encoded, indices)
            view = self.view(model, scored) if trace else None
            alone = scored.output.logits.argmax(dim=-1).tolist()
            logits = _mixed(scored.output.logits.float().cpu(), scored.numbers, encoded, self.mixture)
            rows = (logits / self.temperature()).softmax(dim=-1).numpy()
            for row, number in enumerate(scored.numbers):
                best = np.argsort(-logits[row].numpy(), kind="stable")[: options.top_k].tolist()
                label, probability = assets.labels[best[0]], float(rows[row][best[0]])
                others = [Prediction(records[number], assets.labels[k], float(rows[row][k])) for k in best[1:]]
                details: dict[str, Any] = {"probabilities": self.probabilities(assets.labels, rows[row])}
                notes = self.notes(examples[number], assets)
                if alone[row] != best[0]:
                    said = repr(printable(assets.labels[alone[row]]))
                    notes.append(
                        f"the network alone, whose attention a trace shows, says {said}; "
                        "the linear classifier outvotes it (model.linear)"
                    )
                if notes:
                    details["notes"] = notes
                traced = self.trace(view, row, examples[number], label, probability) if trace else None
                yield Prediction(records[number], label, probability, details, traced, tuple(others))

        return predict_in_batches(records, batches, answer, progress, unusable=encoded.unusable, numbers=encoded.rows)

    def traced_pass(self, model: nn.Module, assets: Any, record: Record) -> TracedPass:
        """Return how the model reads an input; of answers by a vote, the answer is the network's."""
        (prediction,) = self.predict(model, assets, [record], self.Options(), True, lambda done: None)
        if prediction.trace is None:
            raise DataError(f"probe: {prediction.details.get('notes', 'the input cannot be read')}")
        example = self.Example(*(record[one.name] for one in self.inputs), "")
        *encoded, _ = self.encode([example], [UNTRAINED], assets, None).batch(np.array([0]))
        inputs, sources = self.erasable(encoded, prediction.trace, record)

        def probabilities(output: Any) -> Tensor:
            scores: Tensor = output.logits.float() / self.temperature()
            return scores.softmax(dim=-1)

        return TracedPass(inputs, sources, prediction.trace, probabilities, apart=self.maps)

    def erasable(
        self, encoded: Sequence[Any], trace: Trace, record: Record
    ) -> tuple[Sequence[Any], Mapping[str, Source]]:
        """Return an encoded input as the model takes it, and what of it can be erased, by the axis of the trace."""
        if not self.token_inputs:
            raise self.not_erasable()
        return encoded, text_sources(trace, self.token_inputs)

    # ---- evaluation

    def evaluate(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, progress: Progress
    ) -> Evaluation:
        """Return the metrics of the confusion, nats per example, the confusion, and metrics of each label."""
        return self.measure(model, assets, records, options, progress)

    def measure(
        self,
        model: nn.Module,
        assets: Any,
        records: Sequence[Record],
        options: Any,
        progress: Progress,
        observe: Callable[[Any, list[Any]], None] | None = None,
    ) -> Evaluation:
        """Evaluate; ``observe`` is called with the view of each batch and its examples."""
        examples = [self.Example(*(record[name] for name in self.Example._fields)) for record in records]
        encoded = self._encoded(examples, assets, "evaluate")
        progress(len(encoded.unusable))
        order = encoded.in_order(options.batch_size) if self.in_order else encoded.shuffled(options.batch_tokens)
        scores = Scores(self.temperature())
        linear = self.linear_scores(examples, assets)
        alone: dict[str, list[bool]] = {name: [] for name in (*linear, "network")}
        for indices in order:
            scored = score_batch(model, encoded, indices)
            logits = scored.output.logits.float().cpu()
            scores.add(_mixed(logits, scored.numbers, encoded, self.mixture), scored.labels)
            given = {name: torch.from_numpy(one[scored.numbers]) for name, one in linear.items()} | {"network": logits}
            for name, one in given.items():
                alone[name] += (one.argmax(dim=-1) == scored.labels).tolist()
            if observe is not None:
                observe(self.view(model, scored), [examples[number] for number in scored.numbers])
            progress(len(scored.numbers))
        counts: dict[str, float | int] = {self.unit: len(scores.targets)}
        if encoded.truncated is not None:
            counts["truncated"] = encoded.truncated
        notes = {**self.calibration_note(), **scores.notes()}
        if unknown := scores.targets.count(UNTRAINED):
            notes[f"unknown_{self.kind}s"] = f"{unknown} {self.kind}s were not trained, and count as wrong"
        confusion = _confusion(scores, len(assets.labels))
        if "macro_f1" in self.metrics:
            notes |= left_out(assets.labels, label_metrics.occurring(confusion).tolist(), self.kind)
        metrics = counts | self._accuracies(scores, len(assets.labels)) | scores.metrics()
        metrics |= self.compared([one for number, one in enumerate(examples) if number not in encoded.unusable])
        if "majority" in metrics:
            notes["baselines"] = f"majority: always {printable(str(self.baselines['majority']))!r}{self.compared_note}"
        if linear:
            metrics |= {f"{name}_accuracy": sum(right) / len(right) for name, right in alone.items()}
            notes["linear"] = (
                "linear_accuracy: TF-IDF of words and pairs with logistic regression, of the same training data; "
                + ("ngram_accuracy: with character n-grams and naive Bayes, " * ("ngram" in linear))
                + f"its share in the scores is {self.mixture.get('linear', 0.0):.3g}; "
                "network_accuracy: the network alone"
            )
        tables = self._tables(assets.labels, confusion)
        return Evaluation(metrics, notes, tables | {"calibration": calibration_table(scores.bins(), self.unit)})

    def _tables(self, labels: Sequence[str], counts: label_metrics.Confusion) -> dict[str, Table]:
        """Return the table ``confusion``, and ``classes`` with the metrics of each label."""
        rows = tuple((label, *map(int, row)) for label, row in zip(labels, counts))
        f1 = [None if np.isnan(value) else float(value) for value in label_metrics.f1_per_class(counts)]
        each = tuple(zip(labels, map(int, counts.sum(axis=1)), map(int, counts.sum(axis=0)), f1))
        return {
            "confusion": Table((f"{self.kind} \\ predicted", *labels), rows),
            "classes": Table((self.kind, self.unit, "predicted", "f1"), each),
        }

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the confusion."""
        from foci.viz.figure.heatmap import heatmap

        table = evaluation.tables["confusion"]
        counts = [list(row[1:]) for row in table.rows]
        heatmap(
            counts,
            path,
            rows=list(table.columns[1:]),
            columns=list(table.columns[1:]),
            texts=[[str(count) for count in row] for row in counts],
            row_axis=self.kind,
            column_axis="predicted",
            scale=self.unit,
        )


def _mixed(logits: Tensor, numbers: list[int], encoded: Encoded, mixture: Mapping[str, float]) -> Float[Tensor, "B C"]:
    """Return the scores of the network for these examples, and those of the linear classifier by its share."""
    share = mixture.get("linear", 0.0)
    if encoded.vote is None or share == 0:
        return logits
    return (1 - share) * logits + share * torch.from_numpy(encoded.vote[numbers])


def _confusion(scores: Scores, classes: int) -> label_metrics.Confusion:
    """Return the confusion of examples whose label was trained."""
    known = [pair for pair in zip(scores.targets, scores.best) if pair[0] != UNTRAINED]
    targets, predicted = zip(*known) if known else ((), ())
    return label_metrics.confusion(targets, predicted, classes)


def score_batch(model: nn.Module, encoded: Encoded, indices: Indices) -> Scored:
    """Return what the model says of these examples."""
    device = next(model.parameters()).device
    *inputs, labels = encoded.batch(indices)
    return Scored(encoded.rows(indices), tuple(inputs), labels, model(*(one.to(device) for one in inputs)))
