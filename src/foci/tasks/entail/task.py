"""Textual entailment: whether a premise entails a hypothesis, contradicts it, or neither; probabilities by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import nn

from foci.data.batching import PaddedExamples, Sequences
from foci.data.splits import Parts, pair_key, text_key
from foci.data.tables import Column as TableColumn
from foci.models.decomposable import DecomposableEntailer
from foci.models.entailer import ConditionalEntailer, EntailerOutput
from foci.models.options.words import DecomposableEntailerOptions
from foci.printable import printable
from foci.tasks.entail.baseline import HypothesisBayes
from foci.tasks.entail.builtin import hypernym_pairs
from foci.tasks.entail.config import BUILT_IN, EntailConfig, EntailEvaluateOptions, EntailOptions
from foci.tasks.entail.reader import PREMISE, SentencePair, read_entailment
from foci.tasks.frame.assets import Labels
from foci.tasks.frame.labels.task import Encoded, LabelTask, Scored
from foci.tasks.frame.notes import truncated, unknown_words
from foci.tasks.frame.task import Evaluation, Field, Log, NamedAxes, Progress, Record, Splits
from foci.tasks.frame.vocabulary import WordAssets, count_with_vectors, take_vectors
from foci.viz.trace import Axis, Trace

NOTHING = "∅"
"""What stands for a premise that is not read, and for the word that has no counterpart."""
_BUCKETS = 100
"""Ids of unknown words: equal unknown words match, different ones rarely do."""


@dataclass(frozen=True)
class EntailAssets(WordAssets):
    """The words and the labels of a run; the order of the labels is that of the model's scores."""

    labels: Labels
    baseline: HypothesisBayes

    def check(self) -> None:
        """Raise a ValueError if the baseline has other labels."""
        if self.baseline.labels.keys() != {*self.labels}:
            raise ValueError("the labels of baseline.json are not those of labels.json")


