"""Metrics of classification: precision and recall by hand, and the oracle's loops."""

import numpy as np
import pytest

from foci.errors import ShapeError
from foci.metrics.labels import accuracy, confusion, f1_per_class, macro_f1


def test_figures_of_a_confusion():
    counts = np.array([[5, 1, 0], [2, 3, 0], [0, 0, 0]])
    precision, recall = np.array([5 / 7, 3 / 4]), np.array([5 / 6, 3 / 5])
    assert accuracy(counts) == 8 / 11
    f1 = 2 * precision * recall / (precision + recall)
    assert f1_per_class(counts)[:2] == pytest.approx(f1)
    assert np.isnan(f1_per_class(counts)[2])
    assert macro_f1(counts) == pytest.approx(f1.mean())
    assert macro_f1(np.zeros((3, 3), int)) == 0


def test_confusion_by_loops():
    chance = np.random.default_rng(3)
    targets, predicted = chance.integers(0, 5, 71), chance.integers(0, 5, 71)
    expected = [[sum((t, p) == (i, j) for t, p in zip(targets, predicted)) for j in range(5)] for i in range(5)]
    assert confusion(targets.tolist(), predicted.tolist(), 5).tolist() == expected
    with pytest.raises(ShapeError, match="2 targets and 1 predictions"):
        confusion([0, 1], [0], 2)
