"""Classification: from documents with labels to a classifier that shows which sentences and words decided."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foci.data import TokenBatches
from foci.data.documents import (
    Document,
    DocumentBatch,
    DocumentExamples,
    cut,
    sentences_of,
)
from foci.data.planted import Planted
from foci.data.vocabulary import Vocabulary, read_vectors
from foci.errors import CheckpointError, ConfigError, DataError
from foci.models.hierarchical import Classified, HierarchicalClassifier
from foci.tasks import config as configs
from foci.tasks.classify_config import ClassifyConfig, DataConfig, planted_parts, read_parts
from foci.tasks.runs import Say, by_length, find_checkpoint
from foci.training import Loss, RunFolder, Summary, check_rates, fit, launched, load_weights, read_config
from foci.training.run_folder import say_aside
from foci.viz.trace import Cells, Trace

__all__ = ["ClassificationObjective", "Classifier", "ClassifyConfig", "Prediction", "accuracy", "macro_f1", "train"]

VOCABULARY_FILE, LABELS_FILE = "vocabulary.json", "labels.json"

Split = list[list[str]]
"""A document as sentences of words."""


class ClassificationObjective:
    """Cross-entropy of the class."""

    def __init__(self, model: nn.Module, valid: TokenBatches[DocumentBatch]) -> None:
        self.model = model
        self.valid = valid

    def loss(self, batch: DocumentBatch) -> Loss:
        """Summed over the documents of the batch."""
        classified: Classified = self.model(batch.words, batch.sentences)
        right = (classified.logits.argmax(dim=-1) == batch.labels).sum()
        total = F.cross_entropy(classified.logits.float(), batch.labels, reduction="sum")
        return Loss(total, len(batch.labels), {"accuracy": right})

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Nats a document, and the share that is right."""
        loss, confusion = _judge(model, self.valid)
        return {"loss": loss, "accuracy": accuracy(confusion), "macro_f1": macro_f1(confusion)}


def _judge(model: nn.Module, batches: TokenBatches[DocumentBatch]) -> tuple[float, NDArray[np.int64]]:
    """Nats a document, and how many documents of each class (rows) were taken for each class (columns)."""
    total, count = 0.0, 0
    confusion: NDArray[np.int64] | None = None
    device = next(model.parameters()).device
    for batch in batches.epoch(0):
        words, sentences, labels = (tensor.to(device) for tensor in batch)
        logits: Tensor = model(words, sentences).logits.float()
        total += float(F.cross_entropy(logits, labels, reduction="sum"))
        count += len(labels)
        if confusion is None:
            confusion = np.zeros((logits.shape[1],) * 2, np.int64)
        np.add.at(confusion, (labels.cpu().numpy(), logits.argmax(dim=-1).cpu().numpy()), 1)
    if confusion is None:
        raise DataError("there are no documents to judge by.")
    return total / count, confusion


def accuracy(confusion: Int[NDArray[np.int64], "C C"]) -> float:
    """The share of the documents that are right.

    Example:
        >>> accuracy(np.array([[3, 1], [0, 4]]))
        0.875
    """
    return float(np.trace(confusion) / max(confusion.sum(), 1))


def macro_f1(confusion: Int[NDArray[np.int64], "C C"]) -> float:
    """The mean over classes of 2PR / (P + R). A class that neither occurs nor is predicted does not count.

    Example:
        >>> round(macro_f1(np.array([[3, 1], [0, 4]])), 4)
        0.873
    """
    occurring = confusion.sum(axis=0) + confusion.sum(axis=1)
    scores = 2 * np.diag(confusion)[occurring > 0] / occurring[occurring > 0]
    return float(scores.mean()) if len(scores) else 0.0


