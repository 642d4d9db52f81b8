"""Average precision and recall of predicted boxes, equal to pycocotools' on the same boxes.

IoU   |A ∩ B| / |A ∪ B|, and |A ∩ B| / |A| for an object B that is a crowd
AP    mean over classes, 10 thresholds of IoU (.50 to .95) and 101 recalls r of max precision where recall ≥ r
AR    mean over classes and thresholds of the recall that the k best boxes of a class in an image reach

Best scores first, each predicted box takes the free object of its class with the highest IoU, if that reaches the
threshold. Crowds, and objects of another size than the one asked for, are taken only if no other object can be; a box
that takes one counts neither as right nor as false. A class without objects is left out.

Paper: Microsoft COCO: Common Objects in Context (Lin et al., 2014), as its evaluation code has it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from foci.errors import DataError, ShapeError, check_sizes

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""Of the intersection over union."""
SIZES = {"all": (0.0, 1e5**2), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e5**2)}
"""The smallest and the largest area, in pixels of the original image, that count; a limit belongs to both sides."""
LIMITS = (1, 10, 100)
"""How many boxes of a class in an image are looked at, those with the highest scores."""
_RECALLS = np.linspace(0.0, 1.0, 101)


class Found(NamedTuple):
    """The predicted boxes of an image: left, top, right and bottom in pixels, their classes and scores."""

    boxes: Float[ndarray, "N 4"]
    labels: Int[ndarray, " N"]
    scores: Float[ndarray, " N"]


class Marked(NamedTuple):
    """The objects of an image: their boxes and classes, which are crowds, and areas, where known those of the masks."""

    boxes: Float[ndarray, "N 4"]
    labels: Int[ndarray, " N"]
    crowd: Bool[ndarray, " N"]
    area: Float[ndarray, " N"]

    @classmethod
    def from_boxes(cls, boxes: Float[ndarray, "N 4"], labels: Int[ndarray, " N"]) -> Marked:
        """Return objects of which none is a crowd, and whose areas are those of their boxes.

        Example:
            >>> Marked.from_boxes(np.array([[0.0, 0.0, 4.0, 3.0]]), np.array([0])).area.tolist()
            [12.0]
        """
        return cls(boxes, labels, np.zeros(len(boxes), dtype=bool), areas(boxes))


class AveragePrecision(NamedTuple):
    """Precision and recall of each threshold (`THRESHOLDS`), size (`SIZES`) and class; NaN where a class has no object.

    Attributes:
        precision: the mean over the recalls, of at most 100 boxes.
        recall: also of each limit (`LIMITS`) of boxes.
        objects: how many objects of each size and class there are, crowds left out.
    """

    precision: Float[ndarray, "T A C"]
    recall: Float[ndarray, "T A M C"]
    objects: Int[ndarray, "A C"]

    def metrics(self) -> dict[str, float]:
        """Return the twelve numbers of COCO by their names, without those of sizes that no object has."""
        sizes = list(SIZES)
        named = {
            "ap": self.precision[:, 0],
            "ap50": self.precision[0, 0],
            "ap75": self.precision[5, 0],
            **{f"ap_{size}": self.precision[:, sizes.index(size)] for size in sizes[1:]},
            **{f"ar_{limit}": self.recall[:, 0, place] for place, limit in enumerate(LIMITS)},
            **{f"ar_{size}": self.recall[:, sizes.index(size), -1] for size in sizes[1:]},
        }
        return {name: float(np.nanmean(values)) for name, values in named.items() if not np.isnan(values).all()}

    def of_classes(self) -> Mapping[str, Float[ndarray, " C"]]:
        """Return AP, AP50, AP75 and the recall of 100 boxes of each class; NaN for one without objects."""
        precision = self.precision[:, 0]
        recall: Float[ndarray, " C"] = self.recall[:, 0, -1].mean(axis=0)
        return {"ap": precision.mean(axis=0), "ap50": precision[0], "ap75": precision[5], "ar_100": recall}


