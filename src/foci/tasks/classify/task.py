"""Classification of documents; each prediction has the attention weights of its sentences and words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foci.data import TokenBatches
from foci.data.splits import split, unique
from foci.data.vocabulary import Vocabulary, read_vectors
from foci.data.words import sentences_of
from foci.errors import ConfigError, DataError
from foci.metrics import labels as label_metrics
from foci.models.hierarchical import ClassifierOutput
from foci.printable import printable
from foci.tasks.classify.builtin import Planted, planted
from foci.tasks.classify.config import (
    BUILT_IN,
    ClassifyConfig,
    ClassifyOptions,
)
from foci.tasks.classify.reader import Document, DocumentBatch, DocumentExamples, cut, movie_reviews, read_documents
from foci.tasks.frame.labels import (
    LABELS_FILE,
    Lexicon,
    draw_confusion,
    label_tables,
    labels_from,
    log_labels,
    number_labels,
)
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
from foci.training.objective import Batches, Loss
from foci.viz.trace import Axis, Trace

_VALID, _TEST = 300, 500
"""Numbers of synthetic documents for validation and evaluation."""

Split = list[list[str]]
"""A document as sentences of words."""


class Classify(Task):
    """Classification as a task of the frame; see `foci.tasks.frame.task.Task`."""

    name: ClassVar[str] = "classify"
    Config: ClassVar[type[Any]] = ClassifyConfig
    Options: ClassVar[type[Any]] = ClassifyOptions
    EvaluateOptions: ClassVar[type[Any]] = ClassifyOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("text", "document"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("label", "label"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    unit: ClassVar[str] = "documents"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "accuracy": "higher",
        "macro_f1": "higher",
    }

    config: ClassifyConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read, check and split the documents."""
        data = self.config.data
        chosen = [name for name in ("path", "planted", "movie_reviews") if getattr(data, name)]
        if len(chosen) > 1:
            raise ConfigError(f"data: {' and '.join(chosen)} are both set, expected one of them.")
        if data.path is None and not data.movie_reviews:
            return self._planted(log)
        documents = movie_reviews() if data.path is None else self._read(data.path, log)
        found = self._split(documents, log)
        log_labels((document.label for document in found.train), "classes", log)
        log(
            f"{len(list(found.train)):,} documents to train on, {len(found.valid):,} to validate, "
            f"{len(found.test):,} to evaluate; the first is {_quoted(documents[0])}"
        )
        return found

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read documents in the form of the training data."""
        return [document._asdict() for path in paths for document in self._read(path)]

    def _read(self, path: str, log: Log | None = None) -> list[Document]:
        return read_documents(path, text=self.config.data.text, label=self.config.data.label, log=log)

    def _split(self, documents: list[Document], log: Log) -> Splits:
        """Split each class separately, so that a rare class is always trained on."""
        data = self.config.data
        different = unique(documents, lambda one: one.text)
        if len(different) < len(documents):
            log(f"{len(documents) - len(different)} of {len(documents)} documents are duplicates and are left out")
        train, valid, test = split(
            different,
            lambda one: one.text,
            lambda one: one.label,
            valid_share=0.0 if data.valid is not None else data.valid_share,
            test_share=0.0 if data.test is not None else data.test_share,
            seed=data.split_seed,
        )
        labels = sorted({document.label for document in train})
        if len(labels) < 2:
            raise DataError(
                f"{data.path}, line 1: all {len(different)} different documents are of the class {labels[0]!r}, "
                "expected at least two classes."
            )
        valid = valid if data.valid is None else self._read(data.valid, log)
        test = test if data.test is None else self._read(data.test, log)
        if not valid:
            raise DataError(
                f"{data.path}, line 1: of {len(documents)} documents none is left to validate. Give more of them, "
                f"raise data.valid_share = {data.valid_share}, or name data.valid."
            )
        for use, some in (("validate", valid), ("evaluate", test)):
            _numbers(some, labels, use)
        return Splits(train, valid, test)

    def _planted(self, log: Log) -> Splits:
        data = self.config.data
        if data.planted is None:
            log(f"no data is named: training on {BUILT_IN:,} synthetic documents (data.planted)")
        sizes = {"train": data.planted or BUILT_IN, "valid": _VALID, "test": _TEST}
        made = {split: planted(size, split=split, seed=data.split_seed) for split, size in sizes.items()}
        log(f"{sizes['train']:,} synthetic documents to train on, {_VALID} to validate, {_TEST} to evaluate")
        train, valid = ([entry.document for entry in made[split]] for split in ("train", "valid"))
        return Splits(train, valid, [_with_evidence(entry) for entry in made["test"]])

    def assets(self, splits: Splits, log: Log) -> Lexicon:
        """Count the words and list the classes."""
        counted = self.config.vocabulary
        vocabulary = counted.count((self._words(document.text) for document in splits.train), counted.buckets)
        labels = tuple(sorted({document.label for document in splits.train}))
        log(
            f"{len(labels)} classes; {len(vocabulary.words):,} words, and {vocabulary.buckets:,} buckets for the others"
        )
        return Lexicon(vocabulary, labels)

    def load_assets(self, read: Callable[[str], str]) -> Lexicon:
        """Read the words and the classes."""
        labels = labels_from(read(LABELS_FILE))
        return Lexicon(Vocabulary.from_text(read("vocabulary.json"), "vocabulary.json"), labels)

    def model(self, assets: Lexicon) -> nn.Module:
        """Build the model for these words and classes."""
        return self.config.model.build(len(assets.vocabulary), len(assets.labels))

    def named_axes(self, assets: Lexicon) -> NamedAxes:
        """Return which rows of the weights are words, and which are classes."""
        words, labels = assets.vocabulary.names, assets.labels
        return {"embedding.weight": (words,), "output.weight": (labels,), "output.bias": (labels,)}

    def batches(self, splits: Splits, assets: Lexicon, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training documents."""
        data = self.config.data
        examples = self._examples(splits.train, assets, "train on")
        if examples.truncated:
            log(
                f"{examples.truncated:,} documents have more than {data.max_words} words; the rest of them is not read "
                "(data.max_words)"
            )
        return TokenBatches(
            examples,
            max_tokens=data.max_tokens,
            max_examples=data.max_documents,
            seed=self.config.training.seed,
            workers=data.workers,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: Lexicon, log: Log) -> TokenBatches[DocumentBatch]:
        """Encode and batch the validation documents."""
        examples = self._examples(splits.valid, assets, "validate")
        return TokenBatches(examples, max_tokens=self.config.data.max_tokens)

    def _examples(self, documents: Iterable[Document], assets: Lexicon, use: str) -> DocumentExamples:
        documents = list(documents)
        numbers = _numbers(documents, assets.labels, use)
        words = (self._words(document.text) for document in documents)
        return DocumentExamples.encode(words, numbers, assets.vocabulary, self.config.data.max_words)

    def _words(self, text: str) -> Split:
        # One object per distinct word: otherwise a corpus would not fit in memory.
        return [list(map(sys.intern, words)) for words in sentences_of(text, self.config.data.max_sentence)]

    def initialize(self, model: nn.Module, assets: Lexicon, log: Log) -> None:
        """Start with the word vectors of a file, if one is named."""
        path = self.config.vocabulary.vectors
        if path is None:
            return
        weight = model.get_parameter("embedding.weight")
        vectors, found = read_vectors(path, assets.vocabulary, weight.shape[1])
        with torch.no_grad():
            weight[torch.from_numpy(found)] = torch.from_numpy(vectors[found])
        log(f"{path} has vectors for {int(found.sum()):,} of {len(assets.vocabulary.words):,} words")

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: DocumentBatch) -> Loss:
        """Return the cross-entropy of the class, summed over the documents."""
        classified: ClassifierOutput = model(batch.words, batch.sentences)
        right = (classified.logits.argmax(dim=-1) == batch.labels).sum()
        total = F.cross_entropy(classified.logits.float(), batch.labels, reduction="sum")
        return Loss(total, len(batch.labels), {"accuracy": right})

    def validate(self, model: nn.Module, held_out: TokenBatches[DocumentBatch]) -> dict[str, float]:
        """Return nats per document, accuracy and macro F1."""
        loss, counts = _confusion(model, held_out)
        return {"loss": loss, "accuracy": label_metrics.accuracy(counts), "macro_f1": label_metrics.macro_f1(counts)}

    # ---- predictions

    def predict(
        self,
        model: nn.Module,
        assets: Lexicon,
        records: Sequence[Record],
        options: ClassifyOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Classify; a trace has the weight of each word and sentence."""
        most = self.config.data.max_words
        whole = [self._words(record["text"]) for record in records]
        documents = [cut(words, most) for words in whole]
        examples = DocumentExamples.encode(documents, [0] * len(documents), assets.vocabulary, most)
        device = next(model.parameters()).device
        found: dict[int, Prediction] = {}
        for indices in by_length(examples.words.lengths.tolist(), options.batch_tokens):
            widths = examples.lengths[indices].max(axis=0).tolist()
            words, sentences, _ = (tensor.to(device) for tensor in examples.batch(np.array(indices), widths))
            classified: ClassifierOutput = model(words, sentences)
            probabilities = classified.logits.float().softmax(dim=-1).cpu().numpy()
            for row, i in enumerate(indices):
                traced = _trace(classified, row, documents[i], assets.labels, probabilities[row]) if trace else None
                details: dict[str, Any] = {"probabilities": _by_label(assets.labels, probabilities[row])}
                total = sum(map(len, whole[i]))
                notes = [f"only the first {most} of {total} words were read (data.max_words)"] if total > most else []
                notes += self._unknown(assets.vocabulary, documents[i])
                if notes:
                    details["notes"] = notes
                best = int(probabilities[row].argmax())
                score = float(probabilities[row][best])
                found[i] = Prediction(records[i], assets.labels[best], score, details, traced)
            progress(len(indices))
        return [found[i] for i in range(len(records))]

    def _unknown(self, vocabulary: Vocabulary, document: Sequence[Sequence[str]]) -> list[str]:
        """Return a note where most words of a document are unknown, so that the prediction is unreliable."""
        data = self.config.data
        words = [word for sentence in document for word in sentence]
        unknown = [word for word in words if word not in vocabulary]
        if 2 * len(unknown) <= len(words):
            return []
        built_in = "IMDB's reviews" if data.movie_reviews else "made-up documents (data.planted)"
        return [unknown_note("words", unknown, len(words), vocabulary.words, data.path or built_in)]

    def evaluate(
        self,
        model: nn.Module,
        assets: Lexicon,
        records: Sequence[Record],
        options: ClassifyOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return accuracy, macro F1, nats per document, the confusion, and metrics of each class.

        For synthetic documents, whose deciding word is known, also its share of the attention.
        """
        documents = [Document(record["text"], record["label"]) for record in records]
        examples = self._examples(documents, assets, "evaluate")
        longest = int(examples.lengths.max())
        batches: TokenBatches[DocumentBatch] = TokenBatches(examples, max_tokens=max(options.batch_tokens, longest))
        loss, counts = _confusion(model, batches)
        progress(len(records))
        metrics: dict[str, float | int] = {
            "documents": len(documents),
            "accuracy": label_metrics.accuracy(counts),
            "macro_f1": label_metrics.macro_f1(counts),
            "loss": loss,
            "truncated": examples.truncated,
        }
        if all("evidence" in record for record in records):
            metrics |= self._evidence(model, assets, records, options)
        return Evaluation(metrics, {}, label_tables(assets.labels, counts, kind="class", unit="documents"))

    def _evidence(
        self, model: nn.Module, assets: Lexicon, records: Sequence[Record], options: ClassifyOptions
    ) -> dict[str, float]:
        """Return the mean attention on the deciding sentence and word; nothing without attention."""
        on_sentence, on_word = [], []
        for record, prediction in zip(
            records, self.predict(model, assets, records, options, True, lambda done: None), strict=True
        ):
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

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the confusion."""
        draw_confusion(evaluation.tables["confusion"], path, kind="class", unit="documents")


def _numbers(documents: Iterable[Document], labels: Sequence[str], use: str) -> list[int]:
    return number_labels((document.label for document in documents), labels, "a document", use)


def _with_evidence(entry: Planted) -> dict[str, Any]:
    return {**entry.document._asdict(), "evidence": (entry.sentence, entry.word)}


def _confusion(model: nn.Module, batches: TokenBatches[DocumentBatch]) -> tuple[float, NDArray[np.int64]]:
    """Return nats per document, and the confusion."""
    total = 0.0
    targets: list[int] = []
    predicted: list[int] = []
    classes = 0
    device = next(model.parameters()).device
    for batch in batches.epoch(0):
        words, sentences, labels = (tensor.to(device) for tensor in batch)
        logits: Tensor = model(words, sentences).logits.float()
        total += float(F.cross_entropy(logits, labels, reduction="sum"))
        targets += labels.tolist()
        predicted += logits.argmax(dim=-1).tolist()
        classes = logits.shape[1]
    return total / len(targets), label_metrics.confusion(targets, predicted, classes)


def _by_label(labels: Sequence[str], row: Float[NDArray[np.float32], " C"]) -> dict[str, float]:
    return {label: float(value) for label, value in zip(labels, row)}


def _trace(
    classified: ClassifierOutput,
    row: int,
    document: Sequence[Sequence[str]],
    labels: Sequence[str],
    probabilities: Float[NDArray[np.float32], " C"],
) -> Trace:
    label = labels[int(probabilities.argmax())]
    axes = {
        "document": Axis.from_document(document),
        "sentences": Axis.from_tokens([str(number) for number in range(1, len(document) + 1)], "sentences"),
        "class": Axis.from_tokens([label], "class"),
    }
    sides = {"words": ("class", "document"), "sentences": ("class", "sentences")}
    return Trace.from_handles(
        classified.attentions,
        axes,
        axes_of={name: sides[name] for name in classified.attentions},
        row=row,
        text=label,
        metadata={"probability": float(probabilities.max())},
    )


def _quoted(document: Document) -> str:
    text = document.text if len(document.text) <= 60 else f"{document.text[:59]}…"
    return f"{printable(text)!r} → {printable(document.label)!r}"