def train(config: ClassifyConfig, out: str | Path, *, resume: bool = False, say: Say | None = None) -> Summary:
    """Train a classifier into the folder ``out``; with ``resume`` go on with the run that lies there."""
    say = say or say_aside
    out = Path(out)
    data = config.data
    with launched(config.training) as fabric:
        main = fabric.global_rank == 0
        tell: Say = say if main else (lambda text: None)
        # The data is read first: what is wrong with it must be told before a folder is made.
        found = read_parts(data, tell)
        labels = sorted({document.label for document in found.train})
        if len(labels) < 2:
            raise DataError(f"all {len(found.train)} documents are of the class {labels[0]!r}, expected two at least.")
        targets = [_numbers(found.train, labels, "to train on"), _numbers(found.valid, labels, "to choose by")]
        texts = [[_split(document.text, data) for document in some] for some in (found.train, found.valid)]
        counted = config.vocabulary
        vocabulary = Vocabulary.count(
            texts[0],
            size=counted.size,
            min_count=counted.min_count,
            buckets=counted.buckets,
            lowercase=counted.lowercase,
        )
        torch.manual_seed(config.training.seed)
        model = config.model.build(len(vocabulary), len(labels))
        check_rates(model, config.training)
        if counted.vectors is not None:
            _begin_with(model, vocabulary, counted.vectors, tell)
        hint = f"foci train classify --resume --out {out}"
        with RunFolder(out, asdict(config), resume=resume, main=main, resume_hint=hint, say=tell) as run:
            if main:
                _keep(out, vocabulary, labels)
            fabric.barrier()
            examples, held_out = (
                DocumentExamples.encode(some, numbers, vocabulary, data.max_words)
                for some, numbers in zip(texts, targets)
            )
            del texts
            tell(
                f"{len(found.train)} documents to train on, {len(found.valid)} to choose by, {len(found.test)} to "
                f"judge by; {len(labels)} classes; {len(vocabulary.words)} words and {vocabulary.buckets} buckets; "
                f"{sum(p.numel() for p in model.parameters()):,} parameters"
            )
            if examples.truncated:
                tell(
                    f"{examples.truncated} of {len(found.train)} documents have more than {data.max_words} words and "
                    "lose their end (data.max_words)"
                )
            batches: TokenBatches[DocumentBatch] = TokenBatches(
                examples,
                max_tokens=data.max_tokens,
                max_examples=data.max_documents,
                seed=config.training.seed,
                rank=fabric.global_rank,
                world_size=fabric.world_size,
                workers=data.workers,
            )
            valid: TokenBatches[DocumentBatch] = TokenBatches(held_out, max_tokens=data.max_tokens)
            return fit(
                ClassificationObjective(model, valid), batches, config.training, run, fabric=fabric, unit="documents"
            )


def _numbers(documents: Sequence[Document], labels: Sequence[str], use: str) -> list[int]:
    number = {label: place for place, label in enumerate(labels)}
    for document in documents:
        if document.label not in number:
            raise DataError(
                f"a document {use} is of the class {document.label!r}, which the training documents do not "
                f"have: {', '.join(labels[:20])}."
            )
    return [number[document.label] for document in documents]


def _split(text: str, data: DataConfig) -> Split:
    # One object a word, however often it comes: a corpus would not fit in memory else.
    return [list(map(sys.intern, words)) for words in sentences_of(text, data.max_sentence)]


def _begin_with(model: HierarchicalClassifier, vocabulary: Vocabulary, path: str, say: Say) -> None:
    vectors, found = read_vectors(path, vocabulary, model.embedding.embedding_dim)
    with torch.no_grad():
        model.embedding.weight[torch.from_numpy(found)] = torch.from_numpy(vectors[found])
    say(f"{path} has vectors for {int(found.sum())} of {len(vocabulary.words)} words")


def _keep(out: Path, vocabulary: Vocabulary, labels: Sequence[str]) -> None:
    """Beside the run, whole or not at all; what a resumed run has is left alone, or refused where the data changed."""
    if (out / LABELS_FILE).exists() and (out / VOCABULARY_FILE).exists():
        if Vocabulary.load(out / VOCABULARY_FILE) != vocabulary or _labels(out) != list(labels):
            raise CheckpointError(
                f"{out}: the documents have other words or classes than the run was begun with. Resume with the same "
                "data, or start anew in another folder."
            )
        return
    vocabulary.save(out / f".{VOCABULARY_FILE}")
    (out / f".{LABELS_FILE}").write_text(json.dumps(list(labels), ensure_ascii=False), encoding="utf-8")
    for name in (VOCABULARY_FILE, LABELS_FILE):
        (out / f".{name}").replace(out / name)