class Entail(LabelTask):
    """The textual entailment task."""

    name = "entail"
    Config = EntailConfig
    Options = EntailOptions
    EvaluateOptions = EntailEvaluateOptions
    Assets = EntailAssets
    Example = SentencePair
    inputs = (Field("premise", "sentence"), Field("hypothesis", "sentence"))
    targets = (Field("label", "label"),)
    token_inputs: ClassVar[Mapping[str, int]] = {"premise": 0, "hypothesis": 1}
    noun = unit = "pairs"
    example = "a pair"
    kind = "label"
    unknown_label_hint = "data.labels gives labels other names."
    about = "premise (case, punctuation and spaces aside)"
    builtin_sizes = (BUILT_IN, 150, 600)

    config: EntailConfig

    # ---- data

    def read_parts(self, log: Log) -> Parts:
        """Read the pairs; a file may say which of them are for training, validation and test."""
        data = self.config.data
        parts = self._read(data.path or "", log)
        valid = parts.get("valid") if data.valid is None else self.read_file(data.valid, log)
        test = parts.get("test") if data.test is None else self.read_file(data.test, log)
        shares = data.shares
        if valid is not None:
            shares["valid_share"] = 0.0
        if test is not None:
            shares["test_share"] = 0.0
        held = self.split_by_content(parts.get("", []) + parts.get("train", []), log, **shares)
        return Parts(held.train, held.valid if valid is None else valid, held.test if test is None else test)

    def key_column(self) -> TableColumn:
        """Return the column of the premise."""
        columns = self.config.data.columns
        return PREMISE if columns is None else columns[0]

    def key(self, example: SentencePair) -> str:
        """Return the premise: all pairs of a premise are in one part."""
        return text_key(example.premise)

    def twins(self, examples: Sequence[SentencePair]) -> list[str]:
        """Return both sentences of each, whichever comes first."""
        return [pair_key(one.premise, one.hypothesis) for one in examples]

    def read_file(self, path: str, log: Log | None = None) -> list[SentencePair]:
        """Read all pairs of a file, whatever parts it names."""
        return [pair for part in self._read(path, log).values() for pair in part]

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read pairs in the form of the training data; of a file with parts the pairs for tests, if it has any."""
        pairs = []
        for path in paths:
            parts = self._read(path)
            pairs += parts.get("test") or [pair for part in parts.values() for pair in part]
        return [pair._asdict() for pair in pairs]

    def _read(self, path: str, log: Log | None = None) -> Mapping[str, list[SentencePair]]:
        data = self.config.data
        file = read_entailment(
            path,
            columns=data.columns,
            split=data.split,
            names=data.labels,
        )
        if file.unlabeled and log is not None:
            log(f"{file.unlabeled:,} pairs of {path} have no agreed label (“-”) and are left out")
        return file.splits

    def read_builtin(self, size: int, part: str) -> list[SentencePair]:
        """Return scenes in which words are replaced by what they are kinds of."""
        return hypernym_pairs(size, language=self.config.data.language, split=part)

    def _words(self, pair: SentencePair) -> tuple[list[str], list[str]]:
        """Return the words that are read of a pair."""
        data = self.config.data
        premise = [NOTHING] if data.hypothesis_only else self.splitter.words(pair.premise)
        return premise[: data.max_words], self.splitter.words(pair.hypothesis)[: data.max_words]

    # ---- model

    def assets(self, splits: Splits, log: Log) -> EntailAssets:
        """Count words, list the labels, and count what the hypotheses alone tell."""
        pairs: list[SentencePair] = list(splits.train)
        hypotheses = [self.splitter.words(pair.hypothesis) for pair in pairs]
        sentences = [*hypotheses, *(self.splitter.words(pair.premise) for pair in pairs)]
        counted = count_with_vectors(self.config.vocabulary, sentences, _BUCKETS)
        labels = tuple(sorted({pair.label for pair in pairs}))
        names = ", ".join(printable(label) for label in labels)
        log(f"{len(labels)} labels in this order: {names}; {counted.trained - 1:,} words with a learned vector")
        baseline = HypothesisBayes.count(zip(hypotheses, (pair.label for pair in pairs)))
        return EntailAssets(counted.vocabulary, counted.trained, counted.vector_dim, labels, baseline)

    def model(self, assets: EntailAssets) -> nn.Module:
        """Build the model for these words and labels."""
        sizes = (len(assets.vocabulary), assets.trained, assets.vector_dim, len(assets.labels))
        options = self.config.model
        if isinstance(options, DecomposableEntailerOptions):
            return DecomposableEntailer(*sizes, options)
        return ConditionalEntailer(*sizes, options)

    def initialize(self, model: nn.Module, assets: EntailAssets, log: Log) -> None:
        """Take over the word vectors of a file, if one is named."""
        if (path := self.config.vocabulary.vectors) is not None:
            weight = model.get_parameter("inputs.vectors.weight")
            take_vectors(weight, path, assets.vocabulary, log, assets.trained)

    def named_axes(self, assets: EntailAssets) -> NamedAxes:
        """Return which rows of the weights are words, and which are labels."""
        words = assets.vocabulary.names
        return {
            "inputs.embedding.weight": ([*words[: assets.trained], "<unknown>"],),
            "inputs.vectors.weight": (words,),
            "output.weight": (assets.labels,),
            "output.bias": (assets.labels,),
        }

    # ---- examples and traces

    def encode(
        self, examples: Sequence[SentencePair], labels: Sequence[int], assets: EntailAssets, log: Log | None
    ) -> Encoded:
        """Return the word ids of both sentences."""
        most, vocabulary = self.config.data.max_words, assets.vocabulary
        ids = [tuple(map(vocabulary.ids, self._words(pair))) for pair in examples]
        columns = {
            name: Sequences((pair[side] for pair in ids), len(vocabulary))
            for side, name in enumerate(("premise", "hypothesis"))
        }
        longer = sum(max(len(self.splitter.words(text)) for text in pair[:2]) > most for pair in examples)
        return Encoded(PaddedExamples(columns, labels=labels), longer)

    def notes(self, example: SentencePair, assets: EntailAssets) -> list[str]:
        """Return messages about what was not read, and about words that are not known."""
        skipped = self.config.data.hypothesis_only
        notes = ["this run is a baseline that does not read the premise (data.hypothesis_only)"] if skipped else []
        sides = self._words(example)
        for name, read in zip(("premise", "hypothesis"), sides):
            if not (skipped and name == "premise"):
                notes += truncated(len(read), len(self.splitter.words(getattr(example, name))), f" of the {name}")
        words = [word for side in sides for word in side if word != NOTHING]
        unsegmented = self.splitter.note(f"{example.premise} {example.hypothesis}")
        return [*notes, *unknown_words(words, assets.vocabulary, self.origin), *unsegmented]

    def view(self, model: nn.Module, scored: Scored) -> tuple[EntailerOutput, bool]:
        """Return the output, and whether the model reads a word that has no counterpart."""
        return scored.output, getattr(model, "null", None) is not None

    def trace(
        self, view: tuple[EntailerOutput, bool], row: int, example: SentencePair, label: str, probability: float
    ) -> Trace:
        """Return what the words of each sentence, or the hypothesis as a whole, attended to in the other one."""
        output, null = view
        premise, hypothesis = ([NOTHING, *side] if null else side for side in self._words(example))
        axes = {
            "premise": Axis.from_tokens(premise, "premise"),
            "hypothesis": Axis.from_tokens(hypothesis, "hypothesis"),
            "label": Axis.from_tokens([label], "label"),
        }
        as_one = "premise" in output.attentions and output.attentions["premise"].shape[1] == 1 < len(hypothesis)
        sides = {"premise": ("label" if as_one else "hypothesis", "premise"), "hypothesis": ("premise", "hypothesis")}
        return Trace.from_handles(
            output.attentions,
            axes,
            axes_of={name: sides[name] for name in output.attentions},
            row=row,
            text=label,
            metadata={"probability": probability},
        )

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: EntailAssets,
        records: Sequence[Record],
        options: EntailEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return what every label is measured by, and two baselines that were counted in the training pairs.

        They are the most frequent label, and naive Bayes over the words of the hypothesis.
        """
        evaluation = super().evaluate(model, assets, records, options, progress)
        baseline = assets.baseline
        metrics = {
            "majority": _mean(record["label"] == baseline.majority for record in records),
            "hypothesis_bayes": _mean(
                baseline.predict(self.splitter.words(record["hypothesis"])) == record["label"] for record in records
            ),
        }
        notes = {
            **evaluation.notes,
            "majority_label": baseline.majority,
            "baselines": "accuracy of the most frequent label (majority) and of naive Bayes over the words of the "
            "hypothesis alone (hypothesis_bayes), both counted in the training pairs",
        }
        if self.config.data.hypothesis_only:
            notes["hypothesis_only"] = "this run is a baseline that does not read the premise"
        return replace(evaluation, metrics=evaluation.metrics | metrics, notes=notes)


def _mean(values: Iterable[bool]) -> float:
    return float(np.mean([float(value) for value in values]))