def average_precision(found: Sequence[Found], marked: Sequence[Marked], num_classes: int) -> AveragePrecision:
    """Return average precision and recall over images.

    Args:
        found: the predicted boxes of each image, all of them: a threshold on scores would cut the curve off.
        marked: the objects of each image.
        num_classes: labels are 0 to ``num_classes - 1``.

    Raises:
        DataError: not as many predictions as images, or a label, score or box that cannot be.
        ShapeError: boxes, labels, scores, crowds or areas that do not belong together.

    Example:
        >>> truth = Marked.from_boxes(np.array([[0.0, 0.0, 10.0, 10.0]]), np.array([0]))
        >>> box = Found(np.array([[0.0, 0.0, 10.0, 6.0]]), np.array([0]), np.array([0.9]))
        >>> scores = average_precision([box], [truth], num_classes=1).metrics()
        >>> scores["ap50"], scores["ap75"], round(scores["ap"], 2)
        (1.0, 0.0, 0.3)
    """
    check_images(found, marked, num_classes)
    images = [_judged(boxes, objects) for boxes, objects in zip(found, marked)]
    labels, scores, ranks, right, counted = (np.concatenate(parts, axis=-1) for parts in zip(*images))
    objects = _objects_of(marked, num_classes)
    precision = np.full((len(THRESHOLDS), len(SIZES), num_classes), np.nan)
    recall = np.full((len(THRESHOLDS), len(SIZES), len(LIMITS), num_classes), np.nan)
    # The order of images and boxes decides among equal scores, as in pycocotools.
    best_first = np.argsort(-scores, kind="stable")
    for label in np.flatnonzero(objects.any(axis=0)):
        chosen = best_first[labels[best_first] == label]
        for size in np.flatnonzero(objects[:, label]):
            for place, limit in enumerate(LIMITS):
                seen = chosen[ranks[chosen] < limit]
                hits, counts = (of[size][:, seen] for of in (right, counted))
                curve = _curve(hits, counts, int(objects[size, label]))
                recall[:, size, place, label] = curve.recall
            precision[:, size, label] = curve.precision  # of the last limit
    return AveragePrecision(precision, recall, objects)


def overlaps(
    boxes: Float[ndarray, "N 4"], objects: Float[ndarray, "M 4"], crowd: Bool[ndarray, " M"]
) -> Float[ndarray, "N M"]:
    """Return the intersection of boxes with objects over their union; with crowds, over the area of the box.

    Example:
        >>> overlaps(np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[0.0, 0.0, 2.0, 4.0]] * 2), np.array([False, True]))
        array([[0.5, 1. ]])
    """
    first, second = boxes[:, None].astype(np.float64), objects[None].astype(np.float64)
    sides = np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(first[..., :2], second[..., :2])
    shared = sides.clip(min=0).prod(axis=-1)
    whole = np.where(crowd, areas(boxes)[:, None], areas(boxes)[:, None] + areas(objects) - shared)
    result: Float[ndarray, "N M"] = np.divide(shared, whole, out=np.zeros_like(shared), where=shared > 0)
    return result


def areas(boxes: Float[ndarray, "N 4"]) -> Float[ndarray, " N"]:
    """Return the areas of boxes.

    Example:
        >>> areas(np.array([[1.0, 1.0, 3.0, 6.0]])).tolist()
        [10.0]
    """
    area: Float[ndarray, " N"] = (boxes[:, 2:] - boxes[:, :2]).astype(np.float64).prod(axis=-1)
    return area


def check_images(found: Sequence[Found], marked: Sequence[Marked], num_classes: int) -> None:
    """Raise unless there are predictions for each image, and boxes, labels and scores are such."""
    check_sizes("detection", num_classes=num_classes)
    if not marked or len(found) != len(marked):
        raise DataError(
            f"detection: boxes of {len(found)} images and objects of {len(marked)}, expected both of each image, "
            "at least one. Pass an empty Found for an image without predicted boxes."
        )
    for index, some in enumerate(image for pair in zip(found, marked) for image in pair):
        _check(f"detection: {type(some).__name__} of image {index // 2}", some, num_classes)


def _check(where: str, image: Found | Marked, num_classes: int) -> None:
    count = len(image.labels)
    fields = image._asdict()
    for name, values in fields.items():
        expected = (count, 4) if name == "boxes" else (count,)
        if values.shape != expected:
            raise ShapeError(f"{where}: {name} has shape {values.shape}, expected {expected}, as there are labels.")
    boxes = image.boxes
    if not (np.isfinite(boxes).all() and (boxes[:, :2] <= boxes[:, 2:]).all()):
        raise DataError(f"{where}: a box is not left ≤ right and top ≤ bottom in finite numbers. Swap its corners.")
    if not np.isfinite(fields.get("scores", 0.0)).all():
        raise DataError(f"{where}: a score is not finite, expected numbers.")
    if ((image.labels < 0) | (image.labels >= num_classes)).any():
        raise DataError(
            f"{where}: labels from {image.labels.min()} to {image.labels.max()}, expected 0 to {num_classes - 1}."
        )


