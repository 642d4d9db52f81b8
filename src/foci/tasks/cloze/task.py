"""Cloze reading: which word of a document fills the blank of a question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from annotated_types import Ge
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.data import TokenBatches
from foci.data.batching import on_device
from foci.data.splits import Parts, text_key
from foci.data.vocabulary import Vocabulary, size_of_vectors
from foci.errors import DataError
from foci.models.cloze_reader import Reader, ReaderOutput
from foci.tasks.cloze.batches import ClozeBatch, ClozeExamples, TokenizedQuestion, tokenize
from foci.tasks.cloze.builtin import stories
from foci.tasks.cloze.config import BLANK, BUILT_IN, ClozeConfig, ClozeEvaluateOptions, ClozeOptions
from foci.tasks.cloze.reader import ClozeQuestion, check_question, from_record, read_cloze
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.file_task import FileTask, shortened
from foci.tasks.frame.notes import unknown_note
from foci.tasks.frame.prediction_loop import batch_of, batches_by_length, by_length, predict_in_batches
from foci.tasks.frame.probing.traces import FREQUENT, TracedPass, vector_source
from foci.tasks.frame.scores import UNTRAINED, Scores, calibration_table
from foci.tasks.frame.task import Evaluation, Field, Log, NamedAxes, Prediction, Progress, Record, Shard, Splits, Table
from foci.tasks.frame.vocabulary import count_words, take_vectors
from foci.training.objective import Batches, Loss
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

_RANKS = (1, 2, 3, 5)
"""The k of accuracy@k."""


@dataclass(frozen=True)
class Words(Assets):
    """The words of a run, and the size of their given vectors."""

    vocabulary: Vocabulary
    vector_dim: Annotated[int, Ge(0)]


class Cloze(FileTask):
    """The cloze reading task."""

    name: ClassVar[str] = "cloze"
    Config: ClassVar[type[Any]] = ClozeConfig
    Options: ClassVar[type[Any]] = ClozeOptions
    EvaluateOptions: ClassVar[type[Any]] = ClozeEvaluateOptions
    Assets: ClassVar[type[Any]] = Words
    inputs: ClassVar[tuple[Field, ...]] = (
        Field("document", "document"),
        Field("question", "sentence"),
        Field("candidates", "choices", required=False),
    )
    targets: ClassVar[tuple[Field, ...]] = (Field("answer", "excerpt"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    unit: ClassVar[str] = "questions"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "calibrated_loss": "lower",
        "accuracy": "higher",
    }

    noun: ClassVar[str] = "questions"
    about: ClassVar[str] = "document (case, punctuation and spaces aside)"
    builtin_sizes: ClassVar[tuple[int, int, int]] = (BUILT_IN, 300, 500)

    config: ClozeConfig

    # ---- data

    def read_file(self, path: str, log: Log | None = None) -> list[ClozeQuestion]:
        """Read questions in one of the forms of the training data."""
        data = self.config.data
        return read_cloze(path, blank=data.blank, needs_blank=data.needs_blank)

    def key(self, example: ClozeQuestion) -> str:
        """Return the document: questions about one are never in two parts."""
        return text_key(example.document)

    def show(self, example: ClozeQuestion) -> str:
        """Return the question and its answer."""
        return shortened(example.question, example.answer)

    def read_parts(self, log: Log) -> Parts:
        """Read the questions; those of data.more are trained on too, but not those about held-out documents."""
        parts, more = super().read_parts(log), self.config.data.more
        if more is None:
            return parts
        added, held = self.read_file(more, log), {self.key(one) for one in (*parts.valid, *parts.test)}
        kept = [one for one in added if self.key(one) not in held]
        if left_out := len(added) - len(kept):
            log(f"{left_out:,} of {len(added):,} questions of {more} are about held-out documents and are left out")
        return parts._replace(train=[*parts.train, *kept])

    def select(self, train: list[ClozeQuestion], log: Log) -> list[ClozeQuestion]:
        """Leave out questions whose answer is not in the document."""
        answerable = [one for one in train if self._tokenized(one).is_answerable]
        if len(answerable) < len(train):
            log(
                f"{len(train) - len(answerable):,} of {len(train):,} questions are not trained on: the answer is not in"
                " the document, as data.words splits it"
            )
        return answerable

    def nothing_left(self, count: int, use: str) -> DataError:
        """Return the error for a part without questions."""
        data = self.config.data
        return DataError(
            f"{data.path}, line 1: of {count} questions none is left to {use}. Give more of them, change "
            f"data.valid_share = {data.valid_share} or data.words = {data.words!r}, or name data.valid."
        )

    def read_builtin(self, size: int, part: str) -> list[ClozeQuestion]:
        """Return stories about people who carry things about."""
        return stories(self.config.data.language, split=part, size=size)

    def _tokenized(self, question: ClozeQuestion) -> TokenizedQuestion:
        data = self.config.data
        return tokenize(
            question,
            splitter=self.splitter,
            blank=data.blank,
            lowercase=self.config.vocabulary.lowercase,
            max_words=data.max_words,
        )

    def assets(self, splits: Splits, log: Log) -> Words:
        """Count the words."""
        counted = self.config.vocabulary
        tokenized = [self._tokenized(question) for question in splits.train]
        vocabulary = count_words(counted, ([*one.sentences, one.question] for one in tokenized), counted.buckets)
        dim = 0 if counted.vectors is None else size_of_vectors(counted.vectors)
        log(f"{len(vocabulary.words):,} words, and {vocabulary.buckets:,} buckets for the others")
        right = sum(one.most_frequent == one.answer for one in tokenized)
        log(f"the most frequent candidate is the answer of {right / len(tokenized):.1%} of the training questions")
        return Words(vocabulary, dim)

    def model(self, assets: Words) -> nn.Module:
        """Build the model for these words."""
        return Reader(len(assets.vocabulary), assets.vector_dim, self.config.model)

    def named_axes(self, assets: Words) -> NamedAxes:
        """Return which rows of the weights are words."""
        words = assets.vocabulary.names
        return {"embedding.weight": (words,), "vectors.weight": (words,)}

    def initialize(self, model: nn.Module, assets: Words, log: Log) -> None:
        """Take over the word vectors of a file, if one is named."""
        if (path := self.config.vocabulary.vectors) is not None:
            take_vectors(model.get_parameter("vectors.weight"), path, assets.vocabulary, log)

    def batches(self, splits: Splits, assets: Words, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training questions."""
        data = self.config.data
        tokenized = [self._tokenized(question) for question in splits.train]
        if cut := sum(one.left_out > 0 for one in tokenized):
            log(f"{cut:,} documents have more than {data.max_words} words: the last ones are read (data.max_words)")
        examples = ClozeExamples(tokenized, assets.vocabulary)
        return TokenBatches(examples, **self.batching(shard, data.batch_tokens, data.batch_size))

    def held_out(self, splits: Splits, assets: Words, log: Log) -> list[ClozeBatch]:
        """Encode and batch the validation questions."""
        examples = ClozeExamples(map(self._tokenized, splits.valid), assets.vocabulary)
        return [batch for batch, _ in batches_by_length(examples, self.config.data.batch_tokens)]

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: ClozeBatch) -> Loss:
        """Return minus the log-probability of the answers, summed over the questions."""
        probabilities = model(*batch[:-1]).probabilities
        right = (probabilities.argmax(dim=1) == batch.answer).sum() if len(batch.answer) else batch.answer.sum()
        return Loss(_nats(probabilities, batch).sum(), len(batch.answer), {"accuracy": right})

    def validate(self, model: nn.Module, held_out: list[ClozeBatch]) -> dict[str, float]:
        """Return nats per question that the document answers, their temperature, and the share of right answers."""
        scores, right, count = Scores(), 0, 0
        for batch in held_out:
            moved, read = _read_batch(model, batch)
            _add(scores, read.probabilities, moved)
            right += int((_best(read.probabilities) == moved.answer).sum())
            count += len(moved.answer)
        return {**scores.fit(), "accuracy": right / count}

    def chance(self, held_out: list[ClozeBatch]) -> float:
        """Return the nats of equal probabilities of the candidates that are in the document."""
        scores = Scores()
        for batch in held_out:
            _add(scores, _present(batch, int(batch.num_candidates.max())).float(), batch)
        return scores.chance

    # ---- predictions

    def empty_details(self, assets: Words) -> dict[str, Any]:
        """Return no candidates."""
        return {"candidates_ranked": []}

    def predict(
        self,
        model: nn.Module,
        assets: Words,
        records: Sequence[Record],
        options: ClozeOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Answer; a trace has what was read of the document and of the question."""
        questions = [ClozeQuestion(one["document"], one["question"], one["candidates"], "") for one in records]
        tokenized = list(map(self._tokenized, questions))
        examples = ClozeExamples(tokenized, assets.vocabulary)

        def answer(numbers: Sequence[int]) -> Iterator[Prediction]:
            _, read = _read_batch(model, batch_of(examples, numbers))
            for row, number in enumerate(numbers):
                yield self._prediction(records[number], tokenized[number], read, row, assets, options, trace)

        batches = by_length(examples.document.lengths.tolist(), options.batch_tokens)
        return predict_in_batches(records, batches, answer, progress)

    def traced_pass(self, model: nn.Module, assets: Words, record: Record) -> TracedPass:
        """Return how the model reads a question and its document; the answer is the candidate.

        What is erased of a word are its vectors and whether it occurs in the question; it stays a candidate.
        """
        reader = cast("Reader", model)
        (prediction,) = self.predict(model, assets, [record], self.Options(), True, lambda done: None)
        if prediction.trace is None:
            raise DataError(f"probe: {'; '.join(prediction.details.get('notes', ['nothing was predicted']))}.")
        asked = ClozeQuestion(record["document"], record["question"], record["candidates"], "")
        question = self._tokenized(asked)
        batch = batch_of(ClozeExamples([question], assets.vocabulary), [0])
        batch = on_device(batch, next(model.parameters()).device)
        words, asking = reader.embed(*batch[:4])
        every = torch.arange(1, min(len(assets.vocabulary), FREQUENT + 1), device=words.device).unsqueeze(0)
        nothing = every[:, :0]
        known, _ = reader.embed(every, nothing, torch.full_like(every, -1), nothing)
        blank = frozenset(place for place, word in enumerate(question.question) if word == BLANK)
        sources = {
            "document": vector_source(0, question.words, words, known),
            "question": vector_source(1, question.question, asking, known)._replace(fixed=blank),
        }

        def probabilities(output: ReaderOutput) -> Tensor:
            return (output.probabilities.float().clamp_min(1e-30).log() / self.temperature()).softmax(dim=-1)

        inputs = (
            words,
            asking,
            batch.document > 0,
            batch.question > 0,
            batch.places,
            batch.blank,
            batch.num_candidates,
        )
        return TracedPass(inputs, sources, prediction.trace, probabilities, reader.read)

    def _prediction(
        self,
        record: Record,
        question: TokenizedQuestion,
        read: ReaderOutput,
        row: int,
        assets: Words,
        options: ClozeOptions,
        trace: bool,
    ) -> Prediction:
        raw = read.probabilities[row, : len(question.candidates)].float().cpu()
        notes = self._notes(question, assets)
        if not len(raw) or not float(raw.sum()) > 0:
            notes.append("no candidate is in the document, so nothing was predicted")
            return Prediction(record, "", 0.0, {**self.empty_details(assets), "notes": notes})
        shares = (raw.log() / self.temperature()).softmax(dim=0)
        order = raw.argsort(descending=True, stable=True).tolist()
        counts = question.counts
        ranked = [
            {"answer": question.candidates[i], "probability": float(shares[i]), "occurrences": counts[i]} for i in order
        ]
        details: dict[str, Any] = {"candidates_ranked": ranked[: max(options.n_best, 10)]}
        if notes:
            details["notes"] = notes
        answers = [
            Prediction(record, str(one["answer"]), float(one["probability"])) for one in ranked[: options.n_best]
        ]
        traced = _trace(read, row, question, ranked[0]["answer"], shares) if trace else None
        return replace(answers[0], details=details, trace=traced, alternatives=tuple(answers[1:]))

    def _notes(self, question: TokenizedQuestion, assets: Words) -> list[str]:
        """Return messages for the user: what was cut, is missing or not known."""
        data = self.config.data
        notes = []
        if question.left_out:
            notes.append(f"the first {question.left_out} words of the document were not read (data.max_words)")
        if BLANK not in question.question and data.needs_blank:
            notes.append(f"the question has no blank {data.blank!r}, which this run was trained with")
        words = question.words
        notes += self.splitter.note(" ".join(words))
        unknown = [word for word in words if word not in assets.vocabulary]
        if 2 * len(unknown) > len(words):
            built_in = f"built-in stories (data.language = {data.language})"
            notes.append(unknown_note("words", unknown, len(words), assets.vocabulary.words, data.path or built_in))
        return notes

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: Words,
        records: Sequence[Record],
        options: ClozeEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return accuracy, also among the best k, the most frequent candidate beside it, and metrics by kind."""
        questions = [self._given(record, number) for number, record in enumerate(records)]
        tokenized = [self._tokenized(question) for question in questions]
        ranks = [0] * len(records)
        scores = Scores(self.temperature())
        for batch, indices in batches_by_length(ClozeExamples(tokenized, assets.vocabulary), options.batch_tokens):
            moved, read = _read_batch(model, batch)
            _add(scores, read.probabilities, moved)
            for i, rank in zip(indices, _ranks(read.probabilities, moved.answer).tolist()):
                ranks[i] = rank
            progress(len(indices))
        first = [rank == 1 for rank in ranks]
        answerable = [one.is_answerable for one in tokenized]
        frequent = [one.answer >= 0 and one.most_frequent == one.answer for one in tokenized]
        metrics: dict[str, float | int] = {
            "questions": len(records),
            "accuracy": float(np.mean(first)),
            **{f"accuracy_at_{k}": float(np.mean([1 <= rank <= k for rank in ranks])) for k in _RANKS if k > 1},
            "most_frequent": float(np.mean(frequent)),
            **scores.metrics(),
            "candidates": float(np.mean([len(one.candidates) for one in tokenized])),
            "truncated": sum(one.left_out > 0 for one in tokenized),
        }
        notes = {
            "most_frequent_convention": "accuracy of the candidate that is most often in the document",
            **self.calibration_note(),
            **scores.notes(),
        }
        if missing := len(records) - sum(answerable):
            metrics["unanswerable"] = missing
            notes["unanswerable_convention"] = "the answer is not in the document: counted as wrong, not in the loss"
        by_kind: dict[str, list[int]] = defaultdict(list)
        for i, question in enumerate(questions):
            by_kind[question.kind].append(i)
        rows = tuple(
            (kind, len(some), *(float(np.mean([right[i] for i in some])) for right in (first, frequent)))
            for kind, some in sorted(by_kind.items())
        )
        tables = {"kinds": Table(("kind", "questions", "accuracy", "most_frequent"), rows)} if len(rows) > 1 else {}
        tables["calibration"] = calibration_table(scores.bins(), self.unit)
        return Evaluation(metrics, notes, tables)

    def _given(self, record: Record, number: int) -> ClozeQuestion:
        data = self.config.data
        try:
            question = from_record(dict(record))
            check_question(question, data.blank if data.needs_blank else "")
        except DataError as error:
            raise DataError(f"entry {number}: {error}") from error
        return question

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the accuracy among the best k, with that of the most frequent candidate."""
        from foci.viz.figure.curves import plot_curves

        metrics = evaluation.metrics
        reader = [(float(k), float(metrics["accuracy" if k == 1 else f"accuracy_at_{k}"])) for k in _RANKS]
        baseline = [(1.0, float(metrics["most_frequent"]))]
        curves = {"reader": reader, "most frequent candidate": baseline}
        plot_curves(curves, path, across="best k candidates", up="share with the answer", title="accuracy at k")


def _read_batch(model: nn.Module, batch: ClozeBatch) -> tuple[ClozeBatch, ReaderOutput]:
    """The batch where the model is, and its result."""
    moved = on_device(batch, next(model.parameters()).device)
    return moved, model(*moved[:-1])


def _answerable(batch: ClozeBatch) -> Bool[Tensor, " B"]:
    """Whether the answer of each question is in its document."""
    return (batch.answer >= 0) & (batch.places == batch.answer.unsqueeze(1)).any(dim=1)


def _nats(probabilities: Float[Tensor, "B K"], batch: ClozeBatch) -> Float[Tensor, " N"]:
    """Minus the log-probability of each answer that is in its document."""
    known = _answerable(batch)
    if not known.any():
        return probabilities.new_zeros(0) + 0 * probabilities.sum()
    shares = probabilities.float()[known].gather(1, batch.answer[known].unsqueeze(1)).squeeze(1)
    # A weight that underflows to 0 has no logarithm.
    return -shares.clamp_min(torch.finfo(torch.float32).tiny).log()


def _present(batch: ClozeBatch, candidates: int) -> Bool[Tensor, "B K"]:
    """Which candidates are in the documents."""
    found = torch.zeros(len(batch.places), candidates + 1, dtype=torch.bool, device=batch.places.device)
    return found.scatter(1, batch.places + 1, torch.ones_like(batch.places, dtype=torch.bool))[:, 1:]


def _add(scores: Scores, probabilities: Float[Tensor, "B K"], batch: ClozeBatch) -> None:
    """Count the questions of which a candidate is in the document; a score is the logarithm of a probability."""
    present = _present(batch, probabilities.shape[1])
    some = present.any(dim=1)
    if some.any():
        logs = probabilities.float().clamp_min(torch.finfo(torch.float32).tiny).log().masked_fill(~present, -torch.inf)
        scores.add(logs[some], torch.where(_answerable(batch), batch.answer, UNTRAINED)[some])


def _best(probabilities: Float[Tensor, "B K"]) -> Tensor:
    """The number of the best candidate, -2 where none is in the document."""
    if probabilities.shape[1] == 0:
        return torch.full((len(probabilities),), -2, device=probabilities.device)
    highest, best = probabilities.max(dim=1)
    return torch.where(highest > 0, best, -2)


def _ranks(probabilities: Float[Tensor, "B K"], answer: Tensor) -> Tensor:
    """The rank of each answer, from 1 on; 0 where it is not in the document. Equal ones go by their number."""
    if probabilities.shape[1] == 0:
        return torch.zeros_like(answer)
    order = probabilities.argsort(dim=1, descending=True, stable=True)
    rank = (order == answer.unsqueeze(1)).int().argmax(dim=1) + 1
    own = probabilities.gather(1, answer.clamp_min(0).unsqueeze(1)).squeeze(1)
    return torch.where((answer >= 0) & (own > 0), rank, 0)


def _trace(
    read: ReaderOutput, row: int, question: TokenizedQuestion, answer: str, shares: Float[Tensor, " K"]
) -> Trace:
    axes = {
        "document": Axis.from_document(question.sentences),
        "question": Axis.from_tokens(question.question, "question"),
        "answer": Axis.from_tokens([answer], "answer"),
        "candidates": Axis.from_tokens(question.candidates, "candidates"),
    }
    sides = {"document": ("answer", "document"), "question": ("answer", "question"), "words": ("question", "document")}
    axes_of = {name: sides.get(name, ("document", "question")) for name in read.attentions}
    of_batch = shares.expand(len(read.probabilities), -1)  # only this row of it is read
    return Trace.from_handles(
        {**read.attentions, "candidates": Weights.from_tensor(of_batch)},
        axes,
        axes_of={**axes_of, "candidates": ("answer", "candidates")},
        row=row,
        text=answer,
        metadata={"probability": float(shares.max())},
    )
