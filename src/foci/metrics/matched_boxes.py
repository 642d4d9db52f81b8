"""Which predicted box found which object: the confusion of classes, and what was missed and made up.

Of the boxes that reach a score, best ones first, each takes the free object of its class with the highest IoU that
reaches .5; those that are left take free objects of other classes in the same way. So the diagonal of the confusion has
what AP50 counts as right. A box that lies in a crowd of its class is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from foci.metrics.detection import Found, Marked, check_images, overlaps

_NOTHING, _CROWD = -1, -2
_FOUND = 0.5
"""The lowest intersection over union with an object that is found."""


class Matched(NamedTuple):
    """The boxes that reach the score, best ones first, and what each took.

    Attributes:
        boxes: their places among the predicted ones.
        objects: the places of the objects that they took: -1 for none, -2 for a crowd.
    """

    boxes: Int[ndarray, " N"]
    objects: Int[ndarray, " N"]

    def missed(self, marked: Marked) -> Int[ndarray, " M"]:
        """Return the places of the objects that no box took; crowds cannot be missed."""
        whole = np.flatnonzero(~marked.crowd)
        left: Int[ndarray, " M"] = np.setdiff1d(whole, self.objects)
        return left


def matched(found: Found, marked: Marked, *, threshold: float, iou: float = _FOUND) -> Matched:
    """Return which box of an image found which object.

    Args:
        found: the predicted boxes.
        marked: the objects.
        threshold: the lowest score of the boxes that count.
        iou: the lowest intersection over union with an object that is found.

    Example:
        >>> truth = Marked.from_boxes(np.array([[0.0, 0.0, 4.0, 4.0], [6.0, 0.0, 9.0, 4.0]]), np.array([0, 1]))
        >>> boxes = Found(truth.boxes[[0, 0]], np.array([1, 0]), np.array([0.9, 0.8]))
        >>> pairs = matched(boxes, truth, threshold=0.5)
        >>> pairs.boxes.tolist(), pairs.objects.tolist(), pairs.missed(truth).tolist()
        ([0, 1], [-1, 0], [1])
    """
    order = np.argsort(-found.scores, kind="stable")
    order = order[found.scores[order] >= threshold]
    shares = overlaps(found.boxes[order], marked.boxes, marked.crowd)
    shares[shares < iou] = 0.0
    same = found.labels[order][:, None] == marked.labels
    objects = np.full(len(order), _NOTHING)
    _take(objects, np.where(same & ~marked.crowd, shares, 0.0))
    objects[(objects == _NOTHING) & (np.where(same & marked.crowd, shares, 0.0) > 0).any(axis=1)] = _CROWD
    _take(objects, np.where(marked.crowd, 0.0, shares))
    return Matched(order, objects)


def _take(objects: Int[ndarray, " N"], shares: Float[ndarray, "N M"]) -> None:
    """Let each box without an object take the free one with the highest share above 0."""
    free = np.ones(shares.shape[1], dtype=bool)
    free[objects[objects >= 0]] = False
    for row in np.flatnonzero((objects == _NOTHING) & (shares > 0).any(axis=1)):
        left = np.where(free, shares[row], 0.0)
        if left.any():
            objects[row] = left.argmax()
            free[objects[row]] = False


def confusion(
    found: Sequence[Found], marked: Sequence[Marked], num_classes: int, *, threshold: float
) -> Int[ndarray, "right predicted"]:
    """Return how often objects of each class were found as each class.

    The last row, "background", counts boxes that found no object; the last column, "missed", objects that no box found.

    Args:
        found: the predicted boxes of each image.
        marked: the objects of each image.
        num_classes: labels are 0 to ``num_classes - 1``.
        threshold: the lowest score of the boxes that count.

    Example:
        >>> truth = Marked.from_boxes(np.array([[0.0, 0.0, 4.0, 4.0], [6.0, 0.0, 9.0, 4.0]]), np.array([0, 1]))
        >>> boxes = Found(truth.boxes[[0, 0]], np.array([1, 0]), np.array([0.9, 0.8]))
        >>> confusion([boxes], [truth], 2, threshold=0.5).tolist()
        [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    """
    check_images(found, marked, num_classes)
    counts = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    for boxes, objects in zip(found, marked):
        pairs = matched(boxes, objects, threshold=threshold)
        predicted = boxes.labels[pairs.boxes[pairs.objects != _CROWD]]
        places = pairs.objects[pairs.objects != _CROWD]
        right = np.append(objects.labels, num_classes)[places]  # -1, the last one, is the background
        np.add.at(counts, (right, predicted), 1)
        np.add.at(counts, (objects.labels[pairs.missed(objects)], num_classes), 1)
    return counts


class Mistake(NamedTuple):
    """A box or an object that is not as it should be.

    Attributes:
        image: the place of its image.
        box: the place of the predicted box; None of an object that was missed.
        object: the place of the object; of a box that took none the one that it covers, None if there is none.
        score: of the box; of a missed object the highest score of a box of its class that covers it, 0 without one.
    """

    image: int
    box: int | None
    object: int | None
    score: float


class Mistakes(NamedTuple):
    """Objects that were missed, boxes of a wrong class, and boxes that found nothing: of each kind the worst first."""

    missed: list[Mistake]
    wrong: list[Mistake]
    false: list[Mistake]


def mistakes(found: Sequence[Found], marked: Sequence[Marked], *, threshold: float) -> Mistakes:
    """Return all mistakes; of boxes those with the highest scores first, of missed objects the least suspected ones.

    Args:
        found: the predicted boxes of each image.
        marked: the objects of each image.
        threshold: the lowest score of the boxes that count.

    Example:
        >>> truth = Marked.from_boxes(np.array([[0.0, 0.0, 4.0, 4.0], [6.0, 0.0, 9.0, 4.0]]), np.array([0, 1]))
        >>> boxes = Found(truth.boxes[[0, 0]], np.array([1, 0]), np.array([0.9, 0.8]))
        >>> seen = mistakes([boxes], [truth], threshold=0.5)
        >>> seen.missed, seen.wrong, seen.false
        ([Mistake(image=0, box=None, object=1, score=0.0)], [], [Mistake(image=0, box=0, object=0, score=0.9)])
    """
    all_of = Mistakes([], [], [])
    for image, (boxes, objects) in enumerate(zip(found, marked)):
        shares = overlaps(boxes.boxes, objects.boxes, objects.crowd)
        pairs = matched(boxes, objects, threshold=threshold)
        for box, place in zip(pairs.boxes.tolist(), pairs.objects.tolist()):
            score = float(boxes.scores[box])
            if place == _NOTHING:
                covered = shares[box].max(initial=0.0) >= _FOUND
                all_of.false.append(Mistake(image, box, int(shares[box].argmax()) if covered else None, score))
            elif place >= 0 and boxes.labels[box] != objects.labels[place]:
                all_of.wrong.append(Mistake(image, box, place, score))
        for place in pairs.missed(objects).tolist():
            suspected = (shares[:, place] >= _FOUND) & (boxes.labels == objects.labels[place])
            all_of.missed.append(Mistake(image, None, place, float(boxes.scores[suspected].max(initial=0.0))))
    all_of.missed.sort(key=lambda one: (one.score, -marked[one.image].area[one.object]))
    for kind in (all_of.wrong, all_of.false):
        kind.sort(key=lambda one: -one.score)
    return all_of
