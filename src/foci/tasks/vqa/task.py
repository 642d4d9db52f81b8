"""Visual question answering by stacked attention; each answer has the map of every look at the image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.data.batching import Indices, Sequences
from foci.data.images.drawn import PREFIX, Scene, find_scene, questions
from foci.data.images.files import Images, log_reduction, same_pixels
from foci.data.splits import file_key, text_key
from foci.data.vocabulary import Vocabulary
from foci.metrics.boxes import Box, area, points_at, share_inside
from foci.models.image_answerer import ImageAnswerer
from foci.probing.subject import Source
from foci.tasks.frame.assets import Assets, Labels
from foci.tasks.frame.baselines import most_frequent_by
from foci.tasks.frame.labels.task import Encoded, LabelTask, Scored
from foci.tasks.frame.notes import truncated, unknown_words
from foci.tasks.frame.probing.images import erasable_image
from foci.tasks.frame.task import Evaluation, Field, Log, Progress, Record, Shard, Splits, Table
from foci.tasks.frame.vocabulary import count_words
from foci.tasks.vqa.config import BUILT_IN, VqaConfig, VqaEvaluateOptions, VqaOptions
from foci.tasks.vqa.reader import (
    QUESTIONS_TOGETHER,
    ImageQuestion,
    QuestionExamples,
    drawn_questions,
    read_image_questions,
)
from foci.training.objective import Batches
from foci.viz.regions import smooth
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

_REPORTED = 20
"""How many answers are reported with their probabilities."""


@dataclass(frozen=True)
class VqaAssets(Assets):
    """The words and the answers of a run."""

    vocabulary: Vocabulary
    labels: Labels


class Vqa(LabelTask):
    """The visual question answering task."""

    name = "vqa"
    Config = VqaConfig
    Options = VqaOptions
    EvaluateOptions = VqaEvaluateOptions
    Assets = VqaAssets
    Example = ImageQuestion
    inputs = (Field("image", "image"), Field("question", "sentence"))
    targets = (Field("answer", "label"),)
    noun = unit = "questions"
    example = "a question"
    kind = "answer"
    compared_note = "; question_majority: the most frequent answer to the same question, whatever the image"
    baseline_types: ClassVar[Mapping[str, Any]] = {"majority": str, "questions": dict[str, str]}
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "calibrated_loss": "lower",
        "accuracy": "higher",
    }
    about = "image"
    builtin_sizes = (BUILT_IN, 60, 200)
    in_order = True
    open_labels = True

    config: VqaConfig

    # ---- data

    def read_file(self, path: str, log: Log | None = None) -> list[ImageQuestion]:
        """Read a table of questions; images are decoded when they are batched."""
        return read_image_questions(path, columns=self.config.data.columns)

    def key(self, example: ImageQuestion) -> str:
        """Return the content of the image: all questions about it are in one part."""
        return file_key(example.image)

    def twins(self, examples: Sequence[ImageQuestion]) -> list[str | None]:
        """Return the pixels of images that differ in their bytes alone."""
        return same_pixels([one.image for one in examples], max_pixels=self.config.data.max_pixels)

    def read_builtin(self, size: int, part: str) -> list[ImageQuestion]:
        """Return all questions about this many drawn scenes."""
        data = self.config.data
        return drawn_questions(size, split=part, seed=data.split_seed, language=data.language)

    def count_baselines(self, splits: Splits) -> dict[str, object]:
        """Return the most frequent answer, and that to each question whatever the image."""
        of_question = most_frequent_by((text_key(one.question), one.answer) for one in splits.train)
        return {**super().count_baselines(splits), "questions": of_question}

    def compared(self, examples: Sequence[ImageQuestion]) -> dict[str, float]:
        """Return the accuracy of the most frequent answer, and of the most frequent one to the same question."""
        found = super().compared(examples)
        if "questions" in self.baselines and found:
            known, majority = self.baselines["questions"], self.baselines["majority"]
            right = [known.get(text_key(one.question), majority) == one.answer for one in examples]
            found["question_majority"] = sum(right) / len(right)
        return found

    def batches(self, splits: Splits, assets: VqaAssets, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training questions, without those with rare answers."""
        train, known = list(splits.train), {*assets.labels}
        kept = [one for one in train if one.answer in known]
        if rare := len(train) - len(kept):
            most = self.config.data.max_answers
            log(f"{rare:,} questions have none of the {most:,} most frequent answers (data.max_answers)")
        return super().batches(splits._replace(train=kept), assets, shard, log)

    @property
    def batch_tokens(self) -> int:
        """Enough for every batch of this many images, whatever questions they have."""
        return self.config.data.batch_size * max(self.config.data.max_words, QUESTIONS_TOGETHER)

    def validation_order(self, held_out: Encoded) -> Iterable[Indices]:
        """Return the images in their order."""
        return held_out.in_order(self.config.data.batch_size)

    def _words(self, question: str) -> list[str]:
        return self.splitter.words(question)[: self.config.data.max_words]

    # ---- model

    def assets(self, splits: Splits, log: Log) -> VqaAssets:
        """Count the words and the answers."""
        counted = self.config.vocabulary
        train = list(splits.train)
        vocabulary = count_words(counted, ([self._words(one.question)] for one in train), counted.buckets)
        answers = Counter(one.answer for one in train)
        # Equally frequent answers are in alphabetical order, so that the order of the questions has no effect.
        kept = sorted(answers, key=lambda answer: (-answers[answer], answer))[: self.config.data.max_answers]
        log(f"{len(kept):,} answers; {len(vocabulary.words):,} words, and {vocabulary.buckets} buckets for the others")
        log_reduction([one.image for one in train], self.config.data.image_size, log)
        return VqaAssets(vocabulary, tuple(kept))

    def model(self, assets: VqaAssets) -> nn.Module:
        """Build the model for these words and answers."""
        return ImageAnswerer(len(assets.vocabulary), len(assets.labels), self.config.model)

    # ---- examples and traces

    def encode(
        self, examples: Sequence[ImageQuestion], labels: Sequence[int], assets: VqaAssets, log: Log | None
    ) -> Encoded:
        """Decode the images, each once, and return word ids by image."""
        data = self.config.data
        names = list(dict.fromkeys(one.image for one in examples))
        images = Images.load(names, data.image_size, max_pixels=data.max_pixels, log=log)
        place = {names[number]: row for row, number in enumerate(images.kept)}
        reasons = {one.name: str(one) for one in images.unreadable}
        kept = [number for number, one in enumerate(examples) if one.image in place]
        grouped = QuestionExamples(
            images,
            [place[examples[number].image] for number in kept],
            Sequences(
                (assets.vocabulary.ids(self._words(examples[number].question)) for number in kept),
                len(assets.vocabulary),
            ),
            [labels[number] for number in kept],
        )
        return Encoded(
            grouped,
            unusable={number: reasons[one.image] for number, one in enumerate(examples) if one.image in reasons},
            rows=lambda indices: [kept[number] for number in grouped.numbers(indices)],
        )

    maps = frozenset(("hops",))

    def erasable(
        self, encoded: Sequence[Any], trace: Trace, record: Record
    ) -> tuple[Sequence[Any], Mapping[str, Source]]:
        """Return the image and the question, and the regions of the one and the words of the other."""
        images, words, _ = encoded
        question = record["question"]
        values, regions = erasable_image(images, trace.axes["image"], record, lambda scene: _boxes(scene, question))
        return (values, words), {"image": regions, "question": Source(1, tuple(self._words(question)))}

    def notes(self, example: ImageQuestion, assets: VqaAssets) -> list[str]:
        """Return messages about words that were not read, and about those that are not known."""
        read = self._words(example.question)
        total = len(self.splitter.words(example.question))
        unknown = unknown_words(read, assets.vocabulary, self.origin)
        return [*truncated(len(read), total), *unknown, *self.splitter.note(example.question)]

    def probabilities(self, labels: Sequence[str], row: Float[NDArray[np.float32], " C"]) -> dict[str, float]:
        """Return those of the likeliest answers."""
        return {labels[number]: float(row[number]) for number in np.argsort(-row)[:_REPORTED]}

    def view(self, model: nn.Module, scored: Scored) -> HopMaps:
        """Return the weights of each hop over the regions of each question's image."""
        images, _, image_of = scored.inputs
        maps: Tensor = torch.cat([handle.dense() for handle in scored.output.attentions.values()], dim=1)
        grid = cast(ImageAnswerer, getattr(model, "module", model)).grid(images.shape[2], images.shape[3])
        return HopMaps(images, image_of, maps.float().cpu().numpy(), grid)

    def trace(self, view: HopMaps, row: int, example: ImageQuestion, label: str, probability: float) -> Trace:
        """Return the map of each hop over the image."""
        image = view.images[int(view.image_of[row])].permute(1, 2, 0).numpy()
        axes = {
            "image": Axis.from_image(np.array(image), view.grid),
            "hops": Axis.from_tokens([f"hop {number}" for number in range(1, view.maps.shape[1] + 1)], "hops"),
        }
        handles = {"hops": Weights.from_tensor(torch.from_numpy(view.maps[row : row + 1]))}
        axes_of = {"hops": ("hops", "image")}
        return Trace.from_handles(handles, axes, axes_of=axes_of, text=label, metadata={"probability": probability})

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: VqaAssets,
        records: Sequence[Record],
        options: VqaEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return what every answer is measured by; for drawn scenes also where the maps fall."""
        hops: list[list[tuple[bool, float]]] = []
        areas: list[float] = []

        def observe(view: HopMaps, examples: Sequence[ImageQuestion]) -> None:
            size = view.images.shape[2]
            for row, one in enumerate(examples):
                drawn = one.image.startswith(PREFIX)
                if boxes := _boxes(find_scene(one.image), one.question) if drawn else []:
                    areas.append(sum(map(area, boxes)))
                    hops.append([_placed(weights.reshape(view.grid), boxes, size) for weights in view.maps[row]])

        evaluation = self.measure(model, assets, records, options, progress, observe)
        metrics = {**evaluation.metrics, "unreadable": len(records) - evaluation.metrics["questions"]}
        if not hops:
            return replace(evaluation, metrics=metrics)
        rows = [tuple(np.mean(each, axis=0).tolist()) for each in zip(*hops)]
        metrics |= dict(zip(("pointing", "inside"), rows[-1]))
        table = Table(("hop", "pointing", "inside"), tuple((number, *row) for number, row in enumerate(rows, start=1)))
        note = (
            f"of {len(hops)} questions about shapes that are there; pointing: the largest weight lies in the box of "
            f"one of them; inside: the share of the weights in their boxes, {np.mean(areas):.3f} by chance; pointing "
            "and inside above are those of the last hop"
        )
        return Evaluation(metrics, {**evaluation.notes, "hops": note}, {**evaluation.tables, "hops": table})


class HopMaps(NamedTuple):
    """Images, the image of each question, and the weights of each hop over the regions of a grid."""

    images: Tensor
    image_of: Tensor
    maps: Float[NDArray[np.float32], "B K S"]
    grid: tuple[int, int]


def _boxes(scene: Scene, question: str) -> list[Box]:
    """Where the shapes are that a question about a drawn scene asks about; nothing for other questions."""
    for language in ("en", "zh"):
        for one in questions(scene, language):
            if one.question == question:
                return [scene.shapes[number].box for number in one.about]
    return []


def _placed(weights: Float[NDArray[np.float32], "R S"], boxes: Sequence[Box], size: int) -> tuple[bool, float]:
    """Whether the largest weight lies in one of the boxes, and the share of the weights in all of them."""
    spread = smooth(weights, size, size)
    return any(points_at(spread, box) for box in boxes), sum(share_inside(spread, box) for box in boxes)