class _Judged(NamedTuple):
    """The boxes of an image that can count, best scores first in each class."""

    labels: Int[ndarray, " N"]
    scores: Float[ndarray, " N"]
    ranks: Int[ndarray, " N"]
    right: Bool[ndarray, "A T N"]
    counted: Bool[ndarray, "A T N"]


def _judged(found: Found, marked: Marked) -> _Judged:
    order = np.argsort(-found.scores.astype(np.float64), kind="stable")
    order = order[np.argsort(found.labels[order], kind="stable")]
    labels = found.labels[order]
    ranks = np.arange(len(labels)) - np.searchsorted(labels, labels)
    kept = ranks < max(LIMITS)
    order, labels, ranks = order[kept], labels[kept], ranks[kept]
    boxes = found.boxes[order]
    right = np.zeros((len(SIZES), len(THRESHOLDS), len(order)), dtype=bool)
    counted = np.repeat(_is_of_size(areas(boxes))[:, None], len(THRESHOLDS), axis=1)
    for label in np.intersect1d(labels, marked.labels):
        here, there = np.flatnonzero(labels == label), np.flatnonzero(marked.labels == label)
        crowd = marked.crowd[there]
        shares = overlaps(boxes[here], marked.boxes[there], crowd)
        asked = _is_of_size(marked.area[there]) & ~crowd
        for row, is_taken, is_right in _taken(shares, crowd, asked):
            right[:, :, here[row]] = is_right
            counted[:, :, here[row]] = np.where(is_taken, is_right, counted[:, :, here[row]])
    return _Judged(labels, found.scores[order].astype(np.float64), ranks, right, counted)


def _taken(
    shares: Float[ndarray, "N M"], crowd: Bool[ndarray, " M"], asked: Bool[ndarray, "A M"]
) -> Iterator[tuple[int, Bool[ndarray, "A T"], Bool[ndarray, "A T"]]]:
    """Yield each box that reaches some object: whether it takes one, and one that is asked for."""
    reached = shares[:, None] >= THRESHOLDS[:, None]
    free = np.ones((len(asked), len(THRESHOLDS), len(crowd)), dtype=bool)
    for row in np.flatnonzero(reached.any(axis=(1, 2))):
        possible = reached[row] & free
        preferred = possible & asked[:, None]
        is_right = preferred.any(axis=-1)
        pool = np.where(is_right[..., None], preferred, possible)
        # Of objects with equal IoU the last one, as in pycocotools.
        best = len(crowd) - 1 - np.where(pool, shares[row], -1.0)[..., ::-1].argmax(axis=-1)
        is_taken = pool.any(axis=-1)
        free &= ~(is_taken[..., None] & (np.arange(len(crowd)) == best[..., None])) | crowd
        yield int(row), is_taken, is_right


def _is_of_size(area: Float[ndarray, " N"]) -> Bool[ndarray, "A N"]:
    return np.stack([(smallest <= area) & (area <= largest) for smallest, largest in SIZES.values()])


def _objects_of(marked: Sequence[Marked], num_classes: int) -> Int[ndarray, "A C"]:
    whole = np.concatenate([objects.labels[~objects.crowd] for objects in marked])
    fitting = _is_of_size(np.concatenate([objects.area[~objects.crowd] for objects in marked]))
    return np.stack([np.bincount(whole[fits].astype(np.int64), minlength=num_classes) for fits in fitting])


class _Curve(NamedTuple):
    precision: Float[ndarray, " T"]
    recall: Float[ndarray, " T"]


def _curve(right: Bool[ndarray, "T N"], counted: Bool[ndarray, "T N"], objects: int) -> _Curve:
    """Return the mean of the highest precision from each recall on, and the recall of all boxes."""
    hits = right.cumsum(axis=1)
    recalls = hits / objects
    precisions = hits / counted.cumsum(axis=1).clip(min=1)
    highest = np.maximum.accumulate(precisions[:, ::-1], axis=1)[:, ::-1]
    beyond = np.zeros((len(right), 1))
    places = np.stack([np.searchsorted(of_threshold, _RECALLS) for of_threshold in recalls])
    means = np.take_along_axis(np.hstack([highest, beyond]), places, axis=1).mean(axis=1)
    return _Curve(means, np.hstack([beyond, recalls])[:, -1])
