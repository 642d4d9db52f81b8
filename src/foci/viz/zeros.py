"""Which weights are exactly 0 on purpose: masked, outside of a window, or cut off by a sparse normalizer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_RUNNING_OUT = 1e-20
"""A softmax in float32 that has so small a weight may have others that it could not tell from 0."""


def zeros_on_purpose(weights: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where the weights are 0 on purpose.

    A softmax whose scores lie far apart underflows: its smallest weights are 0 by rounding, beside others that are
    almost 0. In such rows no weight counts as 0 on purpose.

    Args:
        weights: ``(…, S)``, the last axis is what a row is shared out over.

    Example:
        >>> zeros_on_purpose(np.array([[0.5, 0.5, 0.0], [1.0, 1e-38, 0.0]])).tolist()
        [[False, False, True], [False, False, False]]
    """
    smallest = np.where(weights > 0, weights, 1.0).min(axis=-1, keepdims=True, initial=1.0)
    found: NDArray[np.bool_] = (weights == 0) & (smallest > _RUNNING_OUT)
    return found
