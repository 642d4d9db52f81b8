"""Metrics of classification with any number of labels per example, from what was right and what was predicted.

micro F1    2 Σ_c tp_c / Σ_c (p_c + n_c)    F1_c    2 tp_c / (p_c + n_c)    p predicted, n right ones, tp both
macro F1    mean of F1_c over the labels that occur or are predicted        exact   share with all labels right
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray


class LabelCounts(NamedTuple):
    """How many examples have each label, for how many it was predicted, and for how many both; and exact matches."""

    right: Int[ndarray, " C"]
    predicted: Int[ndarray, " C"]
    both: Int[ndarray, " C"]
    exact: int
    examples: int

    @classmethod
    def from_rows(cls, right: Bool[ndarray, "N C"], predicted: Bool[ndarray, "N C"]) -> LabelCounts:
        """Count the labels of examples.

        Example:
            >>> right = np.array([[True, True, False], [False, True, False]])
            >>> counts = LabelCounts.from_rows(right, np.array([[True, False, False], [False, True, False]]))
            >>> counts.exact, counts.metrics()["micro_f1"]
            (1, 0.8)
        """
        both = right & predicted
        exact = int((right == predicted).all(axis=1).sum())
        return cls(right.sum(axis=0), predicted.sum(axis=0), both.sum(axis=0), exact, len(right))

    def f1(self) -> Float[ndarray, " C"]:
        """Return F1 of each label; NaN for one that neither occurs nor is predicted."""
        occurring = (self.right + self.predicted).astype(np.float64)
        scores: ndarray = np.divide(
            2.0 * self.both, occurring, out=np.full(len(occurring), np.nan), where=occurring > 0
        )
        return scores

    def metrics(self) -> dict[str, float]:
        """Return accuracy (exact matches), and precision, recall and F1 over all labels, and the mean of F1."""
        both, predicted, right = (float(counts.sum()) for counts in (self.both, self.predicted, self.right))
        scores = self.f1()
        known = scores[~np.isnan(scores)]
        return {
            "accuracy": self.exact / max(self.examples, 1),
            "micro_precision": both / predicted if predicted else 0.0,
            "micro_recall": both / right if right else 0.0,
            "micro_f1": 2 * both / (predicted + right) if predicted + right else 0.0,
            "macro_f1": float(known.mean()) if len(known) else 0.0,
        }
