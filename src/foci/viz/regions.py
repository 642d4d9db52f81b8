"""Weights of the regions of an image, spread over its pixels."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray


def smooth(weights: Float[NDArray[np.float32], "R S"], height: int, width: int) -> Float[NDArray[np.float64], "H W"]:
    """Return the weights of a grid of regions at each pixel, linear between the middles of the regions.

    Example:
        >>> smooth(np.array([[0.0, 1.0]], np.float32), 1, 4).tolist()
        [[0.0, 0.25, 0.75, 1.0]]
    """
    down, across = weights.shape
    rows = (np.arange(height) + 0.5) * down / height - 0.5
    columns = (np.arange(width) + 0.5) * across / width - 0.5
    wide = np.stack([np.interp(columns, np.arange(across), line) for line in weights])
    return np.stack([np.interp(rows, np.arange(down), line) for line in wide.T], axis=1)
