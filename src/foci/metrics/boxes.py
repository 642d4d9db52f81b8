"""Whether a map of weights falls on an object whose box is known: the pointing game, and the share inside the box.

pointing   the largest weight lies in the box                    inside   Σ_{i in box} w_i / Σ_i w_i

Paper: Top-down Neural Attention by Excitation Backprop (Zhang et al., 2016), section 4.1 (pointing game)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Map = Float[NDArray[np.floating], "H W"]


class Box(NamedTuple):
    """Left, top, right and bottom edge; the image is 1 wide and high."""

    left: float
    top: float
    right: float
    bottom: float


def on_grid(box: Box, grid: tuple[int, int]) -> Float[NDArray[np.float64], "H W"]:
    """Return how much of each cell of a grid, ``(down, across)``, a box covers, from 0 to 1.

    Example:
        >>> on_grid(Box(0.0, 0.0, 0.5, 0.75), (2, 2)).tolist()
        [[1.0, 0.0], [0.5, 0.0]]
    """
    down, across = grid
    high = _overlap(box.top * down, box.bottom * down, down)
    wide = _overlap(box.left * across, box.right * across, across)
    covered: NDArray[np.float64] = high[:, None] * wide
    return covered


def _overlap(first: float, last: float, count: int) -> Float[NDArray[np.float64], " S"]:
    places = np.arange(count)
    covered: NDArray[np.float64] = np.clip(np.minimum(last, places + 1) - np.maximum(first, places), 0, 1)
    return covered


def regions_inside(boxes: Sequence[Box], grid: tuple[int, int]) -> frozenset[int]:
    """Return the regions of a grid, ``(down, across)``, row by row, that lie in boxes by half at least.

    A box that covers half of no region has the region of which it covers most.

    Example:
        >>> sorted(regions_inside([Box(0.0, 0.0, 0.5, 0.75), Box(0.9, 0.9, 1.0, 1.0)], (2, 2)))
        [0, 2, 3]
    """
    found: set[int] = set()
    for box in boxes:
        covered = on_grid(box, grid).ravel()
        inside = np.flatnonzero(covered >= 0.5)
        found |= {*inside.tolist()} or {int(covered.argmax())}
    return frozenset(found)


def points_at(weights: Map, box: Box) -> bool:
    """Return whether the largest weight, the first of equal ones, lies in the box; False where all are 0.

    Example:
        >>> points_at(np.array([[0.2, 0.7], [0.1, 0.0]]), Box(0.5, 0.0, 1.0, 0.5))
        True
    """
    if not weights.any():
        return False
    covered = on_grid(box, (weights.shape[0], weights.shape[1]))
    return bool(covered.flat[int(weights.argmax())] >= 0.5)


def share_inside(weights: Map, box: Box) -> float:
    """Return the share of the weights that lies in the box; 0 where all are 0.

    Example:
        >>> share_inside(np.array([[0.5, 0.25], [0.25, 0.0]]), Box(0.0, 0.0, 1.0, 0.5))
        0.75
    """
    total = float(weights.sum())
    covered = on_grid(box, (weights.shape[0], weights.shape[1]))
    return float((weights * covered).sum()) / total if total > 0 else 0.0


def area(box: Box) -> float:
    """Return the share of the image that the box covers: the share inside of equal weights.

    Example:
        >>> area(Box(0.25, 0.0, 0.75, 0.5))
        0.25
    """
    return (box.right - box.left) * (box.bottom - box.top)
