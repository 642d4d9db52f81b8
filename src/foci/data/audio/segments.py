"""Long recordings cut at their silences."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from foci.errors import check_positive

_SMOOTH = 0.3
"""Seconds over which loudness is averaged: shorter pauses lie inside of words."""
_CUT_COST = 0.3
"""What a cut costs beside its loudness, in standard deviations of the loudness: of equal silences few are cut at."""


def cut_at_silences(loudness: Float[ndarray, " T"], shift: float, longest: float) -> list[tuple[int, int]]:
    """Return pieces ``(first frame, after the last)`` of at most ``longest`` seconds, cut where it is quietest.

    The cuts are chosen together, so that their summed loudness is least: a piece ends at a silence before a long
    sentence rather than inside of it. Each lies in the middle of its silence.

    Args:
        loudness: of each frame, on any scale.
        shift: seconds from one frame to the next.
        longest: seconds of the longest piece.

    Example:
        >>> loud = np.ones(140)
        >>> loud[25:35] = loud[95:105] = 0.0
        >>> cut_at_silences(loud, 0.1, 8.0)
        [(0, 30), (30, 100), (100, 140)]
    """
    check_positive("cut_at_silences", shift=shift, longest=longest)
    count, most = len(loudness), max(2, int(longest / shift))
    if count <= most:
        return [(0, count)]
    width = max(1, round(_SMOOTH / shift)) | 1
    padded = np.pad(np.asarray(loudness, np.float64), width // 2, mode="edge")
    smooth = np.convolve(padded, np.full(width, 1 / width), mode="valid")
    cost = (smooth - smooth.min()) / max(float(smooth.std()), 1e-9) + _CUT_COST
    # least[t] is the least cost of cuts that end with one before frame t; before[t] is the cut before that one.
    least, before = np.zeros(count + 1), np.zeros(count + 1, np.int64)
    for end in range(1, count + 1):
        first = max(0, end - most)
        before[end] = first + least[first:end].argmin()
        least[end] = least[before[end]] + (cost[end] if end < count else 0.0)
    cuts = [count]
    while cuts[-1]:
        cuts.append(int(before[cuts[-1]]))
    cuts.reverse()
    for place in range(1, len(cuts) - 1):
        previous, following = cuts[place - 1], cuts[place + 1]
        low, high = _quiet_stretch(smooth, cuts[place])
        middle = (low + high + 1) // 2
        cuts[place] = min(max(middle, following - most, previous + 1), previous + most, following - 1)
    return list(pairwise(cuts))


def _quiet_stretch(smooth: Float[ndarray, " T"], place: int) -> tuple[int, int]:
    """Return the first and the last frame around a place that are as quiet as it."""
    loud = smooth > smooth[place] + 1e-6 * (1 + abs(smooth[place]))
    before, after = np.flatnonzero(loud[:place]), np.flatnonzero(loud[place:])
    low = int(before[-1]) + 1 if len(before) else 0
    high = place + int(after[0]) - 1 if len(after) else len(smooth) - 1
    return low, high
