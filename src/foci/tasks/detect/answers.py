"""What the queries say of an image: a box, a class and its probability each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import nn

from foci.data.batching import on_device
from foci.functional.boxes import to_corners
from foci.metrics.calibration import Odds
from foci.metrics.detection import LIMITS, Found, Marked
from foci.metrics.matched_boxes import matched
from foci.models.detector import Detector, DetectorOutput
from foci.tasks.detect.batches import DetectionBatch, DetectionExamples

NOTHING = "nothing"
"""What is said of an image without objects."""


class Answer(NamedTuple):
    """Of each query its box in pixels of the image, and the probability of each class, not calibrated."""

    boxes: Float[NDArray[np.float64], "Q 4"]
    scores: Float[NDArray[np.float64], "Q C"]

    def ranked(self) -> Found:
        """Return the likeliest pairs of query and class, at most as many as average precision looks at."""
        order = np.argsort(-self.scores, axis=None, kind="stable")[: max(*LIMITS, len(self.boxes))]
        queries, labels = np.divmod(order, self.scores.shape[1])
        return Found(self.boxes[queries], labels, self.scores.reshape(-1)[order])

    def best(self, odds: Odds) -> Found:
        """Return the likeliest class of each query, with its calibrated probability."""
        labels = self.scores.argmax(axis=1)
        scores = np.array(odds(self.scores.max(axis=1).tolist()), np.float64)
        return Found(self.boxes, labels, scores)


def answers_of(model: nn.Module, output: DetectorOutput, originals: Int[NDArray[np.int64], "B 2"]) -> list[Answer]:
    """Return the answers for a batch of images of these heights and widths; boxes end where the images do."""
    detector = cast(Detector, getattr(model, "module", model))
    scores = detector.probabilities(output.logits).double().cpu().numpy()
    shares = to_corners(output.boxes.double()).clamp(0, 1).cpu().numpy()
    sides = originals[:, None, [1, 0, 1, 0]]
    return [Answer(boxes, of_image) for boxes, of_image in zip(shares * sides, scores)]


class Seen(NamedTuple):
    """A batch that the model has read.

    Attributes:
        numbers: which images these are.
        sizes: height and width of each on its canvas.
        originals: height and width of each image itself.
        batch: the batch.
        output: the model's output.
        answers: what it says of each image.
    """

    numbers: list[int]
    sizes: list[tuple[int, int]]
    originals: list[tuple[int, int]]
    batch: DetectionBatch
    output: DetectorOutput
    answers: list[Answer]


def read_all(model: nn.Module, examples: DetectionExamples, batch_size: int) -> Iterator[Seen]:
    """Yield all images in their order, ``batch_size`` at once, with what the model says of them."""
    device = next(model.parameters()).device
    canvases = examples.canvases
    for start in range(0, len(canvases), batch_size):
        numbers = np.arange(start, min(start + batch_size, len(canvases)))
        batch = on_device(examples.batch(numbers, [1]), device)
        output = model(batch.images, batch.sizes)
        answers = answers_of(model, output, canvases.originals[numbers])
        sizes = [canvases.size(number) for number in numbers.tolist()]
        originals = [(int(height), int(width)) for height, width in canvases.originals[numbers]]
        yield Seen(numbers.tolist(), sizes, originals, batch, output, answers)


class Outcomes:
    """Counts which probabilities came with right boxes: of the class, an IoU of .5, and no second one for an object."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.right: list[bool] = []

    def add(self, answer: Answer, marked: Marked) -> None:
        """Count the queries of an image; those that lie in a crowd of their class are neither right nor wrong."""
        found = answer.best(Odds())
        pairs = matched(found, marked, threshold=0.0)
        for query, place in zip(pairs.boxes.tolist(), pairs.objects.tolist()):
            if place >= -1:
                self.scores.append(float(found.scores[query]))
                self.right.append(place >= 0 and int(marked.labels[place]) == int(found.labels[query]))


def said(labels: Iterable[str]) -> str:
    """Return how many objects of each class there are, in words, the most frequent class first.

    Example:
        >>> said(["cat", "dog", "dog"]), said([])
        ('2 dog, 1 cat', 'nothing')
    """
    counts = sorted(Counter(labels).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count} {label}" for label, count in counts) or NOTHING


def details_of(found: Found, labels: Sequence[str], least: float) -> list[dict[str, Any]]:
    """Return the boxes of at least this probability, the surest first, as plain JSON."""
    return [
        {
            "label": labels[int(found.labels[query])],
            "probability": float(found.scores[query]),
            "box": [round(float(edge), 2) for edge in found.boxes[query]],
        }
        for query in given(found, least)
    ]


def given(found: Found, least: float) -> list[int]:
    """Return which queries have at least this probability and a box with area, the surest first."""
    sides = found.boxes[:, 2:] - found.boxes[:, :2]
    order = np.argsort(-found.scores, kind="stable")
    return [int(query) for query in order if found.scores[query] >= least and sides[query].min() > 0]
