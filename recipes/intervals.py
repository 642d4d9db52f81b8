"""How far a metric of some test examples may lie from that of all such examples: intervals of 95 %."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

PARTS = 10
"""Parts of the test examples, each of which is evaluated alone, for metrics that are no share of the examples."""
_NORMAL, _STUDENT = 1.959964, 2.262157
"""The 97.5 % quantiles of the normal distribution, and of Student's with nine degrees of freedom."""


def of_share(share: float, count: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of ``count`` examples.

    Example:
        >>> low, high = of_share(53 / 773, 773)
        >>> f"{low:.3f} {high:.3f}"
        '0.053 0.089'
    """
    squared = _NORMAL**2 / count
    middle = (share + squared / 2) / (1 + squared)
    half = _NORMAL / (1 + squared) * math.sqrt(max(share * (1 - share), 0.0) / count + squared / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def of_parts(value: float, parts: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a metric from those of ten disjoint parts of the examples."""
    half = _STUDENT * stdev(parts) / math.sqrt(len(parts))
    return value - half, value + half
