"""Questions about images with their answers: from a table, or about drawn scenes, to batches.

read_image_questions(path)          a .jsonl, .tsv or .csv file of image, question, answer
drawn_questions(count, …)           questions about drawn scenes, in English or Chinese
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import GroupedSequences, Indices, Sequences
from foci.data.images.drawn import Language, find_scene, questions, scene_name
from foci.data.images.files import Images, beside
from foci.data.lines import Fault, each, empty_field, read_examples
from foci.data.tables import Column, TableRow, read_rows
from foci.errors import DataError

QUESTIONS_TOGETHER = 16
"""Largest number of questions about one image in an example."""


class ImageQuestion(NamedTuple):
    """The file of an image, or the name of a drawn scene, a question about it, and the answer."""

    image: str
    question: str
    answer: str


def read_image_questions(path: str | Path, *, columns: Sequence[Column] = ImageQuestion._fields) -> list[ImageQuestion]:
    """Return the questions of a .jsonl, .tsv or .csv file (+ .gz, .xz); no image is opened.

    Args:
        path: the file; the names of images are relative to its folder.
        columns: those of image, question and answer, by the names in a table's first line or by three zero-based
            numbers (then there is no line of names); the fields of a JSONL file.

    Everything is read before a DataError reports the first fault, with its file and line, and their number.
    """
    path = Path(path)

    def question(row: TableRow) -> ImageQuestion | Fault:
        made = ImageQuestion(*(value.strip() for value in row.values))
        return empty_field(path, row.line, **made._asdict()) or made._replace(image=beside(path, made.image))

    return read_examples(path, each(read_rows(path, columns, texts=2), question), "questions")


def drawn_questions(
    count: int, *, split: str = "train", seed: int = 0, language: Language = "en"
) -> list[ImageQuestion]:
    """Return all questions about this many drawn scenes.

    Example:
        >>> drawn_questions(1, split="test")[0]
        ImageQuestion(image='drawn:several/test/0/0', question='what colour is the circle?', answer='green')
    """
    names = [scene_name("several", split, seed, number) for number in range(count)]
    return [ImageQuestion(name, *one[:2]) for name in names for one in questions(find_scene(name), language)]


class QuestionExamples(GroupedSequences):
    """Questions as word ids, by the image they are about: an example is an image with some of its questions.

    The image is encoded once for all of them, which is most of the work.

    Args:
        images: the images.
        places: for each question, the number of its image among them.
        questions: word ids.
        answers: the numbers of the answers, −1 for one that was not trained.
    """

    def __init__(self, images: Images, places: Sequence[int], questions: Sequences, answers: Sequence[int]) -> None:
        super().__init__(places, questions, QUESTIONS_TOGETHER)
        if len(questions) != len(answers):
            raise DataError(
                f"QuestionExamples: {len(questions)} questions and {len(answers)} answers, expected as many of each."
            )
        self.images, self.answers = images, np.array(answers, dtype=np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(example, 2)``: the same for all, so that batches are not sorted by the length of the questions.

        Which questions an image has depends on what it shows: sorted batches would be of images that are alike, and
        have alike answers, as "how many …?". Questions are short, and an image is most of the work.
        """
        return np.broadcast_to(super().lengths.max(axis=0, initial=0), (len(self.groups), 2))

    def batch(self, indices: Indices, widths: Sequence[int]) -> tuple[Tensor, ...]:
        """Return images ``(I, 3, H, W)``, word ids ``(B, T)``, the image of each question ``(B)``, and the answers."""
        numbers = self.numbers(indices)
        words, _ = self.sequences.padded(numbers, int(self.sequences.lengths[numbers].max(initial=0)))
        places, image_of = self.owners(indices)
        return self.images.grids(places), *map(torch.from_numpy, (words, image_of, self.answers[numbers]))
