"""What a detector is compared with: the most frequent class at the mean boxes, whatever the picture shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from foci.metrics.detection import Found
from foci.tasks.frame.baselines import most_frequent

_ROUNDS = 20


def mean_boxes(boxes: Sequence[Sequence[Sequence[float]]], labels: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the most frequent class, and its boxes: as many as an image has of it on average, by k-means.

    Args:
        boxes: of each image, edges as shares of it.
        labels: of each image, the classes.

    Example:
        >>> mean_boxes([[[0, 0, 0.5, 1]], [[0, 0, 0.3, 1]]], [["cat"], ["cat"]])
        {'label': 'cat', 'boxes': [[0.0, 0.0, 0.4, 1.0]]}
    """
    label = most_frequent(one for of_image in labels for one in of_image)
    every = np.array(
        [box for some, names in zip(boxes, labels) for box, name in zip(some, names) if name == label], np.float64
    )
    count = min(max(1, round(len(every) / len(boxes))), len(every))
    # Beginning with boxes from left to right, so that equal data has equal means.
    every = every[np.lexsort(every.T)]
    means = every[np.linspace(0, len(every) - 1, count).round().astype(int)]
    for _ in range(_ROUNDS):
        nearest = ((every[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
        means = np.stack(
            [
                every[nearest == place].mean(axis=0) if (nearest == place).any() else mean
                for place, mean in enumerate(means)
            ]
        )
    return {"label": label, "boxes": [[round(float(edge), 6) for edge in mean] for mean in means]}


def same_everywhere(
    boxes: Float[NDArray[np.float64], "N 4"], label: int, originals: Sequence[tuple[int, int]]
) -> list[Found]:
    """Return these boxes of one class, given as shares, for images of these heights and widths."""
    found = []
    for height, width in originals:
        pixels = boxes * [width, height, width, height]
        found.append(Found(pixels, np.full(len(boxes), label), np.ones(len(boxes))))
    return found
