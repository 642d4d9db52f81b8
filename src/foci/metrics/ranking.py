"""How well one ranking of positions agrees with another, or with positions that people marked.

    Kendall's τ-b          (C − D) / sqrt((C + D + T_x)(C + D + T_y))   over all pairs of positions
    average precision      mean over marked positions of the share of marked ones among those ranked as high
    interval               percentiles of the mean over examples that are drawn with replacement

C and D are the pairs in the same and in opposite order, T_x and T_y those that are tied in x or in y alone.

Paper: The treatment of ties in ranking problems (Kendall, 1945); An Introduction to the Bootstrap (Efron, Tibshirani,
1993)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from foci.errors import ConfigError, ShapeError

_DRAWS = 1000


class Estimate(NamedTuple):
    """A mean over examples, and the 95 % interval of it; of a single example there is none."""

    value: float
    low: float | None = None
    high: float | None = None


def estimate(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """Return the mean of the values of examples, and the interval that drawing them again leaves it in.

    Example:
        >>> estimate([1.0, 1.0, 1.0])
        Estimate(value=1.0, low=1.0, high=1.0)
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ShapeError(f"estimate: values has shape {array.shape}, expected (example,) with at least one of them.")
    if array.size == 1:
        return Estimate(float(array[0]))
    drawn = np.random.default_rng(seed).integers(array.size, size=(_DRAWS, array.size))
    low, high = np.percentile(array[drawn].mean(axis=1), (2.5, 97.5))
    return Estimate(float(array.mean()), float(low), float(high))


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Return Kendall's τ-b of two scores of the same positions: 1 for the same order, −1 for the opposite one.

    0 where all values of one of them are equal.

    Example:
        >>> round(kendall_tau([1, 2, 3], [1, 3, 2]), 3)
        0.333
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ShapeError(f"kendall_tau: shapes {x.shape} and {y.shape}, expected two of the same (position,).")
    above = np.triu_indices(len(x), 1)
    in_x, in_y = (np.sign(values[:, None] - values)[above] for values in (x, y))
    untied = float(np.sqrt(np.abs(in_x).sum()) * np.sqrt(np.abs(in_y).sum()))
    return float((in_x * in_y).sum() / untied) if untied else 0.0


def average_precision(scores: ArrayLike, marked: Collection[int]) -> float:
    """Return the area under the curve of precision and recall of the marked positions, ranked by score.

    Equal scores are one step of the curve. A random ranking reaches about the share of marked positions.

    Example:
        >>> average_precision([0.5, 0.3, 0.2], {0, 2})
        0.8333333333333333
    """
    array, right = _ranked("average_precision", scores, marked)
    order = np.argsort(-array, kind="stable")
    hits = np.cumsum(right[order])
    last = np.flatnonzero(np.diff(array[order], append=-np.inf))  # of each group of equal scores
    gained = np.diff(hits[last], prepend=0)
    return float((gained * hits[last] / (last + 1)).sum() / right.sum())


def marked_share(scores: ArrayLike, marked: Collection[int]) -> float:
    """Return the token F1 of as many of the highest positions as are marked: the share of them that is marked.

    Of equal scores each has the same part in it.

    Example:
        >>> marked_share([0.5, 0.3, 0.2], {0, 2})
        0.5
    """
    array, right = _ranked("marked_share", scores, marked)
    count = int(right.sum())
    border = np.sort(array)[-count]
    above, level = array > border, array == border
    return float((right[above].sum() + right[level].mean() * (count - above.sum())) / count)


def _ranked(owner: str, scores: ArrayLike, marked: Collection[int]) -> tuple[np.ndarray, np.ndarray]:
    array = np.asarray(scores, dtype=np.float64)
    right = np.zeros(len(array))
    if not marked or min(marked) < 0 or max(marked) >= len(array):
        raise ConfigError(f"{owner}: marked has {sorted(marked)}, expected at least one of 0 to {len(array) - 1}.")
    right[sorted(marked)] = 1.0
    return array, right
