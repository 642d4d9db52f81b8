"""Visual question answering by stacked attention; each answer has the map of every look at the image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foci.data import Sequences, TokenBatches
from foci.data.images.drawn import PREFIX, find_scene, questions
from foci.data.images.files import Images
from foci.data.splits import split_by_image
from foci.data.vocabulary import Vocabulary
from foci.errors import ConfigError, DataError
from foci.metrics import labels as label_metrics
from foci.metrics.boxes import Box, area, points_at, share_inside
from foci.models.image_answerer import AnswererOutput, ImageAnswerer
from foci.printable import printable
from foci.tasks.frame.labels import LABELS_FILE, Lexicon, draw_confusion, label_tables, labels_from
from foci.tasks.frame.notes import unknown_note
from foci.tasks.frame.task import Evaluation, Field, Log, Prediction, Progress, Record, Shard, Splits, Table, Task
from foci.tasks.vqa.config import BUILT_IN, VqaConfig, VqaOptions
from foci.tasks.vqa.reader import (
    QUESTIONS_TOGETHER,
    ImageQuestion,
    QuestionBatch,
    QuestionExamples,
    drawn_questions,
    question_words,
    read_image_questions,
)
from foci.training.objective import Batches, Loss
from foci.viz.regions import smooth
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

_VALID, _TEST = 60, 200
"""Numbers of drawn scenes for validation and evaluation."""


class Vqa(Task):
    """Visual question answering as a task of the frame; see `foci.tasks.frame.task.Task`."""

    name: ClassVar[str] = "vqa"
    Config: ClassVar[type[Any]] = VqaConfig
    Options: ClassVar[type[Any]] = VqaOptions
    EvaluateOptions: ClassVar[type[Any]] = VqaOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("image", "image"), Field("question", "sentence"))
    targets: ClassVar[tuple[Field, ...]] = (Field("answer", "label"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    unit: ClassVar[str] = "questions"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {"loss": "lower", "accuracy": "higher"}

    config: VqaConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read and check the questions, and split them by image; images are decoded when they are batched."""
        data = self.config.data
        if data.path is None:
            return self._drawn(log)
        if data.drawn is not None:
            raise ConfigError("data: path and drawn are both set, expected one of them.")
        asked = self._read(data.path, log)
        found = split_by_image(
            asked,
            valid_share=0.0 if data.valid is not None else data.valid_share,
            test_share=0.0 if data.test is not None else data.test_share,
            seed=data.split_seed,
        )
        valid = found.valid if data.valid is None else self._read(data.valid)
        test = found.test if data.test is None else self._read(data.test)
        if not valid:
            raise DataError(
                f"{data.path}, line 1: of {len(asked)} questions none is left to validate. Give questions about more "
                f"images, raise data.valid_share = {data.valid_share}, or name data.valid."
            )
        if len({one.answer for one in found.train}) < 2:
            raise DataError(f"{data.path}, line 1: all {len(found.train)} questions have one answer, expected several.")
        images = len({one.image for one in asked})
        first = found.train[0]
        log(
            f"{len(found.train):,} questions to train on, {len(valid):,} to validate, {len(test):,} to evaluate; "
            f"{images:,} images; the first is {printable(first.question)!r} → {printable(first.answer)!r}"
        )
        return Splits(found.train, valid, test)

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read questions in the form of the training data."""
        return [one._asdict() for path in paths for one in self._read(path)]

    def _read(self, path: str, log: Log | None = None) -> list[ImageQuestion]:
        return read_image_questions(path, columns=self.config.data.columns, log=log)

    def _drawn(self, log: Log) -> Splits:
        data = self.config.data
        if data.drawn is None:
            log(f"no data is named: training on questions about {BUILT_IN:,} drawn scenes (data.drawn)")
        sizes = {"train": data.drawn or BUILT_IN, "valid": _VALID, "test": _TEST}
        made = [
            drawn_questions(size, split=split, seed=data.split_seed, language=data.language)
            for split, size in sizes.items()
        ]
        counts = [len(part) for part in made]
        log(
            f"{counts[0]:,} questions about {sizes['train']:,} drawn scenes to train on, {counts[1]:,} to validate, "
            f"{counts[2]:,} to evaluate"
        )
        return Splits(*made)

    def assets(self, splits: Splits, log: Log) -> Lexicon:
        """Count the words and the answers."""
        data, counted = self.config.data, self.config.vocabulary
        train = list(splits.train)
        vocabulary = counted.count(([self._words(one.question)] for one in train), counted.buckets)
        answers = Counter(one.answer for one in train)
        # Equally frequent answers are in alphabetical order, so that the order of the questions has no effect.
        kept = sorted(answers, key=lambda answer: (-answers[answer], answer))[: data.max_answers]
        log(f"{len(kept):,} answers; {len(vocabulary.words):,} words, and {vocabulary.buckets} buckets for the others")
        return Lexicon(vocabulary, tuple(kept))

    def load_assets(self, read: Callable[[str], str]) -> Lexicon:
        """Read the words and the answers."""
        labels = labels_from(read(LABELS_FILE))
        return Lexicon(Vocabulary.from_text(read("vocabulary.json"), "vocabulary.json"), labels)

    def model(self, assets: Lexicon) -> nn.Module:
        """Build the model for these words and answers."""
        return self.config.model.build(len(assets.vocabulary), len(assets.labels))

    def batches(self, splits: Splits, assets: Lexicon, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training questions, without those about unreadable images or with rare answers."""
        data = self.config.data
        known = set(assets.labels)
        train = [one for one in splits.train if one.answer in known]
        if rare := len(list(splits.train)) - len(train):
            log(f"{rare:,} questions have none of the {data.max_answers:,} most frequent answers (data.max_answers)")
        return TokenBatches(
            self._examples(train, assets, log).examples,
            max_tokens=data.batch_size * max(data.max_words, QUESTIONS_TOGETHER),
            max_examples=data.batch_size,
            seed=self.config.training.seed,
            workers=data.workers,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: Lexicon, log: Log) -> QuestionExamples:
        """Encode the validation questions."""
        return self._examples(splits.valid, assets, log).examples

    def _examples(self, asked: Sequence[ImageQuestion], assets: Lexicon, log: Log | None = None) -> _Encoded:
        data = self.config.data
        names = list(dict.fromkeys(one.image for one in asked))
        images = Images.load(names, data.image_size, max_pixels=data.max_pixels, log=log)
        place = {names[number]: row for row, number in enumerate(images.kept)}
        kept = [number for number, one in enumerate(asked) if one.image in place]
        if asked and not kept and log is not None:
            raise DataError(f"none of the {len(names)} images can be read: {images.unreadable[0]}")
        number_of = {answer: number for number, answer in enumerate(assets.labels)}
        words = [assets.vocabulary.ids(self._words(asked[number].question)) for number in kept]
        examples = QuestionExamples(
            images,
            [place[asked[number].image] for number in kept],
            Sequences(words, len(assets.vocabulary)),
            [number_of.get(asked[number].answer, -1) for number in kept],
        )
        return _Encoded(examples, kept, {one.name: one.reason for one in images.unreadable})

    def _words(self, question: str) -> list[str]:
        return question_words(question)[: self.config.data.max_words]

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: QuestionBatch) -> Loss:
        """Return the cross-entropy of the answer, summed over the questions."""
        logits = model(batch.images, batch.questions, batch.image_of).logits.float()
        right = (logits.argmax(dim=-1) == batch.answers).sum()
        return Loss(F.cross_entropy(logits, batch.answers, reduction="sum"), len(batch.answers), {"accuracy": right})

    def validate(self, model: nn.Module, held_out: QuestionExamples) -> dict[str, float]:
        """Return nats per question with a known answer, and the share of right answers."""
        loss, right, known = 0.0, 0, 0
        for batch, _ in _batched(held_out, self.config.data.batch_size):
            logits = _answered(model, batch).logits.float().cpu()
            loss += float(F.cross_entropy(logits, batch.answers, ignore_index=-1, reduction="sum"))
            right += int((logits.argmax(dim=-1) == batch.answers).sum())
            known += int((batch.answers >= 0).sum())
        return {"loss": loss / max(known, 1), "accuracy": right / len(held_out.answers)}

    # ---- predictions

    def predict(
        self,
        model: nn.Module,
        assets: Lexicon,
        records: Sequence[Record],
        options: VqaOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Answer; a trace has the map of each hop over the image."""
        asked = [ImageQuestion(record["image"], record["question"], "") for record in records]
        encoded = self._examples(asked, assets)
        found: dict[int, Prediction] = {}
        for number, record in enumerate(records):
            if reason := encoded.unreadable.get(record["image"]):
                note = f"the image cannot be read, so nothing was predicted: {reason}"
                found[number] = Prediction(record, "", None, {"notes": [note]})
        progress(len(found))
        for batch, indices in _batched(encoded.examples, options.batch_size):
            answered = _answered(model, batch)
            shares = answered.logits.float().softmax(dim=-1).cpu().numpy()
            for row, i in enumerate(indices):
                number = encoded.kept[i]
                best = int(shares[row].argmax())
                details: dict[str, Any] = {
                    "probabilities": {assets.labels[at]: float(shares[row][at]) for at in np.argsort(-shares[row])[:20]}
                }
                if notes := self._notes(records[number]["question"], assets.vocabulary):
                    details["notes"] = notes
                traced = None
                if trace:
                    image = batch.images[int(batch.image_of[row])].permute(1, 2, 0).numpy()
                    traced = _trace(model, answered, row, image, assets.labels[best], float(shares[row][best]))
                found[number] = Prediction(
                    records[number], assets.labels[best], float(shares[row][best]), details, traced
                )
            progress(len(indices))
        return [found[number] for number in range(len(records))]

    def _notes(self, question: str, vocabulary: Vocabulary) -> list[str]:
        most = self.config.data.max_words
        whole, words = question_words(question), self._words(question)
        notes = []
        if len(whole) > most:
            notes.append(f"only the first {most} of {len(whole)} words were read (data.max_words)")
        unknown = [word for word in words if word not in vocabulary]
        if unknown and 2 * len(unknown) > len(words):
            data = self.config.data.path or "questions about drawn scenes (data.drawn)"
            notes.append(unknown_note("words", unknown, len(words), vocabulary.words, data))
        return notes

    def evaluate(
        self,
        model: nn.Module,
        assets: Lexicon,
        records: Sequence[Record],
        options: VqaOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return the share of right answers, nats per question, the confusion, and metrics of each answer.

        For drawn scenes, whose shapes have known places, also how well the maps fall on the shapes asked about.
        """
        asked = [ImageQuestion(record["image"], record["question"], record["answer"]) for record in records]
        encoded = self._examples(asked, assets)
        progress(len(asked) - len(encoded.kept))
        if not encoded.kept:
            raise DataError(f"evaluate: none of the images of {len(records)} questions can be read.")
        loss, right = 0.0, 0
        gold: list[int] = []
        predicted: list[int] = []
        hops: list[list[tuple[bool, float]]] = []
        areas: list[float] = []
        for batch, indices in _batched(encoded.examples, options.batch_size):
            answered = _answered(model, batch)
            logits = answered.logits.float().cpu()
            loss += float(F.cross_entropy(logits, batch.answers, ignore_index=-1, reduction="sum"))
            best = logits.argmax(dim=-1)
            right += int((best == batch.answers).sum())
            gold += batch.answers.tolist()
            predicted += best.tolist()
            maps, grid = _maps(model, answered, batch.images.shape[2:])
            for row, i in enumerate(indices):
                boxes = _boxes(asked[encoded.kept[i]])
                if boxes:
                    areas.append(sum(map(area, boxes)))
                    hops.append([_placed(one.reshape(grid), boxes, batch.images.shape[2]) for one in maps[row]])
            progress(len(indices))
        known = [(a, b) for a, b in zip(gold, predicted) if a >= 0]
        counts = label_metrics.confusion([a for a, _ in known], [b for _, b in known], len(assets.labels))
        metrics: dict[str, float | int] = {
            "questions": len(gold),
            "unreadable": len(asked) - len(encoded.kept),
            "accuracy": right / len(gold),
            "loss": loss / max(len(known), 1),
        }
        notes = {}
        if len(known) < len(gold):
            notes["unknown_answers"] = f"{len(gold) - len(known)} answers were not trained, and count as wrong"
        tables = label_tables(assets.labels, counts, kind="answer", unit="questions")
        if hops:
            table = [tuple(np.mean(each, axis=0).tolist()) for each in zip(*hops)]
            metrics |= {"pointing": table[-1][0], "inside": table[-1][1]}
            tables["hops"] = Table(
                ("hop", "pointing", "inside"), tuple((number, *row) for number, row in enumerate(table, start=1))
            )
            notes["hops"] = (
                f"of {len(hops)} questions about shapes that are there; pointing: the largest weight lies in the box "
                f"of one of them; inside: the share of the weights in their boxes, {np.mean(areas):.3f} by chance; "
                "pointing and inside above are those of the last hop"
            )
        return Evaluation(metrics, notes, tables)

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the confusion of the answers."""
        draw_confusion(evaluation.tables["confusion"], path, kind="answer", unit="questions")


class _Encoded(NamedTuple):
    """Questions about readable images, which of the given ones they are, and why images could not be read."""

    examples: QuestionExamples
    kept: list[int]
    unreadable: dict[str, str]


def _batched(examples: QuestionExamples, size: int) -> Iterator[tuple[QuestionBatch, list[int]]]:
    """Batches of so many images, and the numbers of their questions."""
    lengths = examples.lengths
    for start in range(0, len(lengths), size):
        indices = np.arange(start, min(start + size, len(lengths)))
        widths = [int(lengths[indices, 0].max()), max(int(lengths[indices, 1].max()), 1)]
        yield examples.batch(indices, widths), examples.numbers(indices).tolist()


def _answered(model: nn.Module, batch: QuestionBatch) -> AnswererOutput:
    device = next(model.parameters()).device
    answered: AnswererOutput = model(*(part.to(device) for part in (batch.images, batch.questions, batch.image_of)))
    return answered


def _maps(
    model: nn.Module, answered: AnswererOutput, size: Sequence[int]
) -> tuple[Float[NDArray[np.float32], "B K S"], tuple[int, int]]:
    """The weights of each hop over the regions, and their grid."""
    stacked: Tensor = torch.cat([handle.dense() for handle in answered.attentions.values()], dim=1)
    grid = cast(ImageAnswerer, getattr(model, "module", model)).grid(size[0], size[1])
    return stacked.float().cpu().numpy(), grid


def _trace(
    model: nn.Module, answered: AnswererOutput, row: int, image: NDArray[np.uint8], answer: str, share: float
) -> Trace:
    maps, grid = _maps(model, answered, image.shape[:2])
    axes = {
        "image": Axis.from_image(np.array(image), grid),
        "hops": Axis.from_tokens([f"hop {number}" for number in range(1, maps.shape[1] + 1)], "hops"),
    }
    handles = {"hops": Weights.from_tensor(torch.from_numpy(maps[row : row + 1]))}
    axes_of = {"hops": ("hops", "image")}
    return Trace.from_handles(handles, axes, axes_of=axes_of, text=answer, metadata={"probability": share})


def _boxes(asked: ImageQuestion) -> list[Box]:
    """Where the shapes are that a question about a drawn scene asks about; nothing for other images and questions."""
    if not asked.image.startswith(PREFIX):
        return []
    scene = find_scene(asked.image)
    for language in ("en", "zh"):
        for one in questions(scene, language):
            if one.question == asked.question:
                return [scene.shapes[number].box for number in one.about]
    return []


def _placed(weights: Float[NDArray[np.float32], "R S"], boxes: Sequence[Box], size: int) -> tuple[bool, float]:
    """Whether the largest weight lies in one of the boxes, and the share of the weights in all of them."""
    spread = smooth(weights, size, size)
    return any(points_at(spread, box) for box in boxes), sum(share_inside(spread, box) for box in boxes)
