"""Calibration: whether what is predicted with probability p is right in a share p of all cases.

    ECE = Σ_b (n_b / n) · |accuracy_b − confidence_b|

over bins b of equal width; confidence_b is the mean probability of the n_b predictions in the bin, accuracy_b the share
of them that is right.

Paper: Obtaining Well Calibrated Probabilities Using Bayesian Binning (Naeini, Cooper, Hauskrecht, 2015), section 4
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foci.errors import ShapeError, check_positive


class Bin(NamedTuple):
    """The predictions whose probability is above ``low`` and at most ``high`` (in the first bin, at least 0)."""

    low: float
    high: float
    size: int
    confidence: float | None
    """Mean probability: the expected share of right ones. None in an empty bin."""
    accuracy: float | None
    """Observed share of right ones."""


def calibration(probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> list[Bin]:
    """Return the bins, lowest first.

    Example:
        >>> [tuple(one) for one in calibration([0.25, 0.75, 1.0], [False, True, True], bins=2)]
        [(0.0, 0.5, 1, 0.25, 0.0), (0.5, 1.0, 2, 0.875, 1.0)]
    """
    check_positive("calibration", bins=bins)
    if len(probabilities) != len(right):
        raise ShapeError(
            f"calibration: {len(probabilities)} probabilities and {len(right)} outcomes, expected as many of each."
        )
    values, outcomes = np.asarray(probabilities, np.float64), np.asarray(right, np.float64)
    edges = np.linspace(0.0, 1.0, bins + 1)
    number = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, bins - 1)
    found = []
    for index in range(bins):
        here = number == index
        count = int(here.sum())
        means = (float(values[here].mean()), float(outcomes[here].mean())) if count else (None, None)
        found.append(Bin(float(edges[index]), float(edges[index + 1]), count, *means))
    return found


def expected_calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean distance of confidence and accuracy, weighted by the counts; 0 without predictions.

    Example:
        >>> round(expected_calibration_error(calibration([0.9] * 4, [True, True, True, False])), 6)
        0.15
    """
    total = sum(one.size for one in bins)
    distances = [
        one.size * abs(one.accuracy - one.confidence)
        for one in bins
        if one.accuracy is not None and one.confidence is not None
    ]
    return sum(distances) / total if total else 0.0
