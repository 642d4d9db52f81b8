"""Metrics of classification, all from the confusion: of each class (row) how many were predicted as each (column).

accuracy  Σ_c n_cc / Σ n          F1_c  2 P_c R_c / (P_c + R_c) = 2 n_cc / (Σ_k n_ck + Σ_k n_kc)
macro F1  mean of F1_c over the classes that occur or are predicted
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import NDArray

from foci.errors import ShapeError

Confusion = Int[NDArray[np.int64], "C C"]


def confusion(targets: Sequence[int], predicted: Sequence[int], classes: int) -> Confusion:
    """Count how many examples of each class were predicted as each class.

    Example:
        >>> confusion([0, 0, 1], [0, 1, 1], classes=2).tolist()
        [[1, 1], [0, 1]]
    """
    if len(targets) != len(predicted):
        raise ShapeError(
            f"confusion: {len(targets)} targets and {len(predicted)} predictions, expected as many of each."
        )
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (np.asarray(targets, np.int64), np.asarray(predicted, np.int64)), 1)
    return counts


def accuracy(counts: Confusion) -> float:
    """Return the share of correct predictions.

    Example:
        >>> accuracy(np.array([[3, 1], [0, 4]]))
        0.875
    """
    return float(np.trace(counts) / max(counts.sum(), 1))


def occurring(counts: Confusion) -> Int[NDArray[np.int64], " C"]:
    """Return how many examples are of each class, or were predicted as it; one of both counts twice."""
    either: NDArray[np.int64] = counts.sum(axis=0) + counts.sum(axis=1)
    return either


def f1_per_class(counts: Confusion) -> Float[ndarray, " C"]:
    """Return F1 of each class; NaN for a class that neither occurs nor is predicted.

    Example:
        >>> f1_per_class(np.array([[3, 1], [0, 4]])).round(3).tolist()
        [0.857, 0.889]
    """
    total = occurring(counts)
    scores: ndarray = np.divide(2.0 * np.diag(counts), total, out=np.full(len(counts), np.nan), where=total > 0)
    return scores


def macro_f1(counts: Confusion) -> float:
    """Return the mean of F1 over the classes that occur or are predicted.

    Example:
        >>> round(macro_f1(np.array([[3, 1], [0, 4]])), 4)
        0.873
    """
    scores = f1_per_class(counts)
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else 0.0
