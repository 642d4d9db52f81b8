"""Scattered boxes, predicted and true ones, for the metrics of detection."""

import numpy as np

from foci.metrics.detection import Found, Marked


def scenes(seed, *, images=7, num_classes=5, side=53, scores=11, crowds=0.0, most=9):
    """Return predictions near the objects, and others, on whole pixels, so that IoU and scores are often equal."""
    chance = np.random.default_rng(seed)
    found, marked = [], []
    for _ in range(images):
        count = int(chance.integers(0, most))
        boxes = _boxes(chance, count, side)
        labels = chance.integers(0, max(1, num_classes - 1), count)  # the last class has no object
        # Areas are those of masks: smaller than the boxes, and other sizes than the predicted ones.
        area = np.floor((boxes[:, 2:] - boxes[:, :2]).prod(-1) * chance.uniform(0.4, 1.0, count))
        marked.append(Marked(boxes, labels, chance.random(count) < crowds, area))
        near = np.repeat(boxes, 2, axis=0)
        near = near + chance.integers(-side // 17, side // 17 + 1, near.shape)
        others = _boxes(chance, int(chance.integers(0, most)), side)
        guesses = np.concatenate([near, others])
        guesses[:, 2:] = np.maximum(guesses[:, :2], guesses[:, 2:])
        own = np.repeat(labels, 2)
        guessed = np.concatenate(
            [np.where(chance.random(len(own)) < 0.8, own, 0), chance.integers(0, num_classes, len(others))]
        )
        order = chance.permutation(len(guesses))
        found.append(Found(guesses[order], guessed[order], chance.integers(1, scores, len(order)) / scores))
    return found, marked


def _boxes(chance, count, side):
    corners = np.sort(chance.integers(0, side, (count, 2, 2)), axis=1)  # of zero width or height, too
    return corners.reshape(count, 4).astype(np.float64)
