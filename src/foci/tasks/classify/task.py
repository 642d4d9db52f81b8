"""Classification of documents; each prediction has the attention weights of its sentences and words."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import nn

from foci.data.batching import PaddedExamples, Sequences
from foci.data.splits import text_key, unique
from foci.data.vocabulary import Vocabulary, read_vectors, size_of_vectors
from foci.models.hierarchical import ClassifierOutput, HierarchicalClassifier
from foci.tasks.classify.builtin import planted
from foci.tasks.classify.config import BUILT_IN, ClassifyConfig, ClassifyEvaluateOptions, ClassifyOptions
from foci.tasks.classify.reader import Document, cut, read_documents
from foci.tasks.frame.assets import Assets, Labels
from foci.tasks.frame.class_folders import training_folder
from foci.tasks.frame.labels.linear import BASELINE, VOTER, LinearClassifier
from foci.tasks.frame.labels.multi_label import MultiLabelTask
from foci.tasks.frame.labels.task import Encoded
from foci.tasks.frame.notes import truncated, unknown_words
from foci.tasks.frame.task import Evaluation, Field, Log, NamedAxes, Progress, Record, Splits, Suited
from foci.tasks.frame.vocabulary import count_words
from foci.training.progress import duration
from foci.viz.trace import Axis, Trace

_MOST_LINEAR = 50_000
"""Documents that the linear classifier is fitted to; of more, the first ones."""


@dataclass(frozen=True)
class ClassifyAssets(Assets):
    """The words and the classes of a run."""

    vocabulary: Vocabulary
    labels: Labels
    linear: LinearClassifier = field(default_factory=LinearClassifier.empty)
    ngram: LinearClassifier = field(default_factory=LinearClassifier.empty)


class Classify(MultiLabelTask):
    """The document classification task."""

    name = "classify"
    Config = ClassifyConfig
    Options = ClassifyOptions
    EvaluateOptions = ClassifyEvaluateOptions
    Assets = ClassifyAssets
    Example = Document
    inputs = (Field("text", "document"),)
    targets = (Field("label", "labels"),)
    token_inputs: ClassVar[Mapping[str, int]] = {"document": 0}
    noun = unit = "documents"
    example = "a document"
    builtin_sizes = (BUILT_IN, 300, 500)

    config: ClassifyConfig

    # ---- data

    def read_file(self, path: str, log: Log | None = None) -> list[Document]:
        """Read a folder of classes or a table."""
        return read_documents(path, columns=self.config.data.columns, log=log)

    def read_part(self, part: str, path: str, log: Log) -> list[Document]:
        """Read the documents of a part; those to train on without duplicates."""
        read = self.read_file(training_folder(path, log) if part == "train" else path, log)
        documents = self.normalize(read, log)
        different = unique(documents, lambda one: one.text) if part == "train" else documents
        if len(different) < len(documents):
            log(f"{len(documents) - len(different)} of {len(documents)} documents are duplicates and are left out")
        if part == "train":
            self.settle_labels(different, log)
        return different

    def key(self, example: Document) -> str:
        """Return the text."""
        return text_key(example.text)

    def read_builtin(self, size: int, part: str) -> Sequence[Any]:
        """Return synthetic documents; those to evaluate with have the place of the deciding word."""
        made = planted(size, split=part, seed=self.config.data.split_seed)
        if part != "test":
            return [entry.document for entry in made]
        return [{**entry.document._asdict(), "evidence": (entry.sentence, entry.word)} for entry in made]

    def _sentences(self, text: str) -> list[list[str]]:
        # One object per distinct word: otherwise a corpus would not fit in memory.
        return [list(map(sys.intern, words)) for words in self.splitter.sentences(text, self.config.data.max_sentence)]

    # ---- model

    def assets(self, splits: Splits, log: Log) -> ClassifyAssets:
        """Count the words and list the classes."""
        counted = self.config.vocabulary
        vocabulary = count_words(counted, (self._sentences(one.text) for one in splits.train), counted.buckets)
        labels = tuple(sorted({label for one in splits.train for label in self.labels_of(one)}))
        log(
            f"{len(labels)} classes; {len(vocabulary.words):,} words, and {vocabulary.buckets:,} buckets for the others"
        )
        return ClassifyAssets(vocabulary, labels, **self._linear(list(splits.train)[:_MOST_LINEAR], labels, log))

    def _linear(self, documents: list[Document], labels: Sequence[str], log: Log) -> dict[str, LinearClassifier]:
        """Return the baseline, and what votes beside the network."""
        if self.config.model.linear == "none":
            return {}
        if self.multi_label:
            log("no linear classifier is fitted beside the network (model.linear): documents have several classes")
            return {}
        targets = [labels.index(self.labels_of(one)[0]) for one in documents]
        words = [self._words(one) for one in documents]
        recipes = {"linear": BASELINE} | ({"ngram": VOTER} if self.config.model.linear == "vote" else {})
        found = {}
        for name, recipe in recipes.items():
            started = time.perf_counter()
            found[name] = LinearClassifier.fit(words, targets, len(labels), recipe)
            characters = found[name].characters
            log(
                f"fitted TF-IDF with logistic regression{' by naive Bayes' * (recipe.prior > 0)} to "
                f"{len(documents):,} documents in {duration(time.perf_counter() - started)} (model.linear): "
                f"{len(found[name].terms) - characters:,} words and pairs of words"
                + f", {characters:,} character n-grams"
                * (characters > 0)
            )
        return found

    def _words(self, document: Document) -> list[str]:
        words = [word for sentence in self._sentences(document.text) for word in sentence]
        return words[: self.config.data.max_words]

    def voter(self, assets: ClassifyAssets) -> str | None:
        """Return which linear classifier votes: in runs of earlier versions, the baseline."""
        votes = self.config.model.linear == "vote"
        return "ngram" if votes and assets.ngram else "linear" if votes and assets.linear else None

    def linear_scores(
        self, examples: Sequence[Document], assets: ClassifyAssets, names: Sequence[str] | None = None
    ) -> dict[str, Float[NDArray[np.float32], "N C"]]:
        """Return the scores of those that were fitted."""
        fitted = {name: one for name, one in (("linear", assets.linear), ("ngram", assets.ngram)) if one}
        kept = fitted if names is None else {name: fitted[name] for name in names}
        words = [self._words(one) for one in examples] if kept else []
        return {name: one.scores(words) for name, one in kept.items()}

    def model(self, assets: ClassifyAssets) -> nn.Module:
        """Build the model for these words and classes."""
        return HierarchicalClassifier(len(assets.vocabulary), len(assets.labels), self.config.model)

    def suited(self, splits: Splits) -> dict[str, Suited]:
        """Return the size of the word vectors of a file, if one is named."""
        path = self.config.vocabulary.vectors
        if path is None:
            return {}
        return {"model.embedding_dim": Suited(size_of_vectors(path), f"the size of the vectors of {path}")}

    def initialize(self, model: nn.Module, assets: ClassifyAssets, log: Log) -> None:
        """Start with the word vectors of a file, if one is named."""
        path = self.config.vocabulary.vectors
        if path is None:
            return
        weight = model.get_parameter("embedding.weight")
        vectors, has_vector = read_vectors(path, assets.vocabulary, weight.shape[1])
        with torch.no_grad():
            weight[torch.from_numpy(has_vector)] = torch.from_numpy(vectors[has_vector])
        log(f"{path} has vectors for {int(has_vector.sum()):,} of {len(assets.vocabulary.words):,} words")

    def named_axes(self, assets: ClassifyAssets) -> NamedAxes:
        """Return which rows of the weights are words, and which are classes."""
        words, labels = assets.vocabulary.names, assets.labels
        return {"embedding.weight": (words,), "output.weight": (labels,), "output.bias": (labels,)}

    # ---- examples and traces

    def encode(
        self, examples: Sequence[Document], labels: Sequence[int], assets: ClassifyAssets, log: Log | None
    ) -> Encoded:
        """Return word ids, all sentences concatenated, and the number of words of each sentence."""
        most = self.config.data.max_words
        ids: list[list[int]] = []
        sizes: list[list[int]] = []
        longer = 0
        for example in examples:
            sentences = self._sentences(example.text)
            kept = cut(sentences, most)
            longer += sum(map(len, kept)) < sum(map(len, sentences))
            ids.append(assets.vocabulary.ids(word for sentence in kept for word in sentence))
            sizes.append([len(sentence) for sentence in kept])
        columns = {"words": Sequences(ids, len(assets.vocabulary)), "sentences": Sequences(sizes, most + 1)}
        return Encoded(PaddedExamples(columns, labels=labels), longer)

    def notes(self, example: Document, assets: ClassifyAssets) -> list[str]:
        """Return messages about words that were not read, and about those that are not known."""
        words = [word for sentence in self._sentences(example.text) for word in sentence]
        read = words[: self.config.data.max_words]
        unknown = unknown_words(read, assets.vocabulary, self.origin)
        return [*truncated(len(read), len(words)), *unknown, *self.splitter.note(example.text)]

    def trace(self, view: ClassifierOutput, row: int, example: Document, label: str, probability: float) -> Trace:
        """Return the weight of each word and sentence."""
        document = cut(self._sentences(example.text), self.config.data.max_words)
        axes = {
            "document": Axis.from_document(document),
            "sentences": Axis.from_tokens([str(number) for number in range(1, len(document) + 1)], "sentences"),
            "class": Axis.from_tokens([label], "class"),
        }
        sides = {"words": ("class", "document"), "sentences": ("class", "sentences")}
        return Trace.from_handles(
            view.attentions,
            axes,
            axes_of={name: sides[name] for name in view.attentions},
            row=row,
            text=label,
            metadata={"probability": probability},
        )

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: ClassifyAssets,
        records: Sequence[Record],
        options: ClassifyEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return what every label is measured by; for synthetic documents also the attention on the deciding word."""
        evaluation = super().evaluate(model, assets, records, options, progress)
        if not all("evidence" in record for record in records):
            return evaluation
        evidence = self._evidence(model, assets, records, options)
        return replace(evaluation, metrics=evaluation.metrics | evidence)

    def _evidence(
        self, model: nn.Module, assets: ClassifyAssets, records: Sequence[Record], options: ClassifyEvaluateOptions
    ) -> dict[str, float]:
        """Return the mean attention on the deciding sentence and word; nothing without attention."""
        on_sentence, on_word = [], []
        as_predicted = ClassifyOptions(batch_tokens=options.batch_tokens)
        predictions = self.predict(model, assets, records, as_predicted, True, lambda done: None)
        for record, prediction in zip(records, predictions, strict=True):
            trace = prediction.trace
            if trace is None or "words" not in trace.attentions:
                return {}
            sentence, word = record["evidence"]
            shares = np.split(trace.alignment("words")[0], np.cumsum(trace.axes["document"].sentences or ())[:-1])
            on_sentence.append(shares[sentence].sum())
            on_word.append(shares[sentence][word])
        return {
            "attention_on_sentence": float(np.mean(on_sentence)),
            "attention_on_word": float(np.mean(on_word)),
        }