def _labels(run: Path) -> list[str]:
    path = run / LABELS_FILE
    try:
        labels: list[str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: the classes of the run cannot be read ({error}).") from error
    return labels


class Prediction(NamedTuple):
    """What a text was taken for: the class, how probable it is and every other, and what was looked at."""

    text: str
    label: str
    probability: float
    probabilities: dict[str, float]
    trace: Trace | None


class Classifier:
    """A trained run. Made by `foci.load`.

    Arguments:
        model: in evaluation mode.
        vocabulary: of its words.
        labels: the classes, in the order of the model's scores.
        config: the run's configuration.
    """

    def __init__(
        self, model: HierarchicalClassifier, vocabulary: Vocabulary, labels: Sequence[str], config: ClassifyConfig
    ) -> None:
        model.eval()
        self.model = model
        self.vocabulary, self.labels = vocabulary, list(labels)
        self.config = config

    @classmethod
    def load(cls, path: Path, *, checkpoint: str = "auto") -> Classifier:
        """The run that lies there."""
        file = path / "config.json"
        config = ClassifyConfig.from_table(configs.without_none(read_config(path)), str(file), "")
        vocabulary, labels = Vocabulary.load(path / VOCABULARY_FILE), _labels(path)
        model = config.model.build(len(vocabulary), len(labels))
        load_weights(model, find_checkpoint(path, checkpoint))
        return cls(model, vocabulary, labels, config)

    @property
    def attends(self) -> bool:
        """Whether its model pools by attention, so that a trace has something to show."""
        return self.model.pooling in ("hierarchical", "attention")

    @torch.no_grad()
    def predict(
        self,
        texts: Iterable[str],
        *,
        trace: bool = False,
        batch_tokens: int = 16_384,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Classify; results come in the order of the texts.

        Arguments:
            trace: keep which sentences and words were attended to.
            batch_tokens: how many words are read together.
            progress: called with the number of texts that are done.
        """
        texts = list(texts)
        documents = [cut(_split(text, self.config.data), self.config.data.max_words) for text in texts]
        examples = self._examples(documents, [0] * len(documents))
        device = next(self.model.parameters()).device
        found: dict[int, Prediction] = {}
        for indices in by_length(examples.words.lengths.tolist(), batch_tokens):
            widths = examples.lengths[indices].max(axis=0).tolist()
            words, sentences, _ = (tensor.to(device) for tensor in examples.batch(np.array(indices), widths))
            classified: Classified = self.model(words, sentences)
            probabilities = classified.logits.float().softmax(dim=-1).cpu().numpy()
            for row, i in enumerate(indices):
                traced = self._trace(classified, row, documents[i], probabilities[row]) if trace else None
                found[i] = self._prediction(texts[i], probabilities[row], traced)
            if progress is not None:
                progress(len(indices))
        return [found[i] for i in range(len(texts))]

    def _examples(self, documents: Iterable[Sequence[Sequence[str]]], labels: Sequence[int]) -> DocumentExamples:
        return DocumentExamples.encode(documents, labels, self.vocabulary, self.config.data.max_words)

    def _prediction(self, text: str, row: Float[NDArray[np.float32], " C"], trace: Trace | None) -> Prediction:
        best = int(row.argmax())
        by_label = {label: float(value) for label, value in zip(self.labels, row)}
        return Prediction(text, self.labels[best], float(row[best]), by_label, trace)

    def _trace(
        self,
        classified: Classified,
        row: int,
        document: Sequence[Sequence[str]],
        probabilities: Float[NDArray[np.float32], " C"],
    ) -> Trace:
        label = self.labels[int(probabilities.argmax())]
        cells = {
            "document": Cells.of_document(document),
            "sentences": Cells.of_tokens([str(number) for number in range(1, len(document) + 1)], "sentences"),
            "class": Cells.of_tokens([label], "class"),
        }
        sides = {"words": ("class", "document"), "sentences": ("class", "sentences")}
        return Trace.from_handles(
            classified.attentions,
            cells,
            between={name: sides[name] for name in classified.attentions},
            row=row,
            text=label,
            facts={"probability": float(probabilities.max())},
        )

    def held_out(self) -> list[Document]:
        """The documents of the run's own data that are kept for judging, and were never trained on."""
        found = read_parts(self.config.data, lambda text: None).test
        if not found:
            raise ConfigError("the run kept no documents to judge by (data.test_share is 0). Name some.")
        return found

    @torch.no_grad()
    def evaluate(
        self, documents: Sequence[Document], *, batch_tokens: int = 16_384
    ) -> dict[str, float | list[str] | list[list[int]]]:
        """Accuracy, macro F1, nats a document; and ``confusion``: of each class (row), how many were taken for each."""
        if not documents:
            raise DataError("evaluate: there are no documents.")
        examples = self._examples(
            (_split(document.text, self.config.data) for document in documents),
            _numbers(documents, self.labels, "to judge by"),
        )
        longest = int(examples.lengths.max())
        batches: TokenBatches[DocumentBatch] = TokenBatches(examples, max_tokens=max(batch_tokens, longest))
        loss, confusion = _judge(self.model, batches)
        return {
            "documents": float(len(documents)),
            "accuracy": accuracy(confusion),
            "macro_f1": macro_f1(confusion),
            "loss": loss,
            "truncated": float(examples.truncated),
            "labels": self.labels,
            "confusion": confusion.tolist(),
        }

    def evidence(self, documents: Sequence[Planted] | None = None) -> dict[str, float]:
        """The mean share of the attention that lies on the sentence and on the word that decide a planted document.

        Without documents, those of the run's own data that are kept for judging.
        """
        if documents is None:
            if self.config.data.planted is None:
                raise ConfigError("evidence: the run was not trained on planted documents. Give some.")
            documents = planted_parts(self.config.data)["test"]
        if not self.attends:
            raise ConfigError(f"evidence: the model pools by {self.model.pooling!r}, without attention.")
        on_sentence, on_word = [], []
        predictions = self.predict((entry.document.text for entry in documents), trace=True)
        for entry, prediction in zip(documents, predictions):
            trace = cast("Trace", prediction.trace)
            sizes = trace.cells["document"].sentences or ()
            shares = np.split(trace.alignment("words")[0], np.cumsum(sizes)[:-1])
            on_sentence.append(shares[entry.sentence].sum())
            on_word.append(shares[entry.sentence][entry.word])
        return {"sentence": float(np.mean(on_sentence)), "word": float(np.mean(on_word))}
