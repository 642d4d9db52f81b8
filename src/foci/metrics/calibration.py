"""Calibration: whether what is predicted with probability p is right in a share p of all cases.

    ECE = Σ_b (n_b / n) · |accuracy_b − confidence_b|

over bins b of equal width; confidence_b is the mean probability of the n_b predictions in the bin, accuracy_b the share
of them that is right.

Probabilities that are too sure or too cautious are mended by a temperature T, fitted on examples that were not trained
on: p ∝ exp(z / T) of scores z. The order of the scores, and with it every answer, stays as it is.

Paper: Obtaining Well Calibrated Probabilities Using Bayesian Binning (Naeini, Cooper, Hauskrecht, 2015), section 4
Paper: On Calibration of Modern Neural Networks (Guo, Pleiss, Sun, Weinberger, 2017), section 4.2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from foci.errors import ShapeError, check_positive

_PRIOR = 3.0
"""Weight of the prior of a temperature: the inverse of its variance."""
_FOLDS = 5
"""Parts of the examples that a calibration of odds is tried on, each with that of the others."""
Derivatives = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The gradient of a function, and the matrix of its second derivatives."""
HIGHEST = 100.0
"""The highest temperature, and the inverse of the lowest one."""


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


def fit_temperature(scores: Float[NDArray[np.floating], "N C"], targets: Int[NDArray[np.int64], " N"]) -> float:
    """Return the temperature at which the targets are most probable.

    A temperature of 1 is the prior, normal in its logarithm and of the weight of a few examples: six examples that are
    right by luck hardly change the probabilities, and hundreds decide alone.

    Args:
        scores: of each class; −∞ where an example does not have it. They may differ by a constant of each example.
        targets: numbers of classes; examples with a negative one are left out.

    Example:
        >>> scores = np.log([[0.9, 0.1]] * 100)
        >>> round(fit_temperature(scores, np.array([0] * 60 + [1] * 40)), 1)
        3.4
    """
    scores, targets = np.asarray(scores, np.float64)[targets >= 0], targets[targets >= 0]
    present = np.isfinite(scores)
    heights = np.where(present, scores - scores.max(axis=1, keepdims=True, initial=-np.inf), 0.0)
    right = float(heights[np.arange(len(targets)), targets].sum())

    def slope(beta: float) -> float:
        shares = np.exp(beta * heights) * present
        expected = float(((shares * heights).sum(axis=1) / shares.sum(axis=1)).sum())
        return beta * (expected - right) + _PRIOR * math.log(beta)

    return 1 / root(slope)


def fit_share(
    first: Float[NDArray[np.floating], "N C"],
    second: Float[NDArray[np.floating], "N C"],
    targets: Int[NDArray[np.int64], " N"],
) -> float:
    """Return the share s at which the targets are most probable by ((1 − s) · first + s · second) / T, for the best T.

    The loss is convex in (1 − s) / T and s / T, found by Newton's method; their prior has the weight of an example.

    Example:
        >>> chance = np.random.default_rng(0)
        >>> scores, noise = 2 * np.eye(3)[chance.integers(0, 3, 300)], chance.normal(size=(300, 3))
        >>> targets = scores.argmax(axis=1)
        >>> fit_share(scores, noise, targets) < 0.2, fit_share(noise, scores, targets) > 0.8
        (True, True)
    """
    known = targets >= 0
    sources = np.stack([np.asarray(one, np.float64)[known] for one in (first, second)], axis=-1)
    chosen, rows = targets[known], np.arange(int(known.sum()))

    def nats(found: NDArray[np.float64]) -> float:
        scores = sources @ found
        highest = scores.max(axis=1, initial=-np.inf)
        logs = np.log(np.exp(scores - highest[:, None]).sum(axis=1)) + highest
        return float((logs - scores[rows, chosen]).sum() + ((found - 1) ** 2).sum() / 2)

    def derivatives(found: NDArray[np.float64]) -> Derivatives:
        scores = sources @ found
        shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        shares /= shares.sum(axis=1, keepdims=True)
        means = np.einsum("nc,nck->nk", shares, sources)
        gradient = (means - sources[rows, chosen]).sum(axis=0) + found - 1
        return gradient, np.einsum("nc,nck,ncl->kl", shares, sources, sources) - means.T @ means + np.eye(2)

    found = _newton(np.ones(2), nats, derivatives)
    weights = np.maximum(found, 0.0)
    return float(weights[1] / weights.sum()) if weights.any() else 0.0


