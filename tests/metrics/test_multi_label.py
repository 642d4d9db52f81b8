"""Metrics of several labels per example, beside scikit-learn's on random labels."""

import warnings

import numpy as np
import pytest

from foci.metrics.multi_label import LabelCounts


@pytest.mark.parametrize("seed", range(20))
def test_metrics_are_those_of_scikit_learn(seed):
    sklearn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    shape = random.integers(1, 12), random.integers(2, 7)
    right, given = (random.random(shape) < share for share in random.random(2))
    measured = LabelCounts.from_rows(right, given).metrics()
    occurring = np.flatnonzero(right.any(axis=0) | given.any(axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that do not occur
        expected = {
            "accuracy": sklearn.accuracy_score(right, given),
            "micro_precision": sklearn.precision_score(right, given, average="micro"),
            "micro_recall": sklearn.recall_score(right, given, average="micro"),
            "micro_f1": sklearn.f1_score(right, given, average="micro"),
            # over the labels that occur or are given: scikit-learn counts the others as 0
            "macro_f1": sklearn.f1_score(right, given, average="macro", labels=occurring) if len(occurring) else 0.0,
        }
    assert measured == pytest.approx(expected)