class Odds(NamedTuple):
    """Calibrates probabilities of single events, such as that a span is right: log-odds become a · log-odds + b."""

    scale: float = 1.0
    """a > 0, so that the order of probabilities stays as it is."""
    shift: float = 0.0

    def __call__(self, probabilities: Sequence[float]) -> list[float]:
        """Return the calibrated probabilities."""
        if self == Odds():
            return list(probabilities)
        scores = self.scale * _log_odds(probabilities) + self.shift
        return [float(share) for share in 1 / (1 + np.exp(-scores))]

    def before(self, probability: float) -> float:
        """Return the probability that is calibrated to this one.

        Example:
            >>> odds = Odds(0.5, 1.0)
            >>> round(odds([odds.before(0.3)])[0], 6), odds.before(0.0), odds.before(1.0)
            (0.3, 0.0, 1.0)
        """
        if not 0 < probability < 1 or self == Odds():
            return probability
        against = (self.shift - math.log(probability / (1 - probability))) / self.scale
        return 1 / (1 + math.exp(min(against, 700.0)))  # beyond, the exponential is no number


NOT_CALIBRATED = Odds()
"""Keeps every probability."""


def fit_odds(probabilities: Sequence[float], right: Sequence[bool]) -> Odds:
    """Return the calibration at which the outcomes are most probable: a logistic regression on the log-odds.

    a = 1 and b = 0 are a prior of the weight of one example. They stay as they are where the regression of four fifths
    of the examples does not make the outcomes of the other fifth more probable: few examples would mislead it.

    Paper: Probabilistic Outputs for Support Vector Machines (Platt, 1999)

    Example:
        >>> odds = fit_odds([0.9] * 100, [True] * 60 + [False] * 40)
        >>> round(odds([0.9])[0], 2)
        0.6
    """
    logs, outcomes = _log_odds(probabilities), np.asarray(right, np.float64)
    fold = np.arange(len(logs)) % _FOLDS
    gain = 0.0
    for number in range(min(_FOLDS, len(logs))):
        rest, here = fold != number, fold == number
        found = _regression(logs[rest], outcomes[rest])
        gain += _nats(logs[here], outcomes[here]) - _nats(found.scale * logs[here] + found.shift, outcomes[here])
    return _regression(logs, outcomes) if gain > 0 else Odds()


def _nats(scores: NDArray[np.float64], outcomes: NDArray[np.float64]) -> float:
    """Return the nats of outcomes whose log-odds are these."""
    return float(np.logaddexp(0.0, scores).sum() - outcomes @ scores)


def _regression(logs: NDArray[np.float64], outcomes: NDArray[np.float64]) -> Odds:
    features, prior = np.stack([logs, np.ones_like(logs)], axis=1), np.array([1.0, 0.0])

    def nats(found: NDArray[np.float64]) -> float:
        return _nats(features @ found, outcomes) + float(((found - prior) ** 2).sum()) / 2

    def derivatives(found: NDArray[np.float64]) -> Derivatives:
        shares = 1 / (1 + np.exp(-features @ found))
        gradient = features.T @ (shares - outcomes) + found - prior
        return gradient, (features.T * (shares * (1 - shares))) @ features + np.eye(2)

    found = _newton(prior, nats, derivatives)
    return Odds(max(float(found[0]), 1 / HIGHEST), float(found[1]))


def _newton(
    found: NDArray[np.float64],
    value: Callable[[NDArray[np.float64]], float],
    derivatives: Callable[[NDArray[np.float64]], Derivatives],
) -> NDArray[np.float64]:
    """Return where a convex function is least, from a place nearby; steps that are too long are halved."""
    for _ in range(50):
        gradient, curvature = derivatives(found)
        step = np.linalg.solve(curvature, gradient)
        while value(found - step) > value(found) and np.abs(step).max() > 1e-9:
            step /= 2
        found = found - step
        if np.abs(step).max() < 1e-6:
            break
    return found


def _log_odds(probabilities: Sequence[float]) -> NDArray[np.float64]:
    shares = np.clip(np.asarray(probabilities, np.float64), 1e-7, 1 - 1e-7)  # they are of single precision
    odds: NDArray[np.float64] = np.log(shares / (1 - shares))
    return odds


def root(slope: Callable[[float], float], low: float = 1 / HIGHEST, high: float = HIGHEST) -> float:
    """Return where an increasing function is 0, to a part in 10,000; the nearer end where it is so nowhere between.

    The method of false position in log-space, with the Illinois rule: the value of an end that stays is halved.

    Example:
        >>> round(root(lambda beta: beta**3 - 2), 3), root(lambda beta: beta - 1000)
        (1.26, 100.0)
    """
    below, above = slope(low), slope(high)
    if below >= 0 or above <= 0:
        return low if below >= 0 else high
    a, b, side = math.log(low), math.log(high), 0
    while b - a > 1e-4:
        middle = min(max((a * above - b * below) / (above - below), a + 0.05 * (b - a)), b - 0.05 * (b - a))
        value = slope(math.exp(middle))
        if value < 0:
            a, below, above = middle, value, above / 2 if side < 0 else above
            side = -1
        else:
            b, above, below = middle, value, below / 2 if side > 0 else below
            side = 1
    return math.exp((a + b) / 2)
